//! Releases fail: the answer to the first try is lost and the second one succeeds; then the store is gone for all tries.

use std::time::Duration;

use super::draft::Draft;
use super::scene::{Scene, between, secs, transition};
use super::{PATIENCE, TTL};
use crate::fleet::{Error, StoreKind};
use crate::history::{Entry, History, Record};

/// Those with a second try in the foreground.
const TWO_TRIES: &[&str] = &["scheduler", "workflow"];
/// Two tries, two, and one.
const CLASSES: &[&str] = &["scheduler", "workflow", "approval"];
/// Waits for all of them: it is refused while the store is away.
const WAITER: &str = "scheduler";
/// One write. The first renewal comes after a second, so the end of the work is the next thing that is sent after it.
const WORK: (u32, u64) = (1, 1500);
/// So long before the lease's end, and nothing but a collector can have ended it.
const CLEARLY: Duration = Duration::from_millis(300);
/// How long the classes of the drills give one try.
const A_TRY: Duration = Duration::from_millis(300);
/// A second try that runs out of time so many times in a row does so by itself; fewer times, the machine may be slow.
const GOES: u32 = 3;
/// What a try that is under way needs of a store that is well.
const A_CHANCE: Duration = Duration::from_millis(100);

pub(super) async fn play(scene: &mut Scene, draft: &mut Draft) -> Result<(), Error> {
    // Somebody has given back before: a server that does not know a script yet answers that instead of a release.
    let warm = scene.orders("warm", "scheduler", "job:warm").turns(1);
    scene.crew.start(warm).await?;
    scene.event(0, "warm", "released").await?;
    for class in TWO_TRIES {
        let mut go = 1;
        while !first_try(scene, draft, class, go).await? {
            go += 1;
        }
    }
    for class in CLASSES {
        all_tries(scene, draft, class).await?;
    }
    Ok(())
}

/// The first try fails, the second one does not. False: its time ran out, which has to be seen more often before it is believed.
async fn first_try(scene: &mut Scene, draft: &mut Draft, class: &str, go: u32) -> Result<bool, Error> {
    let who = format!("{class}-twice-{go}");
    let orders = scene.orders(&who, class, &format!("job:{who}"));
    scene.crew.start(orders.steps(WORK.0, WORK.1).turns(1)).await?;
    scene.event(0, &who, "renewed").await?;
    let during = scene.tape.place();
    if scene.stage.kind() == StoreKind::Redis {
        scene.stage.toxic("cut_after_forward command=EVALSHA times=1")?;
        scene.fault(&format!(
            "{class}: the next command is carried out and its answer lost"
        ));
    } else {
        scene.stage.cut().await?;
        scene.fault(&format!("{class}: the file is locked for the first try"));
    }
    let failed = scene.look(during, PATIENCE, &who, "release_failed").await;
    scene.stage.heal().await?;
    let healed = scene.mend("the store is well again");
    // Either way it is over then.
    let ends = |record: &Record| {
        let seen = transition(record).map(|seen| seen.event.as_str());
        record.who == who && matches!(seen, Some("released" | "debt" | "already_lost"))
    };
    scene.tape.wait(during, PATIENCE, ends).await;
    let history = scene.tape.history();
    if without_a_chance(&who, healed, &history) {
        return Err(Error::Waited(format!(
            "to heal the store before the second try of {class} ends"
        )));
    }
    if go < GOES && out_of_time(&who, &history) {
        return Ok(false);
    }
    second_try((class, go), &who, failed.is_some(), &history, draft);
    Ok(true)
}

/// When the tries of a release failed.
fn failures<'a>(who: &'a str, history: &'a History) -> impl Iterator<Item = u64> + 'a {
    let failed = |record: &Record| transition(record).is_some_and(|seen| seen.event == "release_failed");
    let of_it = history.records.iter().filter(move |record| record.who == who);
    of_it.filter(move |record| failed(record)).map(|record| record.at)
}

/// The second try was over before the store was well again, or just then: whoever heals it was too slow, not who releases.
fn without_a_chance(who: &str, healed: u64, history: &History) -> bool {
    let second = failures(who, history).nth(1);
    second.is_some_and(|second| between(healed, second) < A_CHANCE)
}

