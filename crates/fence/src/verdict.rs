//! The response of a protected target to a fence.

use leasehold_core::Fence;

/// A target's response to "may the holder of this fence write?". Not an error: a refusal is the
/// normal end of a holder that lost its lease.
///
/// `T` is the result of the admitted work, for kits that run it themselves.
#[must_use = "a stale writer must not write: look at the verdict before writing"]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict<T = ()> {
    /// No newer fence has been admitted; this one is now the newest.
    Admitted(T),
    /// A newer fence has been admitted: nothing was written.
    Stale(StaleFence),
}

impl<T> Verdict<T> {
    /// Whether the holder may write (or has written).
    #[must_use]
    pub const fn is_admitted(&self) -> bool {
        matches!(self, Self::Admitted(_))
    }

    /// For `?` in code where a stale writer simply stops: [`StaleFence`] is an error there.
    ///
    /// # Errors
    /// The fence is stale.
    pub fn into_result(self) -> Result<T, StaleFence> {
        match self {
            Self::Admitted(done) => Ok(done),
            Self::Stale(stale) => Err(stale),
        }
    }
}

/// The refusal of an older fence, with the data an operator needs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "stale fence for `{resource}`: {offered} was offered, but {newest} has been admitted; \
     another holder took over, so stop this work and acquire the lock again"
)]
#[non_exhaustive]
pub struct StaleFence {
    /// The resource to be written: the lock's name, or the key for Redis.
    pub resource: String,
    /// The fence that came with the refused write.
    pub offered: Fence,
    /// The newest fence admitted so far, always greater than `offered`.
    pub newest: Fence,
}

impl StaleFence {
    /// For implementations of [`Marks`](crate::Marks) outside this crate.
    #[must_use]
    pub fn new(resource: impl Into<String>, offered: Fence, newest: Fence) -> Self {
        Self { resource: resource.into(), offered, newest }
    }
}
