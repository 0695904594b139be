//! I3: a write with a fence older than the newest admitted one is never applied.

use std::collections::HashMap;

use leasehold_core::types::Fence;

use crate::judge::{Fact, Invariant};

#[derive(Debug, Default)]
pub(crate) struct TargetIsFenced {
    newest: HashMap<usize, Fence>,
}

impl Invariant for TargetIsFenced {
    fn number(&self) -> &'static str {
        "I3"
    }

    fn check_fact(&mut self, fact: &Fact<'_>) -> Result<(), String> {
        let Fact::Wrote { name, fence, applied } = fact else {
            return Ok(());
        };
        if !applied {
            return Ok(());
        }
        let newest = self.newest.get(name).copied();
        self.newest.insert(*name, newest.map_or(*fence, |newest| newest.max(*fence)));
        match newest {
            Some(newest) if *fence < newest => {
                Err(format!("a write with fence {fence} was applied after {newest}"))
            }
            _ => Ok(()),
        }
    }
}