/// The second try was not refused; nothing was heard of it in the time it may take. A disk that others keep busy does that too.
fn out_of_time(who: &str, history: &History) -> bool {
    let mut failures = failures(who, history);
    let tries = failures.next().zip(failures.next());
    tries.is_some_and(|(first, second)| between(first, second) >= A_TRY * 9 / 10)
}

/// What became of a release whose first try failed, and how often that had to be looked at.
fn second_try((class, go): (&str, u32), who: &str, failed: bool, history: &History, draft: &mut Draft) {
    let has = |event: &str| {
        let mut of_it = history.records.iter().filter(|record| record.who == who);
        of_it.any(|record| transition(record).is_some_and(|seen| seen.event == event))
    };
    draft.promise(
        &format!("{class}: the first try to release fails"),
        failed,
        if failed { "it did" } else { "it did not" },
    );
    draft.promise(
        &format!("{class}: the second try gives the lease back, and nothing is owed"),
        has("released") && !has("debt") && !has("already_lost"),
        seen(go, has("released"), has("debt")),
    );
}

/// What is told of it; goes that told nothing are not kept quiet.
fn seen(go: u32, released: bool, owed: bool) -> String {
    let what = match (released, owed) {
        (_, true) => "it was owed",
        (true, false) => "released",
        (false, false) => "it was not given back",
    };
    match go - 1 {
        0 => what.to_owned(),
        before => format!("{what}; {before} time(s) before, the second try ran out of time"),
    }
}

/// No try is answered, and the lease has most of its time left.
async fn all_tries(scene: &mut Scene, draft: &mut Draft, class: &str) -> Result<(), Error> {
    let (job, waiter) = (format!("job:{class}"), format!("waits-{class}"));
    let before = scene.tape.place();
    let owes = scene.orders(class, class, &job).turns(1);
    scene.crew.start(owes.steps(WORK.0, WORK.1)).await?;
    scene.at_work(before, class).await?;
    let waits = scene.orders(&waiter, WAITER, &job).rest(20);
    scene.crew.start(waits).await?;
    let renewed = scene.event(before, class, "renewed").await?;

    let during = scene.tape.place();
    scene.stage.cut().await?;
    let cut = scene.fault(&format!("{class}: no release is answered"));
    let told = scene
        .tape
        .wait(during, PATIENCE, |record| {
            record.who == class
                && matches!(
                    record.what,
                    Entry::Reported {
                        value: Some(_),
                        lost: false,
                        ..
                    }
                )
        })
        .await;
    if told.as_ref().is_some_and(|told| told.at < cut) {
        return Err(Error::Waited(format!(
            "to cut off the store before {class} ends its work"
        )));
    }
    draft.within(
        &format!("{class}: the work's result is handed on although its release fails"),
        cut,
        told.as_ref(),
        PATIENCE,
    );
    let owed = scene.look(during, PATIENCE, class, "debt").await;
    scene.stage.heal().await?;
    let healed = scene.mend("releases are answered again");
    scene.look(during, PATIENCE, class, "debt_cleared").await;
    scene.look(during, PATIENCE, &waiter, "acquired").await;
    let history = scene.tape.history();
    let lease = (
        renewed.at - transition(&renewed).and_then(|seen| seen.span).unwrap_or(0),
        healed,
    );
    collected(class, &waiter, owed.as_ref(), lease, &history, draft);
    Ok(())
}

