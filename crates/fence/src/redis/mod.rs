//! Marks next to the data in Redis or Valkey, checked by the script that writes.
//!
//! A script runs alone on the server, so comparing the fence and writing the data are one step. [`RedisFence`] has
//! the common writes ready; [`FRAGMENT`] is the same check for scripts of your own.
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
//! - Marks live at [`mark_key`], in the hash slot of their resource, as decimal strings without a TTL. They must not
//!   be evicted: run the server with `maxmemory-policy noeviction` or a `volatile-*` one (hazard R11).
//! - A target that loses data (a flush, a fail-over to a lagging replica) loses marks with it, and admits an older
//!   fence until a newer one has come. Where that matters, keep the data in a store that does not lose it.
//! - Several keys written under one lock need one mark, the lock's: with a mark per key, a stale holder could still
//!   write the keys that its successor has not touched yet.
//! - Switch off retries in the connection you pass. A fenced write sent twice is refused if a newer holder came in
//!   between, but it may undo a later write of the *same* holder.

mod failure;
mod key;
mod script;
mod write;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::store::Failure;
use leasehold_core::{Fence, Name};
use redis::aio::ConnectionLike;

use crate::{Marks, Verdict};

pub use key::mark_key;
pub use script::FRAGMENT;
pub use write::Write;

use failure::{invalid, of_error};
use script::Apply;

/// Fenced writes to Redis over a connection of yours.
///
/// `C` is cloned for every call: a multiplexed connection, a connection manager or a cluster connection.
#[derive(Clone)]
pub struct RedisFence<C> {
    connection: C,
    script: Arc<Apply>,
}

impl<C> RedisFence<C>
where
    C: ConnectionLike + Clone + Send + Sync,
{
    /// Over this connection. Its response time-out bounds each call; a call that runs into it is a
    /// [`Failure`] with `unknown` set, because the script may have run.
    pub fn new(connection: C) -> Self {
        Self {
            connection,
            script: Arc::new(Apply::new()),
        }
    }

    /// Compares and remembers, without writing anything else. For a write outside Redis that can be ordered by
    /// other means; a write *to* Redis belongs into [`set_fenced`](Self::set_fenced) or [`apply`](Self::apply).
    ///
    /// # Errors
    /// Redis did not answer, or what is stored at the mark is no fence.
    pub async fn admit(&self, resource: &str, fence: Fence) -> Result<Verdict, Failure> {
        self.apply(resource, fence, &[]).await
    }

    /// Sets `key` if the fence is not older than the newest one that wrote *this key* through here.
    ///
    /// # Errors
    /// As for [`apply`](Self::apply).
    pub async fn set_fenced(
        &self,
        key: &str,
        value: impl AsRef<[u8]> + Send,
        fence: Fence,
        expires: Option<Duration>,
    ) -> Result<Verdict, Failure> {
        let write = Write {
            expires,
            ..Write::set(key, value)
        };
        self.apply(key, fence, &[write]).await
    }

    /// Does all `writes` if the fence is not older than the newest one admitted for `resource`, and none otherwise.
    ///
    /// # Errors
    /// Bad input and refusals of the server that come before the first write: nothing was written. Anything else,
    /// such as a time-out: `unknown` is set, and the writes may have been done. Asking again with the same
    /// fence is safe: it is either done again or refused by a newer one.
    pub async fn apply(
        &self,
        resource: &str,
        fence: Fence,
        writes: &[Write<'_>],
    ) -> Result<Verdict, Failure> {
        write::check(writes).map_err(invalid)?;
        let mark = mark_key(resource).map_err(invalid)?;
        let mut connection = self.connection.clone();
        let reply = self.script.run(&mut connection, &mark, fence, writes).await;
        script::judge(resource, fence, reply.map_err(of_error)?)
    }

    /// The newest fence admitted for `resource`, if any.
    ///
    /// # Errors
    /// Redis did not answer, or what is stored at the mark is no fence.
    pub async fn newest(&self, resource: &str) -> Result<Option<Fence>, Failure> {
        let mark = mark_key(resource).map_err(invalid)?;
        let stored: Option<String> = redis::cmd("GET")
            .arg(&mark)
            .query_async(&mut self.connection.clone())
            .await
            .map_err(of_error)?;
        stored
            .map(|text| text.parse().map_err(|_| failure::corrupt(resource, &text)))
            .transpose()
    }

    /// Forgets a resource and says whether it was known. From then on *any* fence is admitted for it again: only
    /// for resources that nobody will write any more.
    ///
    /// # Errors
    /// Redis did not answer; the mark may be gone all the same.
    pub async fn forget(&self, resource: &str) -> Result<bool, Failure> {
        let mark = mark_key(resource).map_err(invalid)?;
        redis::cmd("DEL")
            .arg(&mark)
            .query_async(&mut self.connection.clone())
            .await
            .map_err(of_error)
    }
}

impl<C> Marks for RedisFence<C>
where
    C: ConnectionLike + Clone + Send + Sync + 'static,
{
    async fn admit(&self, name: &Name, fence: Fence) -> Result<Verdict, Failure> {
        Self::admit(self, name.as_str(), fence).await
    }
}

impl<C> fmt::Debug for RedisFence<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The connection's own `Debug` may show where and as whom it is connected.
        f.debug_struct("RedisFence").finish_non_exhaustive()
    }
}
