//! Dozens of clients want one name.

use std::collections::BTreeSet;

use super::PATIENCE;
use super::scene::{Scene, transition};
use super::verdict::Draft;
use crate::fleet::{Error, StoreKind};

pub(super) async fn play(scene: &mut Scene, draft: &mut Draft) -> Result<(), Error> {
    // A SQLite file has one writer at a time: fewer clients make the same storm there.
    let (processes, clients) = match scene.stage.kind() {
        StoreKind::Sqlite => (4, 5),
        StoreKind::Redis => (4, 12),
    };
    scene.fault("everybody wants one name");
    for process in 0..processes {
        let orders = scene.orders(&format!("p{process}"), "scheduler", "job:1");
        scene
            .crew
            .start(orders.clients(clients).steps(1, 1).rest(1))
            .await?;
    }
    let all = usize::try_from(processes * clients).unwrap_or(usize::MAX);
    let mut served: BTreeSet<String> = BTreeSet::new();
    scene
        .tape
        .wait(0, PATIENCE, |record| {
            if transition(record).is_some_and(|seen| seen.event == "acquired") {
                served.insert(record.who.clone());
            }
            served.len() == all
        })
        .await;
    draft.promise(
        "nobody starves: every client is granted the name",
        served.len() == all,
        format!("{} of {all} clients", served.len()),
    );
    Ok(())
}
