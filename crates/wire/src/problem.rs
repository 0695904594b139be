use leasehold_core::Fence;
use serde::{Deserialize, Serialize};

use super::ErrorCode;

/// An error response: RFC 9457 with further fields. Programs read `code`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Problem {
    /// `urn:leasehold:problem:` followed by the code.
    #[serde(rename = "type")]
    pub kind: String,
    /// The code in words.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What happened, why, and what to do.
    pub detail: String,
    /// The error code for programs: `busy`, `lost`, `stale_fence`, `unavailable`, …
    pub code: String,
    /// The request field that is invalid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// The grant that the request needs besides that of its route, in the form of `token new --grant`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grant: Option<String>,
    /// The person that made the earlier decision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The current holder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// The holder's class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// The holder's fence.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub fence: Option<Fence>,
    /// The time until the holder's lease expires unless renewed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remaining_ms: Option<u64>,
    /// True if the caller was registered as a waiter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queued: Option<bool>,
    /// The kind of store error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// True if the request may have taken effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown: Option<bool>,
    /// The reason why a hold ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Problem {
    /// The code, unless it is one that this version does not know.
    #[must_use]
    pub fn error_code(&self) -> Option<ErrorCode> {
        ErrorCode::parse(&self.code)
    }
}
