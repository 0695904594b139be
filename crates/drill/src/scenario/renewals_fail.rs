//! Renewals fail under long tasks of every class: all but one fence, one continues. A class that is never renewed ends at
//! its deadline in any case.

use super::draft::Draft;
use super::scene::{Scene, between, secs, transition};
use super::{PATIENCE, SLACK, TTL};
use crate::fleet::{Error, StoreKind};
use crate::history::{Entry, History, Record};

const FENCED: &[&str] = &["scheduler", "workflow-critical", "approval", "reconciler"];
const CONTINUES: &str = "workflow";
const NEVER_RENEWED: &str = "admission";

pub(super) async fn play(scene: &mut Scene, draft: &mut Draft) -> Result<(), Error> {
    for class in FENCED.iter().chain([&CONTINUES]) {
        let orders = scene.orders(class, class, &format!("job:{class}"));
        scene.crew.start(orders.steps(60, 150)).await?;
    }
    // Renewed at least once: the deadline has moved as it does in a long life.
    for class in FENCED.iter().chain([&CONTINUES]) {
        scene.event(0, class, "renewed").await?;
    }
    let never = scene.orders(NEVER_RENEWED, NEVER_RENEWED, &format!("job:{NEVER_RENEWED}"));
    scene.crew.start(never.steps(60, 150)).await?;
    scene.at_work(0, NEVER_RENEWED).await?;

    let during = scene.tape.place();
    scene.stage.cut().await?;
    let cut = scene.fault("no renewal is answered");
    // A proxy that is down refuses at once; a file that is locked makes each try wait for its time-out.
    let at_once = scene.stage.kind() == StoreKind::Redis;
    for class in FENCED {
        let stopped = scene.look(during, PATIENCE, class, "abandoned").await;
        let history = scene.tape.history();
        fenced(class, cut, stopped.as_ref(), &history, at_once, draft);
    }
    scene.look(0, PATIENCE, NEVER_RENEWED, "abandoned").await;
    never_renewed(&scene.tape.history(), draft);
    let unproven = scene.look(during, PATIENCE, CONTINUES, "unproven").await;
    // It goes on: another look at work after the lease could not be proven any more.
    let worked = match &unproven {
        Some(unproven) => scene
            .tape
            .wait(during, PATIENCE, |record| {
                record.at > unproven.at && record.who == CONTINUES && claimed(record)
            })
            .await
            .is_some(),
        None => false,
    };
    draft.promise(
        "workflow: work goes on, and says that it cannot prove its lease",
        worked,
        if unproven.is_some() {
            "unproven, and went on"
        } else {
            "never said so"
        },
    );
    let after = scene.tape.place();
    scene.stage.heal().await?;
    scene.mend("renewals are answered again");
    let over = scene
        .tape
        .wait(after, PATIENCE, |record| {
            record.who == CONTINUES
                && transition(record)
                    .is_some_and(|seen| matches!(seen.event.as_str(), "proven_again" | "overlap_ended"))
        })
        .await;
    let overlap = over.as_ref().and_then(transition).and_then(|seen| seen.span);
    draft.promise(
        "workflow: the overlap is measured",
        overlap.is_some_and(|overlap| overlap > 0),
        overlap.map_or_else(|| "not measured".to_owned(), |overlap| secs(between(0, overlap))),
    );
    Ok(())
}

/// A class that fences has stopped: before its lease could end, and by counting where tries fail at once.
fn fenced(
    class: &str,
    cut: u64,
    stopped: Option<&Record>,
    history: &History,
    at_once: bool,
    draft: &mut Draft,
) {
    let by = if at_once {
        "at the third failure"
    } else {
        "at the third failure or at the deadline"
    };
    let what = format!("{class}: fenced {by}, before the lease can end");
    let Some(stopped) = stopped else {
        draft.promise(&what, false, "it was never fenced");
        return;
    };
    let looks = history.records.iter();
    let looks = looks.filter(|record| record.who == class && record.at < stopped.at && claimed(record));
    let last = looks.map(|record| record.at).max().unwrap_or(cut);
    let why = transition(stopped).and_then(|seen| seen.detail.as_deref());
    draft.promise(
        &what,
        between(cut, last) <= TTL && (!at_once || why == Some("max_failures")),
        format!(
            "last look {} after the fault, fenced after {} ({})",
            secs(between(cut, last)),
            secs(between(cut, stopped.at)),
            why.unwrap_or_default()
        ),
    );
}

/// A class without renewals ends its hold at the deadline of its grant.
fn never_renewed(history: &History, draft: &mut Draft) {
    let mut renewals = 0;
    let (mut granted, mut stopped) = (None, None);
    for record in history
        .records
        .iter()
        .filter(|record| record.who == NEVER_RENEWED)
    {
        match transition(record).map(|seen| seen.event.as_str()) {
            Some("acquired") if granted.is_none() => granted = Some(record.at),
            Some("abandoned") if stopped.is_none() => stopped = Some(record),
            Some("renewed" | "renew_failed") => renewals += 1,
            _ => {}
        }
    }
    draft.always(
        "admission: never renewed",
        renewals == 0,
        format!("{renewals} renewals"),
    );
    draft.within(
        "admission: fenced at the deadline of its grant",
        granted.unwrap_or(0),
        stopped.filter(|record| {
            transition(record).is_some_and(|seen| seen.detail.as_deref() == Some("deadline"))
        }),
        TTL + SLACK,
    );
}

fn claimed(record: &Record) -> bool {
    matches!(record.what, Entry::Claimed { .. })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::script::{event, history};

    fn kept(stopped: Option<Record>, at_once: bool) -> bool {
        let mut draft = Draft::default();
        let tape = history(stopped.iter().cloned().collect());
        fenced("scheduler", 1, stopped.as_ref(), &tape, at_once, &mut draft);
        draft.promises.iter().all(|promise| promise.kept)
    }

    #[test]
    fn who_is_never_fenced_breaks_its_promise() {
        let fenced = |why: &str| Some(event(2, "scheduler", "abandoned", Some(why)));
        assert!(kept(fenced("max_failures"), true));
        assert!(kept(fenced("deadline"), false));
        assert!(!kept(None, true) && !kept(None, false), "without `abandoned`");
        assert!(
            !kept(fenced("deadline"), true),
            "three refusals come long before the deadline"
        );
    }

    #[test]
    fn who_is_never_renewed_ends_at_its_deadline() {
        let kept = |records: Vec<Record>| {
            let mut draft = Draft::default();
            never_renewed(&history(records), &mut draft);
            draft.promises.iter().all(|promise| promise.kept)
        };
        let of = |what: &str, at, why| event(at, NEVER_RENEWED, what, why);
        let granted = || of("acquired", 1, None);
        let over = || of("abandoned", 4, Some("deadline"));
        assert!(kept(vec![granted(), over()]));
        assert!(!kept(vec![granted()]), "it goes on");
        assert!(!kept(vec![granted(), of("renewed", 2, None), over()]));
        assert!(
            !kept(vec![granted(), of("abandoned", 9, Some("deadline"))]),
            "late"
        );
    }
}
