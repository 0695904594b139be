use leasehold_core::Fence;
use serde::{Deserialize, Serialize};

use super::Secret;

/// `POST /v1/locks/{name}/release`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Release {
    /// The token it was granted to.
    #[cfg_attr(
        feature = "schema",
        schema(
            min_length = 36,
            max_length = 256,
            pattern = "^[^|{}\\s]+\\|[a-z0-9][a-z0-9-]*\\|[0-9a-f]{32}$"
        )
    )]
    pub token: Secret,
    /// Refuse this token for so long, in case its acquire is still on its way; a minute if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(maximum = 3_600_000))]
    pub tombstone_ms: Option<u64>,
    /// How long the store may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 60_000))]
    pub within_ms: Option<u64>,
    /// Only leave the queue: a lease that the token has by now stays. Not beside `tombstone_ms`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub place_only: bool,
}

/// It is free now, or the next waiter's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Released {
    /// What was locked.
    pub name: String,
    /// False if only a place in the queue was given up.
    pub released: bool,
}

/// `POST /v1/locks/{name}/break`: an operator ends someone's lease.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Break {
    /// Why; kept in the audit log and told to the holder.
    #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 512))]
    pub reason: String,
    /// Exactly the grant with this fence; the one that is there if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, pattern = "^[1-9][0-9]{0,15}$"))]
    pub fence: Option<Fence>,
    /// At once, and even if the holder is alive.
    #[serde(default)]
    pub force: bool,
    /// For the record, with `force`: false says that you have watched the holder yourself and it was silent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alive: Option<bool>,
    /// How long the holder is given to let go by itself; five seconds if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(maximum = 60_000))]
    pub wait_ms: Option<u64>,
}

/// The lease is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Broken {
    /// What was locked.
    pub name: String,
    /// `broken`, or `released` if the holder let go when it was asked.
    pub how: String,
    /// Whose it was.
    pub holder: String,
    /// The grant that is over.
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub fence: Option<Fence>,
}
