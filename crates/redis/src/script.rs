//! The five Lua scripts, sent by hash, and once in full if the server does not have them.
//!
//! A server's script cache is volatile: restart, fail-over and `SCRIPT FLUSH` empty it
//! (hazard R1). `NOSCRIPT` means *definitely not executed*, so sending the full text
//! then cannot run anything twice.

use std::sync::LazyLock;

use redis::{Cmd, Pipeline, Value};

use leasehold_core::store::StoreError;

use crate::connection::{CallDeadline, Connection, ConnectionSlot};
use crate::error;

/// Grants the lease, or returns its holder and queues the waiter.
static ACQUIRE_SCRIPT: LazyLock<redis::Script> =
    LazyLock::new(|| redis::Script::new(include_str!("script/acquire.lua")));
static RENEW_SCRIPT: LazyLock<redis::Script> =
    LazyLock::new(|| redis::Script::new(include_str!("script/renew.lua")));
/// Releases and hands over.
static RELEASE_SCRIPT: LazyLock<redis::Script> =
    LazyLock::new(|| redis::Script::new(include_str!("script/release.lua")));
static INSPECT_SCRIPT: LazyLock<redis::Script> =
    LazyLock::new(|| redis::Script::new(include_str!("script/inspect.lua")));
static DOCUMENTS_SCRIPT: LazyLock<redis::Script> =
    LazyLock::new(|| redis::Script::new(include_str!("script/documents.lua")));

/// One call of a script. Has no `Debug`, because its arguments contain tokens.
pub(crate) struct ScriptCall<'a> {
    script: &'static redis::Script,
    text: &'static str,
    keys: Vec<&'a str>,
    args: Vec<&'a str>,
}

impl<'a> ScriptCall<'a> {
    pub(crate) fn acquire(keys: Vec<&'a str>, args: Vec<&'a str>) -> Self {
        Self::new(&ACQUIRE_SCRIPT, include_str!("script/acquire.lua"), keys, args)
    }

    pub(crate) fn renew(keys: Vec<&'a str>, args: Vec<&'a str>) -> Self {
        Self::new(&RENEW_SCRIPT, include_str!("script/renew.lua"), keys, args)
    }

    pub(crate) fn release(keys: Vec<&'a str>, args: Vec<&'a str>) -> Self {
        Self::new(&RELEASE_SCRIPT, include_str!("script/release.lua"), keys, args)
    }

    pub(crate) fn inspect(keys: Vec<&'a str>) -> Self {
        Self::new(&INSPECT_SCRIPT, include_str!("script/inspect.lua"), keys, Vec::new())
    }

    pub(crate) fn documents(keys: Vec<&'a str>, args: Vec<&'a str>) -> Self {
        Self::new(&DOCUMENTS_SCRIPT, include_str!("script/documents.lua"), keys, args)
    }

    fn new(
        script: &'static redis::Script,
        text: &'static str,
        keys: Vec<&'a str>,
        args: Vec<&'a str>,
    ) -> Self {
        Self { script, text, keys, args }
    }

    fn hash_command(&self) -> Cmd {
        self.command("EVALSHA", self.script.get_hash())
    }

    fn full_text_command(&self) -> Cmd {
        self.command("EVAL", self.text)
    }

    fn command(&self, verb: &str, script: &str) -> Cmd {
        let parts = self.keys.iter().chain(&self.args);
        let bytes = parts.map(|part| part.len()).sum::<usize>() + script.len() + 16;
        let mut cmd = Cmd::with_capacity(self.keys.len() + self.args.len() + 3, bytes);
        cmd.arg(verb).arg(script).arg(self.keys.len());
        for part in self.keys.iter().chain(&self.args) {
            cmd.arg(*part);
        }
        cmd
    }

    /// Runs the call on this connection: one round trip, or two if the server
    /// does not have the script.
    pub(crate) async fn run(
        &self,
        slot: &ConnectionSlot,
        connection: &Connection,
        limit: &CallDeadline<'_>,
    ) -> Result<Value, StoreError> {
        let mut value = slot.send(connection, &self.hash_command(), limit).await?;
        if is_noscript(&value) {
            // EVAL also caches the script, so the next call by hash succeeds.
            value = slot.send(connection, &self.full_text_command(), limit).await?;
        }
        into_response(value)
    }
}

/// Runs many calls as one pipeline without a transaction: one response each, in order.
pub(crate) async fn run_batch(
    calls: &[ScriptCall<'_>],
    slot: &ConnectionSlot,
    connection: &Connection,
    limit: &CallDeadline<'_>,
) -> Result<Vec<Result<Value, StoreError>>, StoreError> {
    let mut values =
        send_commands(calls.iter().map(ScriptCall::hash_command), slot, connection, limit).await?;
    // The cache may be flushed between two commands of the pipeline, so each
    // response is checked (hazard R1).
    let lost: Vec<usize> = (0..values.len()).filter(|at| values.get(*at).is_some_and(is_noscript)).collect();
    if !lost.is_empty() {
        let again = lost.iter().filter_map(|at| calls.get(*at)).map(ScriptCall::full_text_command);
        match send_commands(again, slot, connection, limit).await {
            Ok(found) => {
                for (at, value) in lost.into_iter().zip(found) {
                    if let Some(value_slot) = values.get_mut(at) {
                        *value_slot = value;
                    }
                }
            }
            // Responses of the first round stay valid.
            Err(failure) => {
                return Ok(values
                    .into_iter()
                    .map(|value| {
                        if is_noscript(&value) {
                            Err(error::repeat_error(&failure))
                        } else {
                            into_response(value)
                        }
                    })
                    .collect());
            }
        }
    }
    Ok(values.into_iter().map(into_response).collect())
}

async fn send_commands(
    commands: impl Iterator<Item = Cmd>,
    slot: &ConnectionSlot,
    connection: &Connection,
    limit: &CallDeadline<'_>,
) -> Result<Vec<Value>, StoreError> {
    let mut pipe = Pipeline::new();
    for command in commands {
        pipe.add_command(command);
    }
    slot.send_batch(connection, &pipe, limit).await
}

fn is_noscript(value: &Value) -> bool {
    matches!(value, Value::ServerError(err) if err.code() == "NOSCRIPT")
}

fn into_response(value: Value) -> Result<Value, StoreError> {
    match value {
        Value::ServerError(err) => Err(error::from_server(&err)),
        other => Ok(other),
    }
}
