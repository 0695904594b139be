//! `step` is total: every input in every state, late and repeated answers included.

use super::super::Flight;
use super::*;

/// When every recipe below has arrived, before any deadline it still has.
const NOW: u64 = 13_000;

/// Every state, with every call that can be on its way in it.
fn states() -> Vec<(&'static str, Life)> {
    let resting = |mut life: Life| {
        life.due = Moment::FAR;
        life
    };
    let renewing = |class: Arc<Class>| {
        let mut life = held(class);
        tick(&mut life, 10_000);
        life
    };
    let gone = || {
        let mut life = renewing(class(going_on));
        step(&mut life, Input::NotOwned, 10_010);
        life
    };
    let late = |mut life: Life| {
        let since = at(12_000);
        let (gone, confirmed) = (false, false);
        life.state = State::Unproven {
            since,
            gone,
            confirmed,
        };
        life
    };
    let with = |mut life: Life, input: Input, millis: u64| {
        step(&mut life, input, millis);
        life
    };
    let unanswered = || released(ReleaseAnswer::Failed { unknown: true });
    let owing = || {
        let life = with(held(class(|_| ())), Input::Release, 1_000);
        with(with(life, unanswered(), 3_000), unanswered(), 12_990)
    };
    let local_healing = || with(local(class(|_| ())), Input::Tick, 200);
    vec![
        ("proven", resting(held(class(|_| ())))),
        ("proven, renewing", renewing(class(|_| ()))),
        ("unproven", resting(late(held(class(going_on))))),
        ("unproven, renewing", late(renewing(class(going_on)))),
        (
            "gone",
            resting(with(gone(), Input::HealFailed { unknown: false }, 10_020)),
        ),
        ("gone, healing", gone()),
        ("local", resting(local(class(|_| ())))),
        ("local, healing", local_healing()),
        ("lost", with(held(class(|_| ())), Input::End(Loss::Broken), 100)),
        (
            "lost, renewing",
            with(renewing(class(|_| ())), Input::End(Loss::Broken), 10_001),
        ),
        ("lost, healing", with(gone(), Input::End(Loss::Broken), 10_020)),
        (
            "releasing, renewing",
            with(renewing(class(|_| ())), Input::Release, 10_001),
        ),
        ("releasing", with(held(class(|_| ())), Input::Release, 1_000)),
        ("owing", resting(owing())),
        ("owing, releasing", with(owing(), Input::Tick, NOW + 90)),
        ("undo", with(Life::undo(class(|_| ()), 7, at(0)), Input::Tick, 0)),
        ("done", with(local(class(|_| ())), Input::Release, 100)),
        ("done, healing", with(local_healing(), Input::Release, 300)),
    ]
}

/// Every input, and whose answer it is.
fn inputs() -> Vec<(&'static str, Input)> {
    vec![
        ("tick", Input::Tick),
        ("renewed", renewed(10_000)),
        ("renew failed", Input::RenewFailed { unknown: false }),
        ("renew unknown", unknown()),
        ("not owned", Input::NotOwned),
        ("healed", healed(12_000, 9)),
        ("heal busy", Input::HealBusy),
        ("heal failed", Input::HealFailed { unknown: false }),
        ("heal unknown", Input::HealFailed { unknown: true }),
        ("release", Input::Release),
        ("released", released(ReleaseAnswer::Released)),
        ("release not owned", released(ReleaseAnswer::NotOwned)),
        (
            "release failed",
            released(ReleaseAnswer::Failed { unknown: false }),
        ),
        (
            "release unknown",
            released(ReleaseAnswer::Failed { unknown: true }),
        ),
        ("policy", Input::PolicyChanged(class(going_on))),
        ("end", Input::End(Loss::Broken)),
    ]
}

fn letter(life: &Life) -> char {
    match life.state() {
        State::Proven { .. } => 'P',
        State::Unproven { .. } => 'U',
        State::LocalOnly { .. } => 'L',
        State::Lost(_) => 'X',
        State::Releasing { .. } => 'R',
        State::Owing { .. } => 'O',
        State::Done(_) => 'D',
    }
}

