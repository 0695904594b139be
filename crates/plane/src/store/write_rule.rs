//! The rule that decides whether a write is applied, shared by the memory and SQLite stores. The Redis
//! script repeats it in Lua.

use leasehold_core::Fence;

use super::{WriteRefusal, WriteRequest, WriteResponse};

/// The document as the store finds it before a write.
#[derive(Debug, Clone)]
pub(crate) struct CurrentDocument {
    pub(crate) version: u64,
    pub(crate) state: String,
    /// The id of the write that made the version after the expected one, if that version exists.
    pub(crate) write_after_expected: Option<String>,
}

/// Returns the response of a write that must not be applied, or `None` if it must be. `owned` is the number
/// of documents that count against the quota of the write.
pub(crate) fn check_write(
    write: &WriteRequest,
    found: Option<&CurrentDocument>,
    newest: Option<Fence>,
    key_of: Option<String>,
    owned: u64,
) -> Option<WriteResponse> {
    // A repetition is checked first: its fence and version were valid when it was first sent, and may be
    // outdated by now.
    if let Some(found) = found
        && found.write_after_expected.as_deref() == Some(write.id.as_str())
    {
        return Some(WriteResponse::Applied {
            version: write.expected_version.unwrap_or(0) + 1,
            repeated: true,
            already_existing: Vec::new(),
        });
    }
    let state = found.map(|found| found.state.clone());
    let refusal = match (write.fence.as_ref().map(|(_, fence)| *fence), newest) {
        (Some(offered), Some(newest)) if offered < newest => {
            Some(WriteRefusal::StaleFence { offered, newest, state })
        }
        _ => check_version(write, found, key_of, owned),
    };
    refusal.map(WriteResponse::Refused)
}

fn check_quota(write: &WriteRequest, owned: u64) -> Option<WriteRefusal> {
    let limit = write.quota.as_ref()?.limit;
    (owned >= limit).then_some(WriteRefusal::QuotaReached { kind: write.revision.kind, limit })
}

fn check_version(
    write: &WriteRequest,
    found: Option<&CurrentDocument>,
    key_of: Option<String>,
    owned: u64,
) -> Option<WriteRefusal> {
    match (found, write.expected_version) {
        // After the key: a repeated submit gets its job, not the quota.
        (None, None) => key_of.map(|id| WriteRefusal::KeyInUse { id }).or_else(|| check_quota(write, owned)),
        (Some(_), None) => Some(WriteRefusal::Exists),
        (None, Some(_)) => Some(WriteRefusal::Missing),
        (Some(found), Some(expect)) if found.version != expect => {
            Some(WriteRefusal::VersionMismatch { found: found.version, state: found.state.clone() })
        }
        (Some(found), Some(_)) => (!write.allowed_states.contains(&found.state.as_str())).then(|| {
            WriteRefusal::ForbiddenTransition { state: found.state.clone(), to: write.revision.state }
        }),
    }
}
