//! Runs Lua scripts of other crates, with the same connection handling and
//! error table as the store.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::store::StoreError;
use redis::{Cmd, Value};

use crate::connection::{CallDeadline, ConnectionSlot, Connector};
use crate::error;
use crate::options::RedisOptions;

/// A script. It is sent by hash, and once in full if the server does not have it.
pub struct LuaScript {
    text: String,
    script: redis::Script,
}

impl LuaScript {
    /// Creates a script with this text.
    #[must_use]
    pub fn new(text: String) -> Self {
        let script = redis::Script::new(&text);
        Self { text, script }
    }
}

impl fmt::Debug for LuaScript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LuaScript").field(&self.script.get_hash()).finish()
    }
}

/// One connection for scripts, opened on first use and replaced when broken. It never repeats a
/// request: one without a response is *unknown*.
pub struct ScriptClient {
    connector: Arc<Connector>,
    connection_slot: ConnectionSlot,
}

impl ScriptClient {
    /// Creates the client without connecting.
    ///
    /// # Errors
    /// A file that the options name cannot be used.
    pub fn open(options: RedisOptions) -> Result<Self, StoreError> {
        // Read both files now, so that a bad one is reported at start and not by the first request.
        options.password()?;
        options.ca_certificates()?;
        let connector = Arc::new(Connector { options });
        Ok(Self { connection_slot: ConnectionSlot::new(&connector, "script"), connector })
    }

    /// The server's URL without secrets.
    #[must_use]
    pub fn describe(&self) -> String {
        self.connector.options.describe()
    }

    /// Runs a script. `NOSCRIPT` means *definitely not executed*, so sending the full
    /// text then runs nothing twice.
    ///
    /// # Errors
    /// No response, or an error of the server. The error tells whether the script may have run.
    pub async fn run(
        &self,
        script: &LuaScript,
        keys: &[&str],
        args: &[&str],
        within: Duration,
    ) -> Result<Value, StoreError> {
        let limit = CallDeadline::new(&*self.connector.options.clock, within);
        let connection = self.connection_slot.get_or_connect(&limit).await?;
        let command = |verb: &str, text: &str| {
            let mut command = Cmd::new();
            command.arg(verb).arg(text).arg(keys.len());
            for part in keys.iter().chain(args) {
                command.arg(*part);
            }
            command
        };
        let by_hash = command("EVALSHA", script.script.get_hash());
        let mut value = self.connection_slot.send(&connection, &by_hash, &limit).await?;
        if matches!(&value, Value::ServerError(err) if err.code() == "NOSCRIPT") {
            value = self.connection_slot.send(&connection, &command("EVAL", &script.text), &limit).await?;
        }
        match value {
            Value::ServerError(err) => Err(error::from_server(&err)),
            other => Ok(other),
        }
    }
}

impl fmt::Debug for ScriptClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScriptClient").field("connection_slot", &self.connection_slot).finish()
    }
}
