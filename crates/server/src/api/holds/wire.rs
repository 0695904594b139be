//! Request and response types of the routes of daemon-kept holds.

use std::time::Duration;

use leasehold::Fence;
use leasehold_wire::millis;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The body of `POST /v1/holds`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct HoldAsk {
    /// The name to lock.
    #[schema(min_length = 1, max_length = 512, pattern = "^[^\\s{}\\x00-\\x1f\\x7f-\\x9f]+$")]
    pub(crate) name: String,
    /// Chosen by the client: a repeated request with the same id returns the same hold, also after
    /// a restart of the daemon.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9._-]+$")]
    pub(crate) id: Option<String>,
    /// The risk class; `scheduler` if not given.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 64)]
    pub(crate) class: Option<String>,
    /// The holder's name as other clients see it; the caller's identity if not given.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 128)]
    pub(crate) holder: Option<String>,
    /// How long to wait for a busy name; as the class says if not given.
    #[serde(default)]
    #[schema(maximum = 60_000)]
    pub(crate) wait_ms: Option<u64>,
    /// The lease's time to live; the class's if not given.
    #[serde(default)]
    #[schema(minimum = 100, maximum = 86_400_000)]
    pub(crate) ttl_ms: Option<u64>,
    /// A client that sends no heartbeat for this long counts as gone; ten seconds if not given.
    #[serde(default)]
    #[schema(minimum = 500, maximum = 3_600_000)]
    pub(crate) heartbeat_ms: Option<u64>,
}

/// A hold that the daemon keeps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct HoldView {
    /// The id to use in `/v1/holds/{id}`.
    pub(crate) id: String,
    /// The locked name.
    pub(crate) name: String,
    /// The class of the hold.
    pub(crate) class: String,
    /// The holder's name.
    pub(crate) holder: String,
    /// Send it with every protected write; missing if the hold is local only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub(crate) fence: Option<Fence>,
    /// `proven`, `unproven` or `local_only`.
    pub(crate) standing: String,
    /// You may work for this long, counted from before you sent this request; send the next
    /// heartbeat well before.
    pub(crate) valid_ms: u64,
    /// No other client can be granted the name for this long, counted likewise; 0 if nothing is
    /// proven. Shorter than `valid_ms` only in a class that continues.
    pub(crate) proven_ms: u64,
    /// A client that sends no heartbeat for this long counts as gone.
    pub(crate) heartbeat_ms: u64,
    /// An operator asks you to release the hold; the text is the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) asked_to_release: Option<String>,
}

impl HoldView {
    /// How long the client may work, and for how much of that time no other client can be granted
    /// the name. The lease is kept that long, and may be released after.
    pub(super) fn with_times(self, valid: Duration, proven: Duration) -> Self {
        Self { valid_ms: millis(valid), proven_ms: millis(proven.min(valid)), ..self }
    }
}
