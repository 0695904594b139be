//! I4: only the token's owner renews or releases. Late, repeated and foreign messages change
//! nothing. Nothing revives an expired lease, and only the owner's release shortens a live one.

use std::collections::HashSet;

use leasehold_core::store::{AcquireResponse, ReleaseResponse, RenewResponse};
use leasehold_core::types::Token;

use crate::judge::{Fact, Invariant};
use crate::store::{StoreReply, StoreRequest};

#[derive(Debug, Default)]
pub(crate) struct OnlyTheOwner {
    /// Handed over and not yet confirmed: confirming the claim starts the owner's own TTL, which
    /// may be shorter.
    claims: HashSet<Token>,
}

impl Invariant for OnlyTheOwner {
    fn number(&self) -> &'static str {
        "I4"
    }

    fn check_fact(&mut self, fact: &Fact<'_>) -> Result<(), String> {
        let Fact::Applied { verb, done, .. } = fact else {
            return Ok(());
        };
        let claimed = matches!(verb, StoreRequest::Acquire(_)) && self.claims.remove(verb.token());
        self.claims.extend(done.woken.clone());
        let (before, after) = (done.before.as_ref(), done.after.as_ref());
        let own = before.is_some_and(|before| before.owner == *verb.token());
        let what = verb.label();
        if let (StoreRequest::Renew(renewal), Some(before)) = (verb, before) {
            let granted = own && before.fence == renewal.fence;
            if !granted && before_changed(before, after) {
                return Err(format!("a renewal with fence {} changed the lease {before:?}", renewal.fence));
            }
        }
        match (&done.reply, before) {
            (StoreReply::Renew(RenewResponse::Extended { .. }), None) => {
                Err("a renewal revived a lease that had run out".into())
            }
            (StoreReply::Renew(RenewResponse::Extended { .. }), Some(_)) if !own => {
                Err("a foreign renewal was answered as done".into())
            }
            (StoreReply::Release(ReleaseResponse::Released), _) if !own => {
                Err("a foreign release was answered as done".into())
            }
            (StoreReply::Acquire(AcquireResponse::Granted(_)), Some(before)) if !own => {
                Err(format!("granted over the live lease {before:?}"))
            }
            (_, Some(before)) if !own && before_changed(before, after) => {
                Err(format!("a foreign {what} changed {before:?} to {after:?}"))
            }
            (_, Some(before)) if own && !matches!(verb, StoreRequest::Release(_)) => match after {
                Some(after)
                    if after.fence == before.fence && (claimed || after.expires >= before.expires) =>
                {
                    Ok(())
                }
                _ => Err(format!("{what} cut {before:?} to {after:?}")),
            },
            (StoreReply::Renew(_) | StoreReply::Release(_), None) if after.is_some() => {
                Err(format!("{what} made a lease where there was none: {after:?}"))
            }
            _ => Ok(()),
        }
    }
}

fn before_changed(before: &crate::store::LeaseRecord, after: Option<&crate::store::LeaseRecord>) -> bool {
    after != Some(before)
}
