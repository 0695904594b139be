use leasehold_core::Fence;
use serde::{Deserialize, Serialize};

/// A refusal: RFC 9457, with fields of ours. `code` is what programs read.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Problem {
    /// `urn:leasehold:problem:` and the code.
    #[serde(rename = "type")]
    pub kind: String,
    /// The code in words.
    pub title: String,
    /// As in the status line.
    pub status: u16,
    /// What happened, why, what to do.
    pub detail: String,
    /// What programs read: `busy`, `lost`, `stale_fence`, `unavailable`, …
    pub code: String,
    /// The field that cannot be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// Who decided it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Who has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// The holder's class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// The holder's fence.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub fence: Option<Fence>,
    /// Until the holder's lease is over if nobody renews it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remaining_ms: Option<u64>,
    /// The asker was registered as a waiter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queued: Option<bool>,
    /// Why the store did not answer, in a word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// It may have taken effect all the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown: Option<bool>,
    /// Why a hold ended, in a word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
