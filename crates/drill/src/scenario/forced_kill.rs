//! The game day: the holder is killed with -9 in the middle of its work, for each class that is renewed.

use super::scene::{Scene, between, secs, transition};
use super::draft::Draft;
use super::{PATIENCE, SLACK, TTL};
use crate::fleet::Error;

const CLASSES: &[&str] = &["scheduler", "workflow", "workflow-critical", "approval"];

pub(super) async fn play(scene: &mut Scene, draft: &mut Draft) -> Result<(), Error> {
    for class in CLASSES {
        for who in ["a", "b"] {
            let orders = scene.orders(&format!("{class}-{who}"), class, &format!("job:{class}"));
            scene.crew.start(orders.steps(40, 50)).await?;
        }
    }
    let mut victims = Vec::new();
    for class in CLASSES {
        let first = scene
            .tape
            .wait(0, PATIENCE, |record| {
                let seen = transition(record);
                seen.is_some_and(|seen| seen.event == "acquired" && seen.class == *class)
            })
            .await
            .ok_or_else(|| Error::Waited(format!("for the first grant of {class}")))?;
        scene.at_work(0, &first.who).await?;
        victims.push((*class, first.who));
    }

    let after = scene.tape.place();
    scene.fault("kill -9 of the holder of each class");
    let mut killed = Vec::new();
    for (class, victim) in &victims {
        scene.crew.kill(victim).await;
        killed.push((*class, victim, scene.now()));
    }
    for (class, victim, died) in killed {
        let next = scene
            .tape
            .wait(after, PATIENCE, |record| {
                let seen = transition(record);
                record.who != *victim
                    && seen.is_some_and(|seen| seen.event == "acquired" && seen.class == class)
            })
            .await;
        let took = next.as_ref().map(|next| between(died, next.at));
        draft.promise(
            &format!("{class}: another worker takes over within the TTL (and what a loaded host adds)"),
            took.is_some_and(|took| took <= TTL + SLACK),
            took.map_or_else(
                || "nobody took over".to_owned(),
                |took| format!("after {}", secs(took)),
            ),
        );
    }
    Ok(())
}
