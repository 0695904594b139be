//! I2: fences granted for a name strictly grow in grant order, even after data loss; none is issued twice.

use std::collections::HashMap;

use leasehold_core::store::AcquireResponse;
use leasehold_core::types::{Fence, Name};

use crate::judge::{Fact, Invariant};
use crate::store::StoreReply;

#[derive(Debug, Default)]
pub(crate) struct FencesGrow {
    newest: HashMap<Name, Fence>,
}

impl Invariant for FencesGrow {
    fn number(&self) -> &'static str {
        "I2"
    }

    fn check_fact(&mut self, fact: &Fact<'_>) -> Result<(), String> {
        let Fact::Applied { verb, done, .. } = fact else {
            return Ok(());
        };
        let Some(after) = &done.after else { return Ok(()) };
        // The response to the client counts; a handover is reported later and shows in the record only.
        let issued = match &done.reply {
            StoreReply::Acquire(AcquireResponse::Granted(grant)) => grant.fence,
            _ => after.fence,
        };
        let same_lease = done
            .before
            .as_ref()
            .is_some_and(|before| before.owner == after.owner && before.fence == after.fence);
        if same_lease && issued == after.fence {
            return Ok(());
        }
        let newest = self.newest.insert(verb.name().clone(), issued);
        match newest {
            Some(newest) if issued <= newest => {
                Err(format!("fence {issued} was issued after {newest} for {}", verb.name()))
            }
            _ => Ok(()),
        }
    }
}
