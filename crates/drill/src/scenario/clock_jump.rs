//! The server's clock is set back by about seven seconds, as its leases show it: the lease lives longer than its holder
//! counts. (Setting a real clock needs root and would hit everybody on the host.)

use super::PATIENCE;
use super::scene::{Scene, secs, transition};
use super::verdict::Draft;
use crate::fleet::Error;

pub(super) async fn play(scene: &mut Scene, draft: &mut Draft) -> Result<(), Error> {
    let holder = scene.orders("holder", "scheduler", "job:1").steps(80, 100);
    scene.crew.start(holder).await?;
    scene.event(0, "holder", "renewed").await?;
    let from = scene.tape.place();
    let key = format!("lock:{}", scene.stage.name("job:1"));
    scene.fault("the lease lives 10 s longer than its holder counts");
    let set = scene.stage.command(&["PEXPIRE", &key, "10000"]).await?;
    if set != redis::Value::Int(1) {
        return Err(Error::Waited(format!("for a lease under {key}")));
    }
    let told = scene.look(from, PATIENCE, "holder", "clock_jump").await;
    let seen = told.as_ref().and_then(transition);
    draft.promise(
        "the jump is told with the next renewal",
        seen.is_some_and(|seen| seen.detail.as_deref() == Some("behind")),
        seen.and_then(|seen| seen.span).map_or_else(
            || "never told".to_owned(),
            |by| {
                format!(
                    "the store is {} behind",
                    secs(std::time::Duration::from_nanos(by))
                )
            },
        ),
    );
    let renewed = scene.look(from, PATIENCE, "holder", "renewed").await;
    let lost = scene
        .look(from, std::time::Duration::ZERO, "holder", "abandoned")
        .await;
    draft.promise(
        "the holder counts on its own clock only and goes on",
        renewed.is_some() && lost.is_none(),
        if lost.is_none() {
            "renewed as before"
        } else {
            "lost"
        },
    );
    Ok(())
}
