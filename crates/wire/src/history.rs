use leasehold_core::Fence;
use serde::{Deserialize, Serialize};

/// A page of the history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = Past))]
pub struct HistoryPage {
    /// The holds, newest first.
    pub holds: Vec<HoldRecord>,
}

/// One hold, past or current.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = HistoryRow))]
pub struct HoldRecord {
    /// Increasing; pass it as `before` to read the next page.
    pub seq: u64,
    /// The locked name.
    pub name: String,
    /// The class of the hold.
    pub class: String,
    /// The holder.
    pub holder: String,
    /// The fence; missing if the hold was local-only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub fence: Option<Fence>,
    /// The time of the grant.
    #[cfg_attr(feature = "schema", schema(format = DateTime, value_type = String))]
    pub from: String,
    /// The end of the hold; missing while it is held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(format = DateTime, value_type = Option<String>))]
    pub to: Option<String>,
    /// How the hold ended: `released`, `deadline` (the lease expired), `not_owned`, `broken`,
    /// `client_gone`, …; missing while it is held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    /// The operator that ended the hold and the reason, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}
