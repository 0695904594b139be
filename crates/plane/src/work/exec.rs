//! Commands: in a process group of their own, with the fence in their environment, dead before anyone else can start.
//!
//! The future that runs a command owns its process group: dropping it (the hold was lost, the job was cancelled) kills
//! the group. If the replica itself is stopped or killed, nobody drops anything; so a [`warden`] process
//! stands between replica and command, is told each new deadline, and ends the group when the deadline passes or the
//! replica is gone.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use leasehold_core::Hold;
use leasehold_core::clock::{BootClock, Clock, ClockExt};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{ChildStdin, Command};

use super::warden;
use crate::job::Job;

/// What is kept of a command's output.
const KEPT: usize = 16 * 1024;

/// How commands are run.
#[derive(Debug, Clone, Default)]
pub struct Exec {
    warden: Option<PathBuf>,
}

impl Exec {
    /// Puts a warden before each command: `program __warden …`, which must end in [`warden::main`].
    #[must_use]
    pub fn warden(program: impl Into<PathBuf>) -> Self {
        Self {
            warden: Some(program.into()),
        }
    }

    /// Runs the command to its end. Its output is the result; an exit code other than 0 is a failure.
    pub(crate) async fn run(
        &self,
        argv: &[String],
        hold: &Hold,
        job: &Job,
        resources: &Value,
    ) -> Result<Value, String> {
        let (program, args) = argv.split_first().ok_or("the job names no command")?;
        let mut command = match &self.warden {
            Some(warden) => {
                let mut command = Command::new(warden);
                command
                    .arg(warden::WORD)
                    .arg(deadline(hold).to_string())
                    .arg(program);
                command
            }
            None => Command::new(program),
        };
        command
            .args(args)
            .process_group(0)
            .stdin(if self.warden.is_some() {
                Stdio::piped()
            } else {
                Stdio::null()
            })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .env("LEASEHOLD_JOB", &job.id)
            .env("LEASEHOLD_ATTEMPT", job.attempt.to_string())
            .env("LEASEHOLD_NAME", hold.name().as_str())
            .env("LEASEHOLD_PAYLOAD", job.spec.payload.to_string())
            .env("LEASEHOLD_RESOURCES", resources.to_string())
            .env_remove("LEASEHOLD_FENCE");
        if let Ok(fence) = hold.fence() {
            command.env("LEASEHOLD_FENCE", fence.to_string());
        }
        let mut child = command
            .spawn()
            .map_err(|error| format!("{program} cannot be started: {error}"))?;
        let group = Group(child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?)));
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let work = async { tokio::join!(child.wait(), tail(stdout), tail(stderr)) };
        let ended = tokio::select! {
            ended = work => ended,
            never = tell(stdin, hold) => match never {},
        };
        let (status, out, err) = ended;
        let status = status.map_err(|error| format!("{program} cannot be waited for: {error}"))?;
        // What it left behind must not outlive its lease either.
        drop(group);
        if status.success() {
            return Ok(json!({"exit": 0, "output": out}));
        }
        let said = err.trim_end().lines().last().unwrap_or_default().to_owned();
        Err(format!("{status}: {said}"))
    }
}

/// When the hold ends if nobody renews it, on the boot clock.
fn deadline(hold: &Hold) -> u64 {
    // The clock first: so what is added up is never later than the true deadline.
    let now = BootClock.now();
    (now + hold.remaining()).as_nanos()
}

/// Tells the warden each new deadline. Never ends: it is dropped with the work.
async fn tell(stdin: Option<ChildStdin>, hold: &Hold) -> std::convert::Infallible {
    let Some(mut line) = stdin else {
        return std::future::pending().await;
    };
    loop {
        // A warden that is gone has taken the command with it; waiting for it says so.
        let _ = line.write_all(format!("{}\n", deadline(hold)).as_bytes()).await;
        let pause = (hold.remaining() / 8).clamp(Duration::from_millis(5), Duration::from_secs(1));
        BootClock.sleep(pause).await;
    }
}

/// The last of what it says.
async fn tail(from: Option<impl AsyncRead + Unpin>) -> String {
    let Some(mut from) = from else {
        return String::new();
    };
    let (mut kept, mut buffer) = (Vec::new(), vec![0; 8192]);
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        kept.extend_from_slice(buffer.get(..read).unwrap_or_default());
        if kept.len() > 2 * KEPT {
            kept.drain(..kept.len() - KEPT);
        }
    }
    let from = kept.len().saturating_sub(KEPT);
    String::from_utf8_lossy(kept.get(from..).unwrap_or_default()).into_owned()
}

/// A command's process group. Dropping it kills everyone in it.
#[derive(Debug)]
struct Group(Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // Who is gone already has got what was wanted.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}
