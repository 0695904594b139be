//! The game day: the holder is killed with -9 in the middle of its work, for each class.

use super::draft::Draft;
use super::scene::{Scene, transition};
use super::{ALL_CLASSES, PATIENCE, SLACK, TTL};
use crate::fleet::Error;
use crate::history::{Entry, History};

pub(super) async fn play(scene: &mut Scene, draft: &mut Draft) -> Result<(), Error> {
    for class in ALL_CLASSES {
        for who in ["a", "b"] {
            let orders = scene.orders(&format!("{class}-{who}"), class, &format!("job:{class}"));
            // Who is in the middle of endless work cannot have given its lease back when it is killed.
            scene.crew.start(orders.steps(1, 50).endless()).await?;
        }
    }
    for class in ALL_CLASSES {
        let granted = scene.tape.wait(0, PATIENCE, |record| {
            transition(record).is_some_and(|seen| seen.event == "acquired" && seen.class == *class)
        });
        let granted = granted.await;
        let first = granted.ok_or_else(|| Error::Waited(format!("for the first grant of {class}")))?;
        scene.at_work(0, &first.who).await?;
    }

    let after = scene.tape.place();
    scene.fault("kill -9 of the holder of each class");
    let mut killed = Vec::new();
    for class in ALL_CLASSES {
        let victim = holder(&scene.tape.history(), class, u64::MAX);
        let victim = victim.ok_or_else(|| Error::Waited(format!("for somebody to hold {class}")))?;
        let died = scene.now();
        scene.crew.kill(&victim).await;
        killed.push((*class, victim, died));
    }
    for (class, victim, died) in killed {
        let granted = scene
            .tape
            .wait(after, PATIENCE, |record| next(record, class, &victim, died));
        granted.await;
        taken_over(class, &victim, died, &scene.tape.history(), draft);
    }
    Ok(())
}

/// The class's name is granted to another one in time; and it had to be taken over, because the victim held it.
fn taken_over(class: &str, victim: &str, died: u64, history: &History, draft: &mut Draft) {
    draft.promise(
        &format!("{class}: the one that is killed holds the name"),
        holder(history, class, died).as_deref() == Some(victim),
        victim,
    );
    let records = &history.records;
    draft.within(
        &format!("{class}: another worker takes over within the TTL (and what a loaded host adds)"),
        died,
        records.iter().find(|record| next(record, class, victim, died)),
        TTL + SLACK,
    );
}

fn next(record: &crate::history::Record, class: &str, victim: &str, died: u64) -> bool {
    let seen = transition(record);
    record.who != victim
        && record.at >= died
        && seen.is_some_and(|seen| seen.event == "acquired" && seen.class == class)
}

/// Who holds the class's only name at this moment, as far as it is known.
fn holder(history: &History, class: &str, at: u64) -> Option<String> {
    let mut lines: Vec<_> = history.records.iter().filter(|record| record.at <= at).collect();
    lines.sort_by_key(|record| record.at);
    let mut holder = None;
    for record in lines {
        let gone = match &record.what {
            Entry::Releasing { .. } => true,
            Entry::Event(seen) if seen.class == class && seen.event == "acquired" => {
                holder = Some(&record.who);
                false
            }
            Entry::Event(seen) => matches!(seen.event.as_str(), "abandoned" | "not_owned"),
            _ => false,
        };
        if gone && holder == Some(&record.who) {
            holder = None;
        }
    }
    holder.cloned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Record;
    use crate::scenario::script::{SECOND, event, history, line};

    fn kept(before: Option<Record>) -> bool {
        let mut records = vec![event(1, "a", "acquired", None)];
        records.extend(before);
        records.push(event(5, "b", "acquired", None));
        let mut draft = Draft::default();
        taken_over("scheduler", "a", 3 * SECOND, &history(records), &mut draft);
        draft.promises.iter().all(|promise| promise.kept)
    }

    #[test]
    fn nobody_takes_over_from_who_holds_nothing() {
        assert!(kept(None));
        assert!(!kept(Some(line(2, "a", Entry::Releasing { attempt: 1 }))));
        assert!(!kept(Some(event(2, "a", "abandoned", Some("deadline")))));
        // What comes after the kill is about others.
        assert!(kept(Some(line(4, "c", Entry::Releasing { attempt: 1 }))));
    }
}
