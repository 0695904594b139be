//! I2: fences granted for a name strictly grow in grant order, whatever the store forgets; none is issued twice.

use std::collections::HashMap;

use leasehold_core::store::Answer;
use leasehold_core::word::{Fence, Name};

use crate::court::{Fact, Invariant};
use crate::engine::Reply;

#[derive(Debug, Default)]
pub(crate) struct FencesGrow {
    newest: HashMap<Name, Fence>,
}

impl Invariant for FencesGrow {
    fn number(&self) -> &'static str {
        "I2"
    }

    fn see(&mut self, fact: &Fact<'_>) -> Result<(), String> {
        let Fact::Applied { verb, done, .. } = fact else {
            return Ok(());
        };
        let Some(after) = &done.after else { return Ok(()) };
        // What the asker hears is what counts; a hand-over is heard later and seen in the record only.
        let issued = match &done.reply {
            Reply::Asked(Answer::Granted(grant)) => grant.fence,
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
            Some(newest) if issued <= newest => Err(format!(
                "fence {issued} was issued after {newest} for {}",
                verb.name()
            )),
            _ => Ok(()),
        }
    }
}
