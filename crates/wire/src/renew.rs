use leasehold_core::Fence;
use serde::{Deserialize, Serialize};

use super::Secret;

/// The body of `POST /v1/locks/{name}/renew`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Renew {
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
    /// The fence of the grant.
    #[cfg_attr(feature = "schema", schema(value_type = String, pattern = "^[1-9][0-9]{0,15}$"))]
    pub fence: Fence,
    /// The lease's new time to live, from now; the class's if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 100, maximum = 86_400_000))]
    pub ttl_ms: Option<u64>,
    /// The lock delay, as in an acquire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(maximum = 86_400_000))]
    pub lock_delay_ms: Option<u64>,
    /// How long the call to the store may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 60_000))]
    pub within_ms: Option<u64>,
}

/// The body of `POST /v1/namespaces/{namespace}/renew`: many leases at once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RenewBatch {
    /// The leases, all of the namespace in the path.
    #[cfg_attr(feature = "schema", schema(max_items = 200))]
    pub items: Vec<RenewItem>,
    /// How long the call to the store may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 60_000))]
    pub within_ms: Option<u64>,
}

/// One lease of a batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RenewItem {
    /// The locked name.
    #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 512))]
    pub name: String,
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
    /// The fence of the grant.
    #[cfg_attr(feature = "schema", schema(value_type = String, pattern = "^[1-9][0-9]{0,15}$"))]
    pub fence: Fence,
    /// The lease's new time to live, from now.
    #[cfg_attr(feature = "schema", schema(minimum = 100, maximum = 86_400_000))]
    pub ttl_ms: u64,
    /// The lock delay, as in an acquire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(maximum = 86_400_000))]
    pub lock_delay_ms: Option<u64>,
}

/// The result of one renewal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum RenewedView {
    /// The lease was extended, counted from now.
    Extended {
        /// The time that was left just before, where the store can tell.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        was_left_ms: Option<u64>,
        /// An operator asks the holder to release; the text is the reason.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        asked_to_release: Option<String>,
    },
    /// The token does not own the lease any more.
    NotOwned,
    /// The store failed.
    Failed {
        /// The kind of store error.
        cause: String,
        /// True if the lease may have been extended.
        unknown: bool,
        /// The store's error message.
        detail: String,
    },
}

/// The response to a batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Renewals {
    /// One result per item, in the order of the request.
    pub results: Vec<RenewedView>,
}
