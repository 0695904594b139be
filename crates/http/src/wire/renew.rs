use leasehold_core::Fence;
use serde::{Deserialize, Serialize};

use super::Secret;

/// `POST /v1/locks/{name}/renew`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Renew {
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
    /// The fence it was granted with.
    #[cfg_attr(feature = "schema", schema(value_type = String, pattern = "^[1-9][0-9]{0,15}$"))]
    pub fence: Fence,
    /// Its new time to live, from now; its class's if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 100, maximum = 86_400_000))]
    pub ttl_ms: Option<u64>,
    /// As when acquiring.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(maximum = 86_400_000))]
    pub lock_delay_ms: Option<u64>,
    /// How long the store may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 60_000))]
    pub within_ms: Option<u64>,
}

/// `POST /v1/namespaces/{namespace}/renew`: many at once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RenewBatch {
    /// The leases, all of the namespace in the path.
    #[cfg_attr(feature = "schema", schema(max_items = 200))]
    pub items: Vec<RenewItem>,
    /// How long the store may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 60_000))]
    pub within_ms: Option<u64>,
}

/// One lease of a batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RenewItem {
    /// Its name.
    #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 512))]
    pub name: String,
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
    /// The fence it was granted with.
    #[cfg_attr(feature = "schema", schema(value_type = String, pattern = "^[1-9][0-9]{0,15}$"))]
    pub fence: Fence,
    /// Its new time to live, from now.
    #[cfg_attr(feature = "schema", schema(minimum = 100, maximum = 86_400_000))]
    pub ttl_ms: u64,
    /// As when acquiring.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(maximum = 86_400_000))]
    pub lock_delay_ms: Option<u64>,
}

/// What became of one renewal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum RenewedView {
    /// Extended from now.
    Extended {
        /// What was left of it just before, where the store can tell.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        was_left_ms: Option<u64>,
        /// An operator asks the holder to let go, and says why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        asked_to_release: Option<String>,
    },
    /// Not this token's any more.
    NotOwned,
    /// The store did not answer.
    Failed {
        /// Why, in a word.
        cause: String,
        /// It may have been extended.
        unknown: bool,
        /// What happened.
        detail: String,
    },
}

/// The answers to a batch, in its order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Renewals {
    /// One for each item.
    pub results: Vec<RenewedView>,
}
