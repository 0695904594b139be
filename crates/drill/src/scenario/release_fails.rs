//! The store is gone when the work ends.

use super::scene::{Scene, between, secs};
use super::draft::Draft;
use super::{PATIENCE, SLACK, TTL};
use crate::fleet::Error;
use crate::history::Entry;

/// Two tries to release, and one.
const CLASSES: &[&str] = &["scheduler", "approval"];

pub(super) async fn play(scene: &mut Scene, draft: &mut Draft) -> Result<(), Error> {
    for class in CLASSES {
        let owes = scene.orders(class, class, &format!("job:{class}"));
        scene.crew.start(owes.steps(1, 1500).rest(3000)).await?;
    }
    for class in CLASSES {
        scene.at_work(0, class).await?;
    }
    let during = scene.tape.place();
    scene.stage.cut().await?;
    let cut = scene.fault("no release is answered");
    let mut debts = Vec::new();
    for class in CLASSES {
        let told = scene
            .tape
            .wait(during, PATIENCE, |record| {
                record.who == *class
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
        draft.promise(
            &format!("{class}: the work's result is handed on although its release fails"),
            told.is_some(),
            told.as_ref().map_or_else(
                || "it was not".to_owned(),
                |told| format!("told {} after the store went away", secs(between(cut, told.at))),
            ),
        );
        debts.push((*class, scene.event(during, class, "debt").await?.at));
    }
    for class in CLASSES {
        let waits = scene.orders(&format!("waits-{class}"), class, &format!("job:{class}"));
        scene.crew.start(waits.rest(20)).await?;
    }

    scene.stage.heal().await?;
    let healed = scene.mend("releases are answered again");
    for (class, owed) in debts {
        let cleared = scene.event(during, class, "debt_cleared").await?;
        draft.promise(
            &format!("{class}: the debt is collected in the background, at the latest when the lease ends"),
            between(owed, cleared.at) <= TTL + SLACK,
            format!("owed for {}", secs(between(owed, cleared.at))),
        );
        let next = scene.event(during, &format!("waits-{class}"), "acquired").await?;
        draft.promise(
            &format!("{class}: the next one gets in"),
            between(healed, next.at) <= TTL + SLACK,
            format!("{} after the store was back", secs(between(healed, next.at))),
        );
    }
    Ok(())
}
