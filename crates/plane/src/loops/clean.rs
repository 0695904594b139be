//! The clean-up: what ended long ago is forgotten, dead letters included.

use std::time::Duration;

use leasehold_core::Hold;

use crate::error::PlaneError;
use crate::ledger::Ledger;
use crate::state::JobState;
use crate::store::Kind;
use crate::workflow::RunState;

/// How many documents of each kind one tick forgets.
const MANY: usize = 200;

pub(super) async fn tick(ledger: &Ledger, hold: &Hold) -> Result<usize, PlaneError> {
    let keep = ledger.settings.keep;
    let jobs: Vec<_> = JobState::all()
        .filter(|state| state.ended())
        .map(JobState::word)
        .collect();
    let runs: Vec<_> = RunState::ALL
        .into_iter()
        .filter(|state| state.ended())
        .map(RunState::word)
        .collect();
    let mut gone = 0;
    for (kind, states) in [
        (Kind::Job, &jobs),
        (Kind::Run, &runs),
        (Kind::Signal, &vec!["DONE"]),
    ] {
        gone += forget(ledger, hold, kind, states, keep).await?;
    }
    Ok(gone)
}

async fn forget(
    ledger: &Ledger,
    hold: &Hold,
    kind: Kind,
    states: &[&'static str],
    keep: Duration,
) -> Result<usize, PlaneError> {
    hold.check()?;
    let gone = ledger.call(ledger.store.purge(kind, states, keep, MANY)).await?;
    Ok(usize::try_from(gone).unwrap_or(usize::MAX))
}
