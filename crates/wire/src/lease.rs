use leasehold_core::Fence;
use leasehold_core::store::{Lease, Promise};
use serde::{Deserialize, Serialize};

use super::millis;

/// One lock, as shown to every caller that may read the name. Never contains a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct LockView {
    /// The lock's name.
    pub name: String,
    /// Whether the lock is held; if not, the other fields are missing.
    pub held: bool,
    /// The holder's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// The class of the lease, if a Leasehold client holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// The fence of the lease, if a Leasehold client holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub fence: Option<Fence>,
    /// The time until the lease expires unless renewed; missing if it never expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remaining_ms: Option<u64>,
    /// The time since the grant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_ms: Option<u64>,
    /// The number of waiters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiters: Option<u64>,
}

impl LockView {
    /// The view of a free name.
    #[must_use]
    pub fn free(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            held: false,
            holder: None,
            class: None,
            fence: None,
            remaining_ms: None,
            age_ms: None,
            waiters: None,
        }
    }
}

impl From<&Lease> for LockView {
    fn from(lease: &Lease) -> Self {
        Self {
            name: lease.name.to_string(),
            held: true,
            holder: Some(lease.holder.clone()),
            class: lease.class.clone(),
            fence: lease.fence,
            remaining_ms: lease.remaining.map(millis),
            age_ms: lease.age.map(millis),
            waiters: lease.waiters,
        }
    }
}

/// The response of `GET /v1/locks`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct LockList {
    /// The locks, ordered by name.
    pub locks: Vec<LockView>,
    /// True if there are more locks than listed.
    pub truncated: bool,
}

/// The response of `GET /v1/store`: what the daemon's store promises right now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct StoreView {
    /// The kind of store: `memory`, `sqlite`, `redis`, …
    pub kind: String,
    /// The promise: `volatile`, `durable` or `consensus`.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub promise: Promise,
    /// The reasons why the store does not promise more.
    pub because: Vec<String>,
}
