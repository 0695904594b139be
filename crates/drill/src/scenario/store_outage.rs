//! The store answers nobody for longer than a TTL.

use std::time::Duration;

use super::PATIENCE;
use super::scene::Scene;
use super::verdict::Draft;
use crate::fleet::Error;
use crate::history::{Answer, Entry};

const OUTAGE: Duration = Duration::from_secs(5);

pub(super) async fn play(scene: &mut Scene, draft: &mut Draft) -> Result<(), Error> {
    let closed = scene.orders("closed", "scheduler", "job:1").rest(100);
    let open = scene.orders("open", "workflow", "job:2").rest(100);
    scene.crew.start(closed).await?;
    scene.crew.start(open).await?;
    scene.at_work(0, "closed").await?;
    scene.at_work(0, "open").await?;

    let during = scene.tape.place();
    scene.stage.cut().await?;
    scene.fault("the store answers nobody");
    scene.rest(OUTAGE).await;
    let refused = scene
        .tape
        .wait(during, PATIENCE, |record| {
            record.who == "closed"
                && matches!(
                    record.what,
                    Entry::Answered {
                        answer: Answer::Unavailable,
                        ..
                    }
                )
        })
        .await;
    draft.promise(
        "scheduler (fail-closed): work pauses while the store is away",
        refused.is_some(),
        if refused.is_some() {
            "acquires were refused"
        } else {
            "no acquire was refused"
        },
    );
    let fell = scene.look(during, PATIENCE, "open", "fell_back").await;
    draft.promise(
        "workflow (fail-open): work goes on with a local lock, and is counted",
        fell.is_some(),
        if fell.is_some() {
            "fell back, and said so"
        } else {
            "never fell back"
        },
    );

    let after = scene.tape.place();
    scene.stage.heal().await?;
    scene.mend("the store answers again");
    for who in ["closed", "open"] {
        let back = scene.look(after, PATIENCE, who, "acquired").await;
        draft.promise(
            &format!("{who}: back to normal when the store is"),
            back.is_some(),
            if back.is_some() {
                "a lease was granted again"
            } else {
                "no lease was granted again"
            },
        );
    }
    Ok(())
}
