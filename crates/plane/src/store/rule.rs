//! When a write is applied: the rule that the embedded stores share and that the Redis script repeats.

use leasehold_core::Fence;

use super::{Refusal, Write, Written};

/// What a store finds before it writes.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    /// The document's version.
    pub(crate) version: u64,
    /// Its state.
    pub(crate) state: String,
    /// The id of the write that made the version after the expected one, if that is there.
    pub(crate) after_expected: Option<String>,
}

/// Says why the write is not to be applied; `None` if it is.
///
/// A repetition is looked for first: its fence and version are those of a past in which it was right.
pub(crate) fn judge(
    write: &Write,
    found: Option<&Found>,
    newest: Option<Fence>,
    key_of: Option<String>,
) -> Option<Written> {
    if let Some(found) = found
        && found.after_expected.as_deref() == Some(write.id.as_str())
    {
        return Some(Written::Done {
            version: write.expect.unwrap_or(0) + 1,
            repeated: true,
            skipped: Vec::new(),
        });
    }
    let state = found.map(|found| found.state.clone());
    let refusal = match (write.fence.as_ref().map(|(_, fence)| *fence), newest) {
        (Some(offered), Some(newest)) if offered < newest => Some(Refusal::Stale {
            offered,
            newest,
            state,
        }),
        _ => fits(write, found, key_of),
    };
    refusal.map(Written::Refused)
}

fn fits(write: &Write, found: Option<&Found>, key_of: Option<String>) -> Option<Refusal> {
    match (found, write.expect) {
        (None, None) => key_of.map(|id| Refusal::Key { id }),
        (Some(_), None) => Some(Refusal::Exists),
        (None, Some(_)) => Some(Refusal::Missing),
        (Some(found), Some(expect)) if found.version != expect => Some(Refusal::Version {
            found: found.version,
            state: found.state.clone(),
        }),
        (Some(found), Some(_)) => {
            (!write.from.contains(&found.state.as_str())).then(|| Refusal::Transition {
                state: found.state.clone(),
                to: write.entry.state,
            })
        }
    }
}
