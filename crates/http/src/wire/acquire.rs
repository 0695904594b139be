use leasehold_core::Fence;
use leasehold_core::store::Mode;
use serde::{Deserialize, Serialize};

use super::Secret;

/// `POST /v1/locks/{name}/acquire`: one question to the store, or several if it is to wait.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Acquire {
    /// The client's own token, `holder|class|32 hex digits`: fresh for every acquire, the same for every repetition of
    /// one. Without it the daemon makes one and answers it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schema(
            min_length = 36,
            max_length = 256,
            pattern = "^[^|{}\\s]+\\|[a-z0-9][a-z0-9-]*\\|[0-9a-f]{32}$"
        )
    )]
    pub token: Option<Secret>,
    /// Chosen by the client in place of a token: asking again with the same id returns the same grant. Whoever knows
    /// it can get the grant, so choose one that nobody guesses.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, min_length = 1, max_length = 128))]
    pub id: Option<Secret>,
    /// Who holds, as others see it; the caller's identity if not given. Not beside a token.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 128))]
    pub holder: Option<String>,
    /// The risk class, from which the time to live comes; `scheduler` if not given. Not beside a token.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 64))]
    pub class: Option<String>,
    /// The lease's time to live, 100 ms to 24 h; the class's if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 100, maximum = 86_400_000))]
    pub ttl_ms: Option<u64>,
    /// How long the name stays shut beyond the TTL if nobody releases it; the class's if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(maximum = 86_400_000))]
    pub lock_delay_ms: Option<u64>,
    /// The highest fence the caller has seen: the new one is greater. At most a day ahead of the daemon's clock, unless the
    /// daemon has met it too.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, pattern = "^[1-9][0-9]{0,15}$"))]
    pub floor: Option<Fence>,
    /// Register as a waiter for so long if busy, and answer at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 600_000))]
    pub queue_ms: Option<u64>,
    /// Wait so long for a busy name before answering; not at all if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(maximum = 60_000))]
    pub wait_ms: Option<u64>,
    /// How long the store may take for one answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 60_000))]
    pub within_ms: Option<u64>,
    /// How the name is shared; exclusively if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<ModeWord>,
    /// How many may hold it at once, with the mode `permits`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 1))]
    pub permits: Option<u32>,
}

/// How a name is shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum ModeWord {
    /// One holder.
    Exclusive,
    /// Any number of holders, none of them exclusive.
    Shared,
    /// At most so many holders as `permits` says.
    Permits,
}

impl ModeWord {
    /// A mode as two fields; `None` if this version cannot say it.
    #[must_use]
    pub fn of(mode: Mode) -> Option<(Self, Option<u32>)> {
        match mode {
            Mode::Exclusive => Some((Self::Exclusive, None)),
            Mode::Shared => Some((Self::Shared, None)),
            Mode::Permits { of } => Some((Self::Permits, Some(of))),
            _ => None,
        }
    }
}

/// It is yours.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Granted {
    /// What is locked.
    pub name: String,
    /// Send it with every protected write.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub fence: Fence,
    /// Renew and release with it; present if the daemon made it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<Secret>,
    /// Who holds.
    pub holder: String,
    /// Under which class.
    pub class: String,
    /// Count so long from before you sent the request, and stop a little earlier.
    pub ttl_ms: u64,
    /// How long the store keeps it, lock delay included, if that is not what was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept_ms: Option<u64>,
}

/// `POST /v1/locks/{name}/wait`: until there is a hint for a waiting token.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Wait {
    /// The waiting token.
    #[cfg_attr(
        feature = "schema",
        schema(
            min_length = 36,
            max_length = 256,
            pattern = "^[^|{}\\s]+\\|[a-z0-9][a-z0-9-]*\\|[0-9a-f]{32}$"
        )
    )]
    pub token: Secret,
    /// At most so long.
    #[cfg_attr(feature = "schema", schema(maximum = 60_000))]
    pub wait_ms: u64,
}

/// The end of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Waited {
    /// A hint has come: ask again. It never says "you have it".
    pub woken: bool,
}
