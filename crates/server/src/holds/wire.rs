//! What the routes of daemon-kept holds read and write.

use leasehold::Fence;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `POST /v1/holds`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct HoldAsk {
    /// What to lock.
    #[schema(
        min_length = 1,
        max_length = 512,
        pattern = "^[^\\s{}\\x00-\\x1f\\x7f-\\x9f]+$"
    )]
    pub(crate) name: String,
    /// Chosen by the client: asking again with the same id returns the same hold, also after a restart of the daemon.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9._-]+$")]
    pub(crate) id: Option<String>,
    /// The risk class; `scheduler` if not given.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 64)]
    pub(crate) class: Option<String>,
    /// Who holds, as others see it; the caller's identity if not given.
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
    /// A client that is not heard of for so long is gone; ten seconds if not given.
    #[serde(default)]
    #[schema(minimum = 500, maximum = 3_600_000)]
    pub(crate) heartbeat_ms: Option<u64>,
}

/// A hold that the daemon keeps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct HoldView {
    /// Its id.
    pub(crate) id: String,
    /// What is locked.
    pub(crate) name: String,
    /// Under which class.
    pub(crate) class: String,
    /// Who holds.
    pub(crate) holder: String,
    /// Send it with every protected write; missing if the hold is local only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub(crate) fence: Option<Fence>,
    /// `proven`, `unproven` or `local_only`.
    pub(crate) standing: String,
    /// You may go on for so long, counted from before you sent this request; send the next heartbeat well before.
    pub(crate) valid_ms: u64,
    /// Nobody else can be granted it for so long, counted likewise; 0 if nothing is proven. Shorter than `valid_ms` only in a
    /// class that continues.
    pub(crate) proven_ms: u64,
    /// A client that is not heard of for so long is gone.
    pub(crate) heartbeat_ms: u64,
    /// Someone asks you to let go, and says why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) asked_to_release: Option<String>,
}
