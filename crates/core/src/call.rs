//! Store calls that run beside the keeper, each bounded in time and reporting exactly once.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::mpsc::UnboundedSender;

use crate::clock::{Moment, until};
use crate::store::{Answer, Ask, Cause, Failure, Given, Giving, Renewal, Renewed};
use crate::tools::Tools;

/// Done, definitely not done, or unknown.
#[derive(Debug)]
pub(crate) enum Result3<T> {
    Done(T),
    Failed { unknown: bool },
}

/// A call's end.
#[derive(Debug)]
pub(crate) enum Answered {
    Renew {
        id: u64,
        sent_at: Moment,
        result: Result3<Renewed>,
    },
    Heal(Heal),
    Release {
        id: u64,
        result: Result3<Given>,
    },
}

#[derive(Debug)]
pub(crate) struct Heal {
    pub(crate) id: u64,
    pub(crate) sent_at: Moment,
    pub(crate) result: Result3<Answer>,
}

impl Answered {
    /// The store is there.
    pub(crate) fn reached_store(&self) -> bool {
        match self {
            Self::Renew { result, .. } => matches!(result, Result3::Done(_)),
            Self::Heal(heal) => matches!(heal.result, Result3::Done(_)),
            Self::Release { result, .. } => matches!(result, Result3::Done(_)),
        }
    }
}

/// Runs one store call for at most `within`. Silence and a panic are unknown outcomes, never a no.
pub(crate) async fn bounded<T>(
    tools: &Tools,
    within: Duration,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let at = tools.clock.now() + within;
    match until(&*tools.clock, at, AssertUnwindSafe(work).catch_unwind()).await {
        Some(Ok(result)) => result,
        Some(Err(_)) => Err(Failure::unknown(Cause::Corrupt, "the store's code panicked")),
        None => Err(Failure::unknown(
            Cause::TimedOut,
            format!("no answer within {within:?}"),
        )),
    }
}

pub(crate) fn renew(
    tools: &Tools,
    batch: Vec<(u64, Renewal)>,
    within: Duration,
    answer: UnboundedSender<Answered>,
) {
    let tools = tools.clone();
    // Taken before anything is sent, and before this task is even scheduled: earlier is safe, later is not.
    let sent_at = tools.clock.now();
    tokio::spawn(async move {
        let (ids, renewals): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
        let results = bounded(&tools, within, async {
            Ok(tools.store.renew(&renewals, within).await)
        })
        .await;
        let mut results = match results {
            Ok(results) => results.into_iter(),
            Err(failure) => {
                tracing::debug!(%failure, renewals = ids.len(), "renewals not answered");
                Vec::new().into_iter()
            }
        };
        for id in ids {
            // A store that answers fewer than it was asked leaves the rest unknown.
            let result = results.next().map_or(Result3::Failed { unknown: true }, settle);
            let _ = answer.send(Answered::Renew { id, sent_at, result });
        }
    });
}

pub(crate) fn heal(tools: &Tools, id: u64, ask: Ask, within: Duration, answer: UnboundedSender<Answered>) {
    let tools = tools.clone();
    let sent_at = tools.clock.now();
    tokio::spawn(async move {
        let result = settle(bounded(&tools, within, tools.store.acquire(&ask, within)).await);
        let _ = answer.send(Answered::Heal(Heal { id, sent_at, result }));
    });
}

pub(crate) fn release(
    tools: &Tools,
    id: u64,
    giving: Giving,
    within: Duration,
    answer: UnboundedSender<Answered>,
) {
    let tools = tools.clone();
    tokio::spawn(async move {
        let result = settle(bounded(&tools, within, tools.store.release(&giving, within)).await);
        let _ = answer.send(Answered::Release { id, result });
    });
}

fn settle<T>(result: Result<T, Failure>) -> Result3<T> {
    match result {
        Ok(done) => Result3::Done(done),
        Err(failure) => {
            tracing::debug!(%failure, "store call failed");
            Result3::Failed {
                unknown: failure.unknown,
            }
        }
    }
}