/// The debt is told, collected while the lease would still have lasted, and the next one is let in by that. The lease was last
/// prolonged by a request that was sent at the first of these moments; the store was back at the second.
fn collected(
    class: &str,
    waiter: &str,
    owed: Option<&Record>,
    (prolonged, healed): (u64, u64),
    history: &History,
    draft: &mut Draft,
) {
    let of = |who: &str, event: &str| {
        let from = owed.map_or(prolonged, |owed| owed.at);
        history.records.iter().find(|record| {
            record.who == who
                && record.at >= from
                && transition(record).is_some_and(|seen| seen.event == event)
        })
    };
    draft.promise(
        &format!("{class}: the debt is told"),
        owed.is_some(),
        owed.map_or_else(
            || "it was not".to_owned(),
            |owed| format!("{} before the store was back", secs(between(owed.at, healed))),
        ),
    );
    let cleared = of(class, "debt_cleared");
    let how = cleared
        .and_then(transition)
        .and_then(|seen| seen.detail.as_deref());
    draft.promise(
        &format!("{class}: the debt is collected in the background, before the lease ends"),
        how == Some("released"),
        cleared.map_or_else(
            || "never cleared".to_owned(),
            |cleared| {
                let after = secs(between(healed, cleared.at));
                format!("{} {after} after the store was back", how.unwrap_or_default())
            },
        ),
    );
    // No lease that was prolonged then can have run out before this moment.
    let end = prolonged.saturating_add(u64::try_from(TTL.as_nanos()).unwrap_or(u64::MAX));
    let next = of(waiter, "acquired");
    draft.promise(
        &format!("{class}: the next one does not wait for the lease's end"),
        next.is_some_and(|next| between(next.at, end) >= CLEARLY),
        next.map_or_else(
            || "never granted".to_owned(),
            |next| {
                format!(
                    "busy for {} after the store was back; granted {} before the lease's end",
                    secs(between(healed, next.at)),
                    secs(between(next.at, end))
                )
            },
        ),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::POLICIES;
    use crate::scenario::script::{SECOND, event, history};

    fn kept(cleared: Option<&str>, granted: u64) -> bool {
        let owed = event(2, "scheduler", "debt", None);
        let mut records = vec![owed.clone()];
        records.extend(cleared.map(|how| event(2, "scheduler", "debt_cleared", Some(how))));
        records.push(event(granted, "waits", "acquired", None));
        let mut draft = Draft::default();
        let lease = (SECOND, 2 * SECOND);
        collected(
            "scheduler",
            "waits",
            Some(&owed),
            lease,
            &history(records),
            &mut draft,
        );
        draft.promises.iter().all(|promise| promise.kept)
    }

    #[test]
    fn a_debt_that_only_ran_out_was_not_collected() {
        assert!(kept(Some("released"), 3));
        assert!(!kept(Some("expired"), 3));
        assert!(!kept(None, 3));
        assert!(
            !kept(Some("released"), 4),
            "the next one waited for the lease's end"
        );
    }

    #[test]
    fn a_second_try_gives_back_and_owes_nothing() {
        let kept = |failed, events: &[&str]| {
            let records = events.iter().map(|what| event(1, "w", what, None)).collect();
            let mut draft = Draft::default();
            second_try(("scheduler", 1), "w", failed, &history(records), &mut draft);
            draft.promises.iter().all(|promise| promise.kept)
        };
        assert!(kept(true, &["release_failed", "released"]));
        assert!(!kept(true, &["release_failed", "release_failed", "debt"]));
        assert!(!kept(false, &["released"]), "nothing failed");
        assert!(!kept(true, &["release_failed", "already_lost"]));
    }

    #[test]
    fn a_second_try_that_had_no_chance_is_the_machines_fault() {
        let late = |failures: &[u64]| {
            let records = failures.iter().map(|at| event(*at, "w", "release_failed", None));
            without_a_chance("w", 3 * SECOND, &history(records.collect()))
        };
        assert!(late(&[1, 2]), "it was over before the store was well");
        assert!(late(&[1, 3]), "and just then");
        assert!(!late(&[1, 4]), "it had a second");
        assert!(!late(&[1]), "there was none: that is to be judged");
        assert!(!late(&[]));
    }

    #[test]
    fn only_a_second_try_that_took_all_its_time_is_tried_again() {
        let slow = |failures: &[u64]| {
            let failed = |at: &u64| Record {
                at: *at * SECOND / 1000,
                ..event(0, "w", "release_failed", None)
            };
            out_of_time("w", &history(failures.iter().map(failed).collect()))
        };
        assert!(slow(&[1_000, 1_285]), "the store says so just before it is over");
        assert!(!slow(&[1_000, 1_200]), "it was refused");
        assert!(!slow(&[1_000]), "there was none: that is to be judged");
        assert!(!slow(&[]));
        assert!(!seen(1, true, false).contains("ran out"));
        assert!(
            seen(2, true, false).contains("1 time(s) before, the second try ran out"),
            "it is told"
        );
        let told = format!("timeout = \"{}ms\"", A_TRY.as_millis());
        for class in TWO_TRIES {
            let rules = POLICIES.split(&format!("[class.{class}]")).nth(1).unwrap();
            let release = rules.split("release = ").nth(1).unwrap().lines().next().unwrap();
            assert!(release.contains(&told), "{class}: {release}");
        }
    }
}
