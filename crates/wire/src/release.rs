use leasehold_core::Fence;
use serde::{Deserialize, Serialize};

use super::Secret;

/// The body of `POST /v1/locks/{name}/release`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Release {
    /// The token that the lease was granted to.
    #[cfg_attr(
        feature = "schema",
        schema(
            min_length = 36,
            max_length = 256,
            pattern = "^[^|{}\\s]+\\|[a-z0-9][a-z0-9-]*\\|[0-9a-f]{32}$"
        )
    )]
    pub token: Secret,
    /// Refuse this token for this long, in case its acquire is still on its way; a minute if not
    /// given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(maximum = 3_600_000))]
    pub tombstone_ms: Option<u64>,
    /// How long the call to the store may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 60_000))]
    pub within_ms: Option<u64>,
    /// Only leave the queue; a lease that the token already has stays. Not with `tombstone_ms`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub place_only: bool,
}

/// The lock was released; it is free or granted to the next waiter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = Released))]
pub struct ReleaseView {
    /// The name that was locked.
    pub name: String,
    /// False if the caller only left the queue.
    pub released: bool,
}

/// The body of `POST /v1/locks/{name}/break`: an operator ends another client's lease.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Break {
    /// The reason; recorded in the audit log and shown to the holder.
    #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 512))]
    pub reason: String,
    /// Break only the grant with this fence; the current grant if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, pattern = "^[1-9][0-9]{0,15}$"))]
    pub fence: Option<Fence>,
    /// Break at once, even if the holder is alive.
    #[serde(default)]
    pub force: bool,
    /// With `force`, for the audit log: false says that you have watched the holder yourself and it
    /// was silent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alive: Option<bool>,
    /// How long the holder has to release by itself; five seconds if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(maximum = 60_000))]
    pub wait_ms: Option<u64>,
}

/// The outcome of a break: the lease is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = Broken))]
pub struct BreakView {
    /// The name that was locked.
    pub name: String,
    /// `broken`, or `released` if the holder released when asked.
    pub how: String,
    /// The former holder.
    pub holder: String,
    /// The fence of the grant that is over.
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub fence: Option<Fence>,
}
