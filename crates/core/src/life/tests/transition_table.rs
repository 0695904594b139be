//! `step` is total: every input in every state, late and repeated answers included.

use super::super::InFlightCall;
use super::*;

// After every state below is reached, before any deadline that it still has.
const STEP_MS: u64 = 13_000;

// Every state, with every call that can be in flight in it.
fn states() -> Vec<(&'static str, HoldMachine)> {
    let resting = |mut life: HoldMachine| {
        life.due = Moment::FAR;
        life
    };
    let renewing = |class: Arc<Class>| {
        let mut life = held(class);
        tick(&mut life, 10_000);
        life
    };
    let gone = || {
        let mut life = renewing(class(continuing));
        step(&mut life, Input::NotOwned, 10_010);
        life
    };
    let late = |mut life: HoldMachine| {
        let since = at(12_000);
        let (gone, confirmed) = (false, false);
        life.state = HoldState::Unproven { since, not_owned: gone, confirmed };
        life
    };
    let with = |mut life: HoldMachine, input: Input, millis: u64| {
        step(&mut life, input, millis);
        life
    };
    let unanswered = || released(ReleaseResult::Failed { unknown: true });
    let owing = || {
        let life = with(held(class(|_| ())), Input::Release, 1_000);
        with(with(life, unanswered(), 3_000), unanswered(), 12_990)
    };
    let local_healing = || with(local(class(|_| ())), Input::Tick, 200);
    vec![
        ("proven", resting(held(class(|_| ())))),
        ("proven, renewing", renewing(class(|_| ()))),
        ("unproven", resting(late(held(class(continuing))))),
        ("unproven, renewing", late(renewing(class(continuing)))),
        ("gone", resting(with(gone(), Input::HealFailed { unknown: false }, 10_020))),
        ("gone, healing", gone()),
        ("local", resting(local(class(|_| ())))),
        ("local, healing", local_healing()),
        ("lost", with(held(class(|_| ())), Input::ForceEnd(Loss::Broken), 100)),
        ("lost, renewing", with(renewing(class(|_| ())), Input::ForceEnd(Loss::Broken), 10_001)),
        ("lost, healing", with(gone(), Input::ForceEnd(Loss::Broken), 10_020)),
        ("releasing, renewing", with(renewing(class(|_| ())), Input::Release, 10_001)),
        ("releasing", with(held(class(|_| ())), Input::Release, 1_000)),
        ("owing", resting(owing())),
        ("owing, releasing", with(owing(), Input::Tick, STEP_MS + 90)),
        ("undo", with(HoldMachine::undo(class(|_| ()), 7, at(0)), Input::Tick, 0)),
        ("done", with(local(class(|_| ())), Input::Release, 100)),
        ("done, healing", with(local_healing(), Input::Release, 300)),
    ]
}

// Every input, with its label for messages.
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
        ("released", released(ReleaseResult::Released)),
        ("release not owned", released(ReleaseResult::NotOwned)),
        ("release failed", released(ReleaseResult::Failed { unknown: false })),
        ("release unknown", released(ReleaseResult::Failed { unknown: true })),
        ("policy", Input::PolicyChanged(class(continuing))),
        ("end", Input::ForceEnd(Loss::Broken)),
    ]
}

fn state_letter(life: &HoldMachine) -> char {
    match life.state() {
        HoldState::Proven { .. } => 'P',
        HoldState::Unproven { .. } => 'U',
        HoldState::LocalOnly { .. } => 'L',
        HoldState::Lost(_) => 'X',
        HoldState::Releasing { .. } => 'R',
        HoldState::Debt { .. } => 'O',
        HoldState::Done(_) => 'D',
    }
}

// One row per state, one letter per input in the order of `inputs`: P(roven), U(nproven), L(ocal),
// X (lost), R(eleasing), O(wing: debt), D(one).
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
            step(&mut life, input, STEP_MS + 100);
            state_letter(&life)
        });
        table.push_str(&format!("{:<20} {}\n", name, row.collect::<String>()));
    }
    assert_eq!(table.trim(), TABLE.trim(), "\n{table}");
}

// `Some(true)` if the input answers the call in flight, `None` if it answers no call.
fn answers_call_in_flight(life: &HoldMachine, input: &Input) -> Option<bool> {
    let flight = life.in_flight;
    match input {
        Input::Renewed { .. } | Input::RenewFailed { .. } | Input::NotOwned => {
            Some(matches!(flight, Some(InFlightCall::Renew(_))))
        }
        Input::Healed { .. } | Input::HealBusy | Input::HealFailed { .. } => {
            Some(matches!(flight, Some(InFlightCall::Heal(_))))
        }
        Input::ReleaseAnswered(_) => Some(flight == Some(InFlightCall::Release)),
        _ => None,
    }
}

#[test]
fn an_answer_without_a_call_in_flight_changes_nothing() {
    for (name, mut life) in states() {
        for (message, input) in inputs() {
            if answers_call_in_flight(&life, &input) == Some(false) {
                let before = format!("{life:?}");
                let effects = step(&mut life, input, STEP_MS);
                assert_eq!(effects, [], "{message} when {name}");
                assert_eq!(format!("{life:?}"), before, "{message} when {name}");
            }
        }
    }
}

#[test]
fn an_answer_is_applied_once() {
    for (name, _) in states() {
        for (message, input) in inputs() {
            let mut life = states().into_iter().find(|(state, _)| *state == name).unwrap().1;
            if answers_call_in_flight(&life, &input) != Some(true) {
                continue;
            }
            step(&mut life, input.clone(), STEP_MS);
            if answers_call_in_flight(&life, &input) == Some(false) {
                assert_eq!(step(&mut life, input, STEP_MS), [], "{message} again when {name}");
            }
        }
    }
}

#[test]
fn a_finished_hold_ignores_every_input() {
    for (name, mut life) in states().into_iter().filter(|(_, life)| life.is_finished()) {
        for (message, input) in inputs() {
            assert_eq!(step(&mut life, input, 1_000_000), [], "{message} when {name}");
            assert!(life.is_finished());
        }
        assert_eq!(life.wake_at(), Moment::FAR);
    }
}

#[test]
fn release_is_answered_exactly_once() {
    for (name, _) in states().iter().filter(|(name, _)| *name != "undo") {
        for (message, input) in inputs() {
            let mut life = states().into_iter().find(|(state, _)| state == name).unwrap().1;
            // States whose release was answered on the way there.
            let mut finishes = usize::from(name.starts_with("done") || name.starts_with("owing"));
            let mut effects = step(&mut life, input, STEP_MS);
            for millis in [STEP_MS, STEP_MS + 40_000] {
                for (_, input) in inputs() {
                    effects.extend(step(&mut life, input, millis));
                }
                effects.extend(step(&mut life, Input::Release, millis));
                for _ in 0..4 {
                    effects.extend(step(&mut life, unknown(), millis));
                    effects.extend(step(&mut life, released(ReleaseResult::NotOwned), millis));
                }
            }
            finishes += effects.iter().filter(|effect| matches!(effect, Effect::Finish(_))).count();
            assert_eq!(finishes, 1, "{message} when {name}: {effects:?}");
            let cancels = effects.iter().filter(|effect| matches!(effect, Effect::Cancel(_))).count();
            assert!(cancels <= usize::from(!name.starts_with("lost")), "{message} when {name}: {effects:?}");
        }
    }
}

#[test]
fn wake_at_is_never_in_the_past() {
    for (name, mut life) in states() {
        tick(&mut life, STEP_MS + 50_000);
        assert!(life.wake_at() > at(STEP_MS + 50_000), "{name} spins in {:?}", life.state());
    }
}
