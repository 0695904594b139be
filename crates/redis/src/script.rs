//! The four scripts, sent by hash and, when the server has forgotten them, once whole.
//!
//! A server's script cache is volatile: restart, fail-over and `SCRIPT FLUSH` empty it (hazard R1). `NOSCRIPT`
//! means *definitely not executed*, so sending the whole text then cannot run anything twice.

use std::sync::LazyLock;

use redis::{Cmd, Pipeline, Value};

use leasehold_core::store::Failure;

use crate::connection::{Limit, Line, Wire};
use crate::error;

/// Grants, or says who has it and takes a place in the queue.
static ACQUIRE: LazyLock<redis::Script> =
    LazyLock::new(|| redis::Script::new(include_str!("script/acquire.lua")));
/// Extends one lease.
static RENEW: LazyLock<redis::Script> =
    LazyLock::new(|| redis::Script::new(include_str!("script/renew.lua")));
/// Gives back and hands over.
static RELEASE: LazyLock<redis::Script> =
    LazyLock::new(|| redis::Script::new(include_str!("script/release.lua")));
/// Looks at one lock.
static INSPECT: LazyLock<redis::Script> =
    LazyLock::new(|| redis::Script::new(include_str!("script/inspect.lua")));

/// One call of a script. Has no `Debug`: its arguments contain tokens.
pub(crate) struct Call<'a> {
    script: &'static redis::Script,
    text: &'static str,
    keys: Vec<&'a str>,
    args: Vec<&'a str>,
}

impl<'a> Call<'a> {
    pub(crate) fn acquire(keys: Vec<&'a str>, args: Vec<&'a str>) -> Self {
        Self::new(&ACQUIRE, include_str!("script/acquire.lua"), keys, args)
    }

    pub(crate) fn renew(keys: Vec<&'a str>, args: Vec<&'a str>) -> Self {
        Self::new(&RENEW, include_str!("script/renew.lua"), keys, args)
    }

    pub(crate) fn release(keys: Vec<&'a str>, args: Vec<&'a str>) -> Self {
        Self::new(&RELEASE, include_str!("script/release.lua"), keys, args)
    }

    pub(crate) fn inspect(keys: Vec<&'a str>) -> Self {
        Self::new(&INSPECT, include_str!("script/inspect.lua"), keys, Vec::new())
    }

    fn new(
        script: &'static redis::Script,
        text: &'static str,
        keys: Vec<&'a str>,
        args: Vec<&'a str>,
    ) -> Self {
        Self {
            script,
            text,
            keys,
            args,
        }
    }

    fn by_hash(&self) -> Cmd {
        self.command("EVALSHA", self.script.get_hash())
    }

    fn whole(&self) -> Cmd {
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

    /// Runs it on this wire: one round trip, or two if the server has forgotten the script.
    pub(crate) async fn run(&self, line: &Line, wire: &Wire, limit: &Limit<'_>) -> Result<Value, Failure> {
        let mut value = line.send(wire, &self.by_hash(), limit).await?;
        if forgotten(&value) {
            value = line.send(wire, &self.whole(), limit).await?;
        }
        answered(value)
    }
}

/// Runs many calls as one batch without a transaction: one answer each, in order. Those the server had forgotten
/// are sent again whole, by themselves (hazard R1 holds for each command of a batch separately).
pub(crate) async fn run_all(
    calls: &[Call<'_>],
    line: &Line,
    wire: &Wire,
    limit: &Limit<'_>,
) -> Result<Vec<Result<Value, Failure>>, Failure> {
    let mut values = send_all(calls.iter().map(Call::by_hash), line, wire, limit).await?;
    let lost: Vec<usize> = (0..values.len())
        .filter(|at| values.get(*at).is_some_and(forgotten))
        .collect();
    if !lost.is_empty() {
        let again = lost.iter().filter_map(|at| calls.get(*at)).map(Call::whole);
        match send_all(again, line, wire, limit).await {
            Ok(found) => {
                for (at, value) in lost.into_iter().zip(found) {
                    if let Some(slot) = values.get_mut(at) {
                        *slot = value;
                    }
                }
            }
            // What was answered in the first round stays answered.
            Err(failure) => {
                return Ok(values
                    .into_iter()
                    .map(|value| {
                        if forgotten(&value) {
                            Err(error::again(&failure))
                        } else {
                            answered(value)
                        }
                    })
                    .collect());
            }
        }
    }
    Ok(values.into_iter().map(answered).collect())
}

async fn send_all(
    commands: impl Iterator<Item = Cmd>,
    line: &Line,
    wire: &Wire,
    limit: &Limit<'_>,
) -> Result<Vec<Value>, Failure> {
    let mut pipe = Pipeline::new();
    for command in commands {
        pipe.add_command(command);
    }
    line.send_batch(wire, &pipe, limit).await
}

fn forgotten(value: &Value) -> bool {
    matches!(value, Value::ServerError(err) if err.code() == "NOSCRIPT")
}

fn answered(value: Value) -> Result<Value, Failure> {
    match value {
        Value::ServerError(err) => Err(error::from_server(&err)),
        other => Ok(other),
    }
}
