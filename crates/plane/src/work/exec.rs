//! Commands: each in its own process group, with the fence in its environment, dead before the lease ends.
//!
//! The supervisor of `leasehold run` runs them: TERM, grace, KILL for the command and all its descendants,
//! and a guardian process for the case that this replica is stopped or killed.

use std::path::PathBuf;
use std::time::Duration;

use leasehold_core::Hold;
use leasehold_supervise::{CommandEnd, CommandSpec, HeldCommand, Prepared, Streams};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio_util::sync::CancellationToken;

use crate::job::Job;
use crate::scheduler::ResourceHolds;

/// Only the end of a command's output is kept: the result is stored in the job's document.
const MAX_OUTPUT_BYTES: usize = 16 * 1024;

/// Runs the commands of `exec` jobs.
#[derive(Debug, Clone, Default)]
pub struct CommandExecutor {
    helper: Option<PathBuf>,
}

impl CommandExecutor {
    /// Gives each command a guardian process. For [`leasehold_supervise::HELPER_ARGUMENT`] the program must
    /// call [`leasehold_supervise::helper_main`].
    #[must_use]
    pub fn with_guardian(program: impl Into<PathBuf>) -> Self {
        Self { helper: Some(program.into()) }
    }

    /// Runs the command to its end, or until `stop` is cancelled. It returns when no process of the command
    /// is left. The output is the result; a non-zero exit code is a failure.
    pub(crate) async fn run(
        &self,
        argv: &[String],
        hold: &Hold,
        resources: &ResourceHolds,
        job: &Job,
        grace: Duration,
        stop: &CancellationToken,
    ) -> Result<Value, String> {
        let program = argv.first().ok_or("the job names no command")?;
        let spec = CommandSpec {
            argv: argv.iter().map(Into::into).collect(),
            environment: vec![
                ("LEASEHOLD_JOB", (&job.id).into()),
                ("LEASEHOLD_ATTEMPT", job.attempt.to_string().into()),
                ("LEASEHOLD_PAYLOAD", job.spec.payload.to_string().into()),
                ("LEASEHOLD_RESOURCES", resources.fences().to_string().into()),
            ],
            streams: Streams::Captured,
            grace,
            helper: self.helper.clone(),
            sole: false,
        };
        let cannot_start = |error| format!("{program} cannot be started: {error}");
        let held = match HeldCommand::prepare(&spec, hold, resources.holds()).await.map_err(cannot_start)? {
            Prepared::Held(held) => held,
            Prepared::Late(end) => return Err(describe_end(&end)),
        };
        let (supervised, mut controls) = held.start();
        let (stdout, stderr) = (controls.stdout.take(), controls.stderr.take());
        let mut work =
            std::pin::pin!(async { tokio::join!(supervised.wait(), read_tail(stdout), read_tail(stderr)) });
        let (ended, out, err) = loop {
            tokio::select! {
                ended = &mut work => break ended,
                () = stop.cancelled() => {
                    controls.stop();
                    break work.await;
                }
                notice = controls.next_notice() => tracing::warn!(job = %job.id, "{notice}"),
            }
        };
        match ended.map_err(|error| format!("{program}: {error}"))? {
            CommandEnd::ByItself(status) if status.success() => Ok(json!({"exit": 0, "output": out})),
            CommandEnd::ByItself(status) => {
                let message = err.trim_end().lines().last().unwrap_or_default();
                Err(format!("{status}: {message}"))
            }
            stopped => Err(describe_end(&stopped)),
        }
    }
}

fn describe_end(end: &CommandEnd) -> String {
    match end {
        CommandEnd::ByItself(status) => status.to_string(),
        CommandEnd::Stopped { reason, description } => format!("{reason}: the command {description}"),
    }
}

/// Reads a stream to its end and returns the last part of it.
async fn read_tail(from: Option<impl AsyncRead + Unpin>) -> String {
    let Some(mut from) = from else {
        return String::new();
    };
    let (mut kept, mut buffer) = (Vec::new(), vec![0; 8192]);
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        kept.extend_from_slice(buffer.get(..read).unwrap_or_default());
        // Trimmed at twice the limit, so a chatty command does not move the buffer on every read.
        if kept.len() > 2 * MAX_OUTPUT_BYTES {
            kept.drain(..kept.len() - MAX_OUTPUT_BYTES);
        }
    }
    let from = kept.len().saturating_sub(MAX_OUTPUT_BYTES);
    String::from_utf8_lossy(kept.get(from..).unwrap_or_default()).into_owned()
}
