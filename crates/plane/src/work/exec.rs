//! Commands: each in its own process group, with the fence in its environment, dead before the lease ends.
//!
//! The supervisor of `leasehold run` runs them: TERM, grace, KILL for the command and all its descendants,
//! and a guardian process for the case that this replica is stopped or killed.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use leasehold_core::Hold;
use leasehold_core::clock::{BootClock, Clock, run_until};
use leasehold_supervise::{CommandEnd, CommandSpec, HeldCommand, PrepareOutcome, Streams};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio_util::sync::CancellationToken;

use super::command_input::{CommandInput, inherited_variables};
use crate::job::Job;
use crate::scheduler::ResourceHolds;

/// Only the end of a command's output is kept: the result is stored in the job's document.
const MAX_OUTPUT_BYTES: usize = 16 * 1024;

/// How long the output is still read after the command has ended. A process that left the command's tree
/// may keep the pipes open for ever.
const OUTPUT_READ_TIMEOUT: Duration = Duration::from_millis(500);

/// Runs the commands of `exec` jobs.
#[derive(Debug, Clone, Default)]
pub struct CommandExecutor {
    helper: Option<PathBuf>,
    pass_env: Vec<OsString>,
}

impl CommandExecutor {
    /// Gives each command a guardian process. For [`leasehold_supervise::HELPER_ARGUMENT`] the program must
    /// call [`leasehold_supervise::helper_main`].
    #[must_use]
    pub fn with_guardian(program: impl Into<PathBuf>) -> Self {
        Self { helper: Some(program.into()), pass_env: Vec::new() }
    }

    /// Passes further environment variables of this process to the commands, besides the usual ones such as
    /// `PATH` and `HOME`.
    #[must_use]
    pub fn pass_env(mut self, names: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.pass_env.extend(names.into_iter().map(Into::into));
        self
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
        let mut environment = vec![
            ("LEASEHOLD_JOB", OsString::from(&job.id)),
            ("LEASEHOLD_ATTEMPT", job.attempt.to_string().into()),
        ];
        // Kept until the command has ended.
        let _input = CommandInput::prepare(job, &resources.fences(), &mut environment)?;
        let mut spec = CommandSpec::new(argv.iter().map(Into::into).collect(), grace);
        spec.environment = environment;
        spec.inherited = Some(inherited_variables(&self.pass_env));
        spec.streams = Streams::Captured;
        spec.helper.clone_from(&self.helper);
        let cannot_start = |error| format!("{program} cannot be started: {error}");
        let held = match HeldCommand::prepare(&spec, hold, resources.holds()).await.map_err(cannot_start)? {
            PrepareOutcome::Held(held) => held,
            PrepareOutcome::Late(end) => return Err(describe_end(&end)),
        };
        let (supervised, mut controls) = held.start();
        let (stdout, stderr) = (controls.stdout.take(), controls.stderr.take());
        let (mut out, mut err) = (OutputTail::new(stdout), OutputTail::new(stderr));
        let ended = {
            let mut reads = std::pin::pin!(async { tokio::join!(out.read_to_end(), err.read_to_end()) });
            let mut reading = true;
            let mut wait = std::pin::pin!(supervised.wait());
            let mut stopping = false;
            let ended = loop {
                tokio::select! {
                    ended = &mut wait => break ended,
                    _ = &mut reads, if reading => reading = false,
                    () = stop.cancelled(), if !stopping => {
                        stopping = true;
                        controls.stop();
                    }
                    notice = controls.next_notice() => tracing::warn!(job = %job.id, "{notice}"),
                }
            };
            if reading {
                let _ = run_until(&BootClock, BootClock.now() + OUTPUT_READ_TIMEOUT, reads).await;
            }
            ended
        };
        let (out, err) = (out.into_text(), err.into_text());
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

/// The last part of a stream, kept also if reading is given up before the end.
struct OutputTail<R> {
    from: Option<R>,
    kept: Vec<u8>,
}

impl<R: AsyncRead + Unpin> OutputTail<R> {
    fn new(from: Option<R>) -> Self {
        Self { from, kept: Vec::new() }
    }

    async fn read_to_end(&mut self) {
        let Some(from) = &mut self.from else { return };
        let mut buffer = vec![0; 8192];
        while let Ok(read @ 1..) = from.read(&mut buffer).await {
            self.kept.extend_from_slice(buffer.get(..read).unwrap_or_default());
            // Trimmed at twice the limit, so a chatty command does not move the buffer on every read.
            if self.kept.len() > 2 * MAX_OUTPUT_BYTES {
                self.kept.drain(..self.kept.len() - MAX_OUTPUT_BYTES);
            }
        }
    }

    fn into_text(self) -> String {
        let from = self.kept.len().saturating_sub(MAX_OUTPUT_BYTES);
        String::from_utf8_lossy(self.kept.get(from..).unwrap_or_default()).into_owned()
    }
}
