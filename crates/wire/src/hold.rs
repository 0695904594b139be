use std::time::Duration;

use leasehold_core::Fence;
use serde::{Deserialize, Serialize};

/// The body of `POST /v1/holds`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = HoldAsk))]
pub struct HoldRequest {
    /// The name to lock.
    #[cfg_attr(
        feature = "schema",
        schema(min_length = 1, max_length = 512, pattern = "^[^\\s{}\\x00-\\x1f\\x7f-\\x9f]+$")
    )]
    pub name: String,
    /// Chosen by the client: a repeated request with the same id returns the same hold, also after
    /// a restart of the daemon.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9._-]+$"))]
    pub id: Option<String>,
    /// The risk class; `scheduler` if not given.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 64))]
    pub class: Option<String>,
    /// The holder's name as other clients see it; the caller's identity if not given.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 128))]
    pub holder: Option<String>,
    /// How long to wait for a busy name; as the class says if not given.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(maximum = 60_000))]
    pub wait_ms: Option<u64>,
    /// The lease's time to live; the class's if not given.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(minimum = 100, maximum = 86_400_000))]
    pub ttl_ms: Option<u64>,
    /// A client that sends no heartbeat for this long counts as gone; ten seconds if not given.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(minimum = 500, maximum = 3_600_000))]
    pub heartbeat_ms: Option<u64>,
}

/// A hold that the daemon keeps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct HoldView {
    /// The id to use in `/v1/holds/{id}`.
    pub id: String,
    /// The locked name.
    pub name: String,
    /// The class of the hold.
    pub class: String,
    /// The holder's name.
    pub holder: String,
    /// Send it with every protected write; missing if the hold is local only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub fence: Option<Fence>,
    /// `proven`, `unproven` or `local_only`.
    pub standing: String,
    /// You may work for this long, counted from before you sent this request; send the next
    /// heartbeat well before.
    pub valid_ms: u64,
    /// No other client can be granted the name for this long, counted likewise; 0 if nothing is
    /// proven. Shorter than `valid_ms` only in a class that continues.
    pub proven_ms: u64,
    /// A client that sends no heartbeat for this long counts as gone.
    pub heartbeat_ms: u64,
    /// An operator asks you to release the hold; the text is the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_to_release: Option<String>,
}

impl HoldView {
    /// How long the client may work, and for how much of that time no other client can be granted
    /// the name. The lease is kept that long, and may be released after.
    #[must_use]
    pub fn with_times(self, valid: Duration, proven: Duration) -> Self {
        Self { valid_ms: crate::millis(valid), proven_ms: crate::millis(proven.min(valid)), ..self }
    }
}
