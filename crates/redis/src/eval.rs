//! A line to the server for scripts of other crates: the same connection, the same table of what errors mean.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::store::Failure;
use redis::{Cmd, Value};

use crate::connection::{Dialer, Limit, Line};
use crate::error;
use crate::options::RedisOptions;

/// A script, sent by hash and, when the server has forgotten it, once whole.
pub struct Lua {
    text: String,
    script: redis::Script,
}

impl Lua {
    /// A script with this text.
    #[must_use]
    pub fn new(text: String) -> Self {
        let script = redis::Script::new(&text);
        Self { text, script }
    }
}

impl fmt::Debug for Lua {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lua").field(&self.script.get_hash()).finish()
    }
}

/// One connection for scripts, made when first needed and replaced when broken. It never sends anything twice by
/// itself: what was not answered is *unknown*.
pub struct Scripting {
    dialer: Arc<Dialer>,
    line: Line,
}

impl Scripting {
    /// Makes it. Connects to nothing yet.
    ///
    /// # Errors
    /// A file that the options name cannot be used.
    pub fn open(options: RedisOptions) -> Result<Self, Failure> {
        options.password()?;
        options.authorities()?;
        let dialer = Arc::new(Dialer { options });
        Ok(Self {
            line: Line::new(&dialer, "script"),
            dialer,
        })
    }

    /// Where it leads, without anything secret.
    #[must_use]
    pub fn describe(&self) -> String {
        self.dialer.options.describe()
    }

    /// Runs a script. `NOSCRIPT` means *definitely not executed*, so sending the whole text then runs nothing twice.
    ///
    /// # Errors
    /// No answer, or an error of the server; the failure says whether it may have happened.
    pub async fn run(
        &self,
        script: &Lua,
        keys: &[&str],
        args: &[&str],
        within: Duration,
    ) -> Result<Value, Failure> {
        let limit = Limit::new(&*self.dialer.options.clock, within);
        let wire = self.line.wire(&limit).await?;
        let command = |verb: &str, text: &str| {
            let mut command = Cmd::new();
            command.arg(verb).arg(text).arg(keys.len());
            for part in keys.iter().chain(args) {
                command.arg(*part);
            }
            command
        };
        let by_hash = command("EVALSHA", script.script.get_hash());
        let mut value = self.line.send(&wire, &by_hash, &limit).await?;
        if matches!(&value, Value::ServerError(err) if err.code() == "NOSCRIPT") {
            value = self
                .line
                .send(&wire, &command("EVAL", &script.text), &limit)
                .await?;
        }
        match value {
            Value::ServerError(err) => Err(error::from_server(&err)),
            other => Ok(other),
        }
    }
}

impl fmt::Debug for Scripting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scripting").field("line", &self.line).finish()
    }
}
