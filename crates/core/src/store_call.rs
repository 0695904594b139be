//! Store calls of the keeper. Each runs as its own task, has a timeout and reports exactly once.

use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;

use crate::clock::Moment;
use crate::context::Context;
use crate::store::{
    AcquireRequest, AcquireResponse, ReleaseRequest, ReleaseResponse, RenewRequest, RenewResponse,
    StoreError, bounded_call,
};

/// The three-way outcome of a call: done, definitely not done, or unknown.
#[derive(Debug)]
pub(crate) enum CallOutcome<T> {
    Done(T),
    Failed { unknown: bool },
}

/// The report of a finished call to the keeper.
#[derive(Debug)]
pub(crate) enum CallCompletion {
    Renew { id: u64, sent_at: Moment, result: CallOutcome<RenewResponse> },
    Heal(HealCompletion),
    Release { id: u64, result: CallOutcome<ReleaseResponse> },
}

#[derive(Debug)]
pub(crate) struct HealCompletion {
    pub(crate) id: u64,
    pub(crate) sent_at: Moment,
    pub(crate) result: CallOutcome<AcquireResponse>,
}

impl CallCompletion {
    /// The store answered, so the breaker may close.
    pub(crate) fn store_answered(&self) -> bool {
        match self {
            Self::Renew { result, .. } => matches!(result, CallOutcome::Done(_)),
            Self::Heal(heal) => matches!(heal.result, CallOutcome::Done(_)),
            Self::Release { result, .. } => matches!(result, CallOutcome::Done(_)),
        }
    }
}

pub(crate) fn renew(
    context: &Context,
    batch: Vec<(u64, RenewRequest)>,
    within: Duration,
    answer: UnboundedSender<CallCompletion>,
) {
    let context = context.clone();
    // Taken before the task is even scheduled: an early send time only shortens the deadline, a
    // late one would break it.
    let sent_at = context.clock.now();
    tokio::spawn(async move {
        let (ids, renewals): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
        let results =
            bounded_call(&*context.clock, within, async { Ok(context.store.renew(&renewals, within).await) })
                .await;
        let mut results = match results {
            Ok(results) => results.into_iter(),
            Err(failure) => {
                tracing::debug!(%failure, renewals = ids.len(), "renewals not answered");
                Vec::new().into_iter()
            }
        };
        for id in ids {
            // A store that returns fewer results than requests leaves the rest unknown.
            let result = results.next().map_or(CallOutcome::Failed { unknown: true }, call_outcome);
            // The keeper may be gone; then it has marked every hold as lost.
            let _ = answer.send(CallCompletion::Renew { id, sent_at, result });
        }
    });
}

pub(crate) fn heal(
    context: &Context,
    id: u64,
    request: AcquireRequest,
    within: Duration,
    answer: UnboundedSender<CallCompletion>,
) {
    let context = context.clone();
    let sent_at = context.clock.now();
    tokio::spawn(async move {
        let result = call_outcome(
            bounded_call(&*context.clock, within, context.store.acquire(&request, within)).await,
        );
        let _ = answer.send(CallCompletion::Heal(HealCompletion { id, sent_at, result }));
    });
}

pub(crate) fn release(
    context: &Context,
    id: u64,
    request: ReleaseRequest,
    within: Duration,
    answer: UnboundedSender<CallCompletion>,
) {
    let context = context.clone();
    tokio::spawn(async move {
        let result = call_outcome(
            bounded_call(&*context.clock, within, context.store.release(&request, within)).await,
        );
        let _ = answer.send(CallCompletion::Release { id, result });
    });
}

fn call_outcome<T>(result: Result<T, StoreError>) -> CallOutcome<T> {
    match result {
        Ok(done) => CallOutcome::Done(done),
        Err(failure) => {
            // Debug only: the event that follows tells operators what the failure means for the
            // hold.
            tracing::debug!(%failure, "store call failed");
            CallOutcome::Failed { unknown: failure.unknown }
        }
    }
}
