//! Marks next to the data in Redis or Valkey, checked by the script that writes.
//!
//! The server runs one script at a time, so comparing the fence and writing the data are atomic.
//! [`RedisFence`] offers the common writes; [`FRAGMENT`] is the same check for scripts of your own.
//!
//! ```no_run
//! use leasehold_core::Fence;
//! use leasehold_fence::redis::{RedisFence, Write};
//! use std::time::Duration;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let connection = redis::Client::open("redis://127.0.0.1")?.get_multiplexed_async_connection().await?;
//! let target = RedisFence::new(connection);
//! let fence = Fence::new(7).unwrap();
//!
//! // One key that is its own resource.
//! target.set_fenced("report:42", "done", fence, None).await?.into_result()?;
//!
//! // Several keys under one lock share the lock's mark. (In a cluster they must share its hash slot as well.)
//! let writes = [Write::set("job:42:state", "done").expires(Duration::from_secs(3600)), Write::delete("job:42:lease")];
//! target.apply("job:42", fence, &writes).await?.into_result()?;
//! # Ok(())
//! # }
//! ```
//!
//! # Rules
//! - Marks live at [`mark_key`], in the hash slot of their resource, as decimal strings without a
//!   TTL. They must not be evicted: run the server with `maxmemory-policy noeviction` or a
//!   `volatile-*` one (hazard R11).
//! - A target that loses data (a flush, a fail-over to a lagging replica) loses marks with it. It
//!   admits an older fence until a newer one arrives. Where that matters, keep the data in a
//!   store that does not lose it.
//! - Several keys written under one lock need one mark, the lock's. With a mark per key, a stale
//!   holder could still write the keys that its successor has not touched yet.
//! - Switch off retries in the connection you pass. A fenced write sent twice is refused if a newer
//!   holder came in between, but it may undo a later write of the *same* holder.

mod error;
mod key;
mod script;
mod write;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::store::StoreError;
use leasehold_core::{Fence, Name};
use redis::aio::ConnectionLike;

use crate::{Marks, Verdict};

pub use key::mark_key;
pub use script::FRAGMENT;
pub use write::Write;

use error::{command_error, invalid_input_error};
use script::ApplyScript;

/// Fenced writes to Redis over your own connection.
///
/// `C` is cloned for every call: a multiplexed connection, a connection manager or a cluster connection.
#[derive(Clone)]
pub struct RedisFence<C> {
    connection: C,
    script: Arc<ApplyScript>,
}

impl<C> RedisFence<C>
where
    C: ConnectionLike + Clone + Send + Sync,
{
    /// Uses this connection. Its response timeout limits each call. A call that times out is a
    /// [`StoreError`] with `unknown` set, because the script may have run.
    pub fn new(connection: C) -> Self {
        Self { connection, script: Arc::new(ApplyScript::new()) }
    }

    /// Compares and remembers the fence, and writes nothing else. For a write outside Redis that
    /// is ordered by other means. A write *to* Redis belongs into
    /// [`set_fenced`](Self::set_fenced) or [`apply`](Self::apply).
    ///
    /// # Errors
    /// Redis did not respond, or the stored mark is not a fence.
    pub async fn admit(&self, resource: &str, fence: Fence) -> Result<Verdict, StoreError> {
        self.apply(resource, fence, &[]).await
    }

    /// Sets `key` if the fence is not older than the newest one that wrote
    /// *this key* through this type.
    ///
    /// # Errors
    /// As for [`apply`](Self::apply).
    pub async fn set_fenced(
        &self,
        key: &str,
        value: impl AsRef<[u8]> + Send,
        fence: Fence,
        expires: Option<Duration>,
    ) -> Result<Verdict, StoreError> {
        let write = Write { expires, ..Write::set(key, value) };
        self.apply(key, fence, &[write]).await
    }

    /// Does all `writes` if the fence is not older than the newest one admitted
    /// for `resource`; otherwise none.
    ///
    /// # Errors
    /// Invalid input and refusals of the server before the first write: nothing was written.
    /// Anything else, such as a timeout: `unknown` is set, and the writes may have been
    /// done. Repeating the call with the same fence is safe: it is either done again or
    /// refused because of a newer one.
    pub async fn apply(
        &self,
        resource: &str,
        fence: Fence,
        writes: &[Write<'_>],
    ) -> Result<Verdict, StoreError> {
        write::check_writes(writes).map_err(invalid_input_error)?;
        let mark = mark_key(resource).map_err(invalid_input_error)?;
        let mut connection = self.connection.clone();
        let reply = self.script.run(&mut connection, &mark, fence, writes).await;
        script::parse_reply(resource, fence, reply.map_err(command_error)?)
    }

    /// The newest fence admitted for `resource`, if any.
    ///
    /// # Errors
    /// Redis did not respond, or the stored mark is not a fence.
    pub async fn newest(&self, resource: &str) -> Result<Option<Fence>, StoreError> {
        let mark = mark_key(resource).map_err(invalid_input_error)?;
        let stored: Option<String> = redis::cmd("GET")
            .arg(&mark)
            .query_async(&mut self.connection.clone())
            .await
            .map_err(command_error)?;
        stored.map(|text| text.parse().map_err(|_| error::corrupt_error(resource, &text))).transpose()
    }

    /// Forgets a resource and returns whether it was known. Afterwards *any* fence is admitted for
    /// it again. Only use it for resources that are never written again.
    ///
    /// # Errors
    /// Redis did not respond; the mark may be gone all the same.
    pub async fn forget(&self, resource: &str) -> Result<bool, StoreError> {
        let mark = mark_key(resource).map_err(invalid_input_error)?;
        redis::cmd("DEL").arg(&mark).query_async(&mut self.connection.clone()).await.map_err(command_error)
    }
}

impl<C> Marks for RedisFence<C>
where
    C: ConnectionLike + Clone + Send + Sync + 'static,
{
    async fn admit(&self, name: &Name, fence: Fence) -> Result<Verdict, StoreError> {
        Self::admit(self, name.as_str(), fence).await
    }
}

impl<C> fmt::Debug for RedisFence<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The connection's own `Debug` may show its host and user.
        f.debug_struct("RedisFence").finish_non_exhaustive()
    }
}
