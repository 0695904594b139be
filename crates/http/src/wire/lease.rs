use leasehold_core::Fence;
use leasehold_core::store::{Lease, Promise};
use serde::{Deserialize, Serialize};

use super::millis;

/// One lock, as everyone may see it who may see the name. Never a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct LockView {
    /// What is locked.
    pub name: String,
    /// Somebody holds it; the rest is missing if not.
    pub held: bool,
    /// Who.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// Under which class, if it is one of ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// With which fence, if it is one of ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub fence: Option<Fence>,
    /// Until it is over if nobody renews it; missing if it never is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remaining_ms: Option<u64>,
    /// Since it was granted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_ms: Option<u64>,
    /// How many wait for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiters: Option<u64>,
}

impl LockView {
    /// A name that nobody holds.
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

/// `GET /v1/locks`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct LockList {
    /// In the order of their names.
    pub locks: Vec<LockView>,
    /// There are more.
    pub truncated: bool,
}

/// `GET /v1/store`: what the daemon's store promises right now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct StoreView {
    /// `memory`, `sqlite`, `redis`, …
    pub kind: String,
    /// `volatile`, `durable` or `consensus`.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub promise: Promise,
    /// Why it does not promise more.
    pub because: Vec<String>,
}
