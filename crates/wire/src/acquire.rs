use leasehold_core::Fence;
use serde::{Deserialize, Serialize};

use super::Secret;

/// The body of `POST /v1/locks/{name}/acquire`: one call to the store, or several with `wait_ms`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Acquire {
    /// The client's own token, `holder|class|32 hex digits`: fresh for every acquire, the same for
    /// every retry of one. Without it the daemon makes one and returns it.
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
    /// Chosen by the client in place of a token: a retry with the same id returns the same grant.
    /// Any client that knows the id can get the grant, so choose one that cannot be guessed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, min_length = 1, max_length = 128))]
    pub id: Option<Secret>,
    /// The holder's name as other clients see it; the caller's identity if not given. Not with a
    /// token.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 128))]
    pub holder: Option<String>,
    /// The risk class, which sets the time to live; `scheduler` if not given. Not with a token.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 64))]
    pub class: Option<String>,
    /// The lease's time to live, 100 ms to 24 h; the class's if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 100, maximum = 86_400_000))]
    pub ttl_ms: Option<u64>,
    /// How long the name stays locked beyond the TTL if it is not released; the class's if not
    /// given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(maximum = 86_400_000))]
    pub lock_delay_ms: Option<u64>,
    /// The highest fence the caller has seen: the new one is greater. At most a day ahead of the
    /// daemon's clock, unless the daemon has seen it too.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, pattern = "^[1-9][0-9]{0,15}$"))]
    pub floor: Option<Fence>,
    /// If busy, register as a waiter for this long, and answer at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 600_000))]
    pub queue_ms: Option<u64>,
    /// Wait this long for a busy name before answering; not at all if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(maximum = 60_000))]
    pub wait_ms: Option<u64>,
    /// How long one call to the store may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 60_000))]
    pub within_ms: Option<u64>,
    /// How the name is shared; exclusive if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<ModeWord>,
    /// How many holders may share the name, with the mode `permits`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 1))]
    pub permits: Option<u32>,
}

/// How the holders of a name share it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum ModeWord {
    /// One holder.
    Exclusive,
    /// Any number of holders, none of them exclusive.
    Shared,
    /// At most as many holders as `permits` says.
    Permits,
}

/// The lock was granted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = Granted))]
pub struct GrantView {
    /// The locked name.
    pub name: String,
    /// Send it with every protected write.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub fence: Fence,
    /// Renew and release with it; present if the daemon made it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<Secret>,
    /// The holder's name.
    pub holder: String,
    /// The class of the lease.
    pub class: String,
    /// The lease's time to live. Count it from before you sent the request, and stop a little
    /// earlier.
    pub ttl_ms: u64,
    /// How long the store keeps the lease, lock delay included, if not as requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept_ms: Option<u64>,
}

/// The body of `POST /v1/locks/{name}/wait`: wait for a hint for a waiting token.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Wait {
    /// The token that was registered as a waiter.
    #[cfg_attr(
        feature = "schema",
        schema(
            min_length = 36,
            max_length = 256,
            pattern = "^[^|{}\\s]+\\|[a-z0-9][a-z0-9-]*\\|[0-9a-f]{32}$"
        )
    )]
    pub token: Secret,
    /// The longest wait.
    #[cfg_attr(feature = "schema", schema(maximum = 60_000))]
    pub wait_ms: u64,
}

/// The outcome of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = Waited))]
pub struct WaitView {
    /// True if a hint came: try to acquire again. It never means that the lock was granted.
    pub woken: bool,
}