/// One row a state, one letter an input in the order of [`inputs`]: P(roven), U(nproven), L(ocal), X (lost), R(eleasing), O(wing), D(one).
const TABLE: &str = "
proven               PPPPPPPPPRPPPPPX
proven, renewing     PPPPXPPPPRPPPPPX
unproven             UUUUUUUUURUUUUUX
unproven, renewing   UPUUUUUUURUUUUUX
gone                 UUUUUUUUUDUUUUUX
gone, healing        UUUUUPUUUDUUUUUX
local                LLLLLLLLLDLLLLLX
local, healing       LLLLLPXLLDLLLLLX
lost                 XXXXXXXXXDXXXXXX
lost, renewing       XXXXXXXXXDXXXXXX
lost, healing        XXXXXXXXXDXXXXXX
releasing, renewing  RRRRDRRRRRRRRRRR
releasing            RRRRRRRRRRDDRRRR
owing                OOOOOOOOOOOOOOOO
owing, releasing     OOOOOOOOOODDOOOO
undo                 OOOOOOOOOODDOOOO
done                 DDDDDDDDDDDDDDDD
done, healing        DDDDDDDDDDDDDDDD
";

#[test]
fn every_input_in_every_state_leads_where_the_table_says() {
    let mut table = String::new();
    for (name, _) in states() {
        let row = inputs().into_iter().map(|(_, input)| {
            let mut life = states().into_iter().find(|(state, _)| *state == name).unwrap().1;
            step(&mut life, input, NOW + 100);
            letter(&life)
        });
        table.push_str(&format!("{:<20} {}\n", name, row.collect::<String>()));
    }
    assert_eq!(table.trim(), TABLE.trim(), "\n{table}");
}

/// The kind of call an input answers, if any.
fn answers(life: &Life, input: &Input) -> Option<bool> {
    let flight = life.flight;
    match input {
        Input::Renewed { .. } | Input::RenewFailed { .. } | Input::NotOwned => {
            Some(matches!(flight, Some(Flight::Renew(_))))
        }
        Input::Healed { .. } | Input::HealBusy | Input::HealFailed { .. } => {
            Some(matches!(flight, Some(Flight::Heal(_))))
        }
        Input::ReleaseAnswer(_) => Some(flight == Some(Flight::Release)),
        _ => None,
    }
}

#[test]
fn an_answer_to_no_call_on_its_way_changes_nothing() {
    for (name, mut life) in states() {
        for (said, input) in inputs() {
            if answers(&life, &input) == Some(false) {
                let before = format!("{life:?}");
                let effects = step(&mut life, input, NOW);
                assert_eq!(effects, [], "{said} when {name}");
                assert_eq!(format!("{life:?}"), before, "{said} when {name}");
            }
        }
    }
}

#[test]
fn an_answer_is_taken_once() {
    for (name, _) in states() {
        for (said, input) in inputs() {
            let mut life = states().into_iter().find(|(state, _)| *state == name).unwrap().1;
            if answers(&life, &input) != Some(true) {
                continue;
            }
            step(&mut life, input.clone(), NOW);
            if answers(&life, &input) == Some(false) {
                assert_eq!(step(&mut life, input, NOW), [], "{said} again when {name}");
            }
        }
    }
}

#[test]
fn nothing_more_happens_after_the_end() {
    for (name, mut life) in states().into_iter().filter(|(_, life)| life.finished()) {
        for (said, input) in inputs() {
            assert_eq!(step(&mut life, input, 1_000_000), [], "{said} when {name}");
            assert!(life.finished());
        }
        assert_eq!(life.wake_at(), Moment::FAR);
    }
}

#[test]
fn the_foreground_is_answered_exactly_once_whatever_comes_first() {
    for (name, _) in states().iter().filter(|(name, _)| *name != "undo") {
        for (said, input) in inputs() {
            let mut life = states().into_iter().find(|(state, _)| state == name).unwrap().1;
            // Those that have been answered on the way here.
            let mut finishes = usize::from(name.starts_with("done") || name.starts_with("owing"));
            let mut effects = step(&mut life, input, NOW);
            for millis in [NOW, NOW + 40_000] {
                for (_, input) in inputs() {
                    effects.extend(step(&mut life, input, millis));
                }
                effects.extend(step(&mut life, Input::Release, millis));
                for _ in 0..4 {
                    effects.extend(step(&mut life, unknown(), millis));
                    effects.extend(step(&mut life, released(ReleaseAnswer::NotOwned), millis));
                }
            }
            finishes += effects
                .iter()
                .filter(|effect| matches!(effect, Effect::Finish(_)))
                .count();
            assert_eq!(finishes, 1, "{said} when {name}: {effects:?}");
            let cancels = effects
                .iter()
                .filter(|effect| matches!(effect, Effect::Cancel(_)))
                .count();
            assert!(
                cancels <= usize::from(!name.starts_with("lost")),
                "{said} when {name}: {effects:?}"
            );
        }
    }
}

#[test]
fn a_life_never_wants_to_be_woken_in_the_past() {
    for (name, mut life) in states() {
        tick(&mut life, NOW + 50_000);
        assert!(
            life.wake_at() > at(NOW + 50_000),
            "{name} spins in {:?}",
            life.state()
        );
    }
}
