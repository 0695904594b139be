//! Records every request that the store executes, with the name's lease before and after it.

use leasehold_core::store::{AcquireResponse, ReleaseAuthority, ReleaseResponse, RenewResponse};
use leasehold_core::{Fence, Name, Token};
use leasehold_drill::history::{HistoryEntry, StoreExecution, StoreVerb, StoredLease};

use super::drift::Nanos;
use super::engine::{Engine, StoreReply, StoreRequest};
use super::world::WorldState;

/// One lease's part of a request.
struct RequestPart<'a> {
    verb: StoreVerb,
    name: &'a Name,
    token: Option<&'a Token>,
    fence: Option<Fence>,
}

fn parts(request: &StoreRequest) -> Vec<RequestPart<'_>> {
    match request {
        StoreRequest::Acquire(ask) => {
            vec![RequestPart {
                verb: StoreVerb::Acquire,
                name: ask.names.first(),
                token: Some(&ask.token),
                fence: None,
            }]
        }
        StoreRequest::Renew(batch) => {
            let parts = batch.iter().map(|renewal| RequestPart {
                verb: StoreVerb::Renew,
                name: renewal.names.first(),
                token: Some(&renewal.token),
                fence: Some(renewal.fence),
            });
            parts.collect()
        }
        StoreRequest::Release(release) => {
            let (verb, token, fence) = match &release.authority {
                ReleaseAuthority::Owner(token) if release.tombstone.is_some() => {
                    (StoreVerb::Undo, Some(token), None)
                }
                ReleaseAuthority::Owner(token) => (StoreVerb::Release, Some(token), None),
                ReleaseAuthority::Operator(fence) => (StoreVerb::Break, None, Some(*fence)),
                _ => (StoreVerb::LeaveQueue, None, None),
            };
            vec![RequestPart { verb, name: release.names.first(), token, fence }]
        }
    }
}

impl Engine {
    /// The live lease of a name, with its end in true time.
    fn stored_lease(&self, name: &Name, at: Nanos) -> Option<StoredLease> {
        let lease = self.lease(name, at)?;
        // Steps of the clock do not count: only its rate tells how long the rest takes.
        let expires = self.drift.true_time_of(self.drift.read(at) + lease.remaining?);
        Some(StoredLease { fence: lease.fence?, expires })
    }
}

impl WorldState {
    /// The live lease of each name in the request.
    pub(super) fn leases_before(&self, request: &StoreRequest) -> Vec<Option<StoredLease>> {
        parts(request).iter().map(|part| self.engine.stored_lease(part.name, self.now)).collect()
    }

    /// Records an executed request: the life that sent it, when, and whether nothing waits for its reply.
    pub(super) fn record_executions(
        &mut self,
        request: &StoreRequest,
        reply: &StoreReply,
        before: &[Option<StoredLease>],
        (slot, life, sent, stale): (usize, u32, Nanos, bool),
    ) {
        let host = self.hosts.get(slot);
        let client = host.map_or_else(String::new, |host| host.name_in_life(slot, life));
        let parts = parts(request);
        for (number, (part, before)) in parts.iter().zip(before).enumerate() {
            // Two renewals of one name in a batch: what each of them changed is not known.
            if parts.iter().filter(|other| other.name == part.name).count() > 1 {
                continue;
            }
            let own = |lease: &StoredLease| {
                part.token.is_some_and(|token| self.orphans.is_owner(part.name, lease.fence, token))
            };
            let done = match reply {
                StoreReply::Acquire(answer) => matches!(answer, AcquireResponse::Granted(_)),
                StoreReply::Renew(renewed) => {
                    matches!(renewed.get(number), Some(RenewResponse::Extended { .. }))
                }
                StoreReply::Release(given) => *given == ReleaseResponse::Released,
                StoreReply::Failed { .. } => continue,
            };
            let executed = StoreExecution {
                request: part.verb,
                name: part.name.to_string(),
                client: client.clone(),
                sent,
                own: before.as_ref().is_some_and(own),
                done,
                // The daemon waits for the store although its own client may be gone.
                stale: stale || part.token.is_some_and(|token| self.is_token_late(token)),
                repeated: part.token.is_some_and(|token| self.is_token_repeated(token)),
                fence: part.fence,
                before: *before,
                after: self.engine.stored_lease(part.name, self.now),
            };
            self.history.record(self.now, "store", HistoryEntry::Executed(executed));
        }
    }
}
