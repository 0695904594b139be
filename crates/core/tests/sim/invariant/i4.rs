//! I4: only the token's owner renews or releases. Late, repeated and foreign messages change nothing; nothing revives a
//! lease that has run out, and nothing cuts a live one short but its owner's release.

use std::collections::HashSet;

use leasehold_core::store::{Answer, Given, Renewed};
use leasehold_core::word::Token;

use crate::court::{Fact, Invariant};
use crate::engine::{Reply, Verb};

#[derive(Debug, Default)]
pub(crate) struct OnlyTheOwner {
    /// Handed over and not yet asked for: confirming the claim starts the owner's own TTL, which may be shorter.
    claims: HashSet<Token>,
}

impl Invariant for OnlyTheOwner {
    fn number(&self) -> &'static str {
        "I4"
    }

    fn see(&mut self, fact: &Fact<'_>) -> Result<(), String> {
        let Fact::Applied { verb, done, .. } = fact else {
            return Ok(());
        };
        let claimed = matches!(verb, Verb::Ask(_)) && self.claims.remove(verb.token());
        self.claims.extend(done.woken.clone());
        let (before, after) = (done.before.as_ref(), done.after.as_ref());
        let own = before.is_some_and(|before| before.owner == *verb.token());
        let what = verb.label();
        if let (Verb::Renew(renewal), Some(before)) = (verb, before) {
            let granted = own && before.fence == renewal.fence;
            if !granted && before_changed(before, after) {
                return Err(format!(
                    "a renewal with fence {} changed the lease {before:?}",
                    renewal.fence
                ));
            }
        }
        match (&done.reply, before) {
            (Reply::Renewed(Renewed::Extended { .. }), None) => {
                Err("a renewal revived a lease that had run out".into())
            }
            (Reply::Renewed(Renewed::Extended { .. }), Some(_)) if !own => {
                Err("a foreign renewal was answered as done".into())
            }
            (Reply::Given(Given::Released), _) if !own => {
                Err("a foreign release was answered as done".into())
            }
            (Reply::Asked(Answer::Granted(_)), Some(before)) if !own => {
                Err(format!("granted over the live lease {before:?}"))
            }
            (_, Some(before)) if !own && before_changed(before, after) => {
                Err(format!("a foreign {what} changed {before:?} to {after:?}"))
            }
            (_, Some(before)) if own && !matches!(verb, Verb::Release(_)) => match after {
                Some(after)
                    if after.fence == before.fence && (claimed || after.expires >= before.expires) =>
                {
                    Ok(())
                }
                _ => Err(format!("{what} cut {before:?} to {after:?}")),
            },
            (Reply::Renewed(_) | Reply::Given(_), None) if after.is_some() => {
                Err(format!("{what} made a lease where there was none: {after:?}"))
            }
            _ => Ok(()),
        }
    }
}

fn before_changed(before: &crate::engine::Record, after: Option<&crate::engine::Record>) -> bool {
    after != Some(before)
}
