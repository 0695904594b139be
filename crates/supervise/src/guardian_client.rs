//! Leasehold's end of the guardian's pipes: start it, send deadlines, detect its death, dismiss it.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::clock::{BootClock, Clock, Moment, run_until};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Pid;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::error::SuperviseError;
use crate::helper_process::{GUARDIAN_ROLE, HELPER_ARGUMENT};
use crate::process_tree::ProcessTree;

// The guardian only answers commands, so only an overloaded machine takes longer.
const GUARDIAN_REPLY_TIMEOUT: Duration = Duration::from_secs(10);
// The command has ended by then, so the guardian has nothing else to do.
const GUARDIAN_EXIT_TIMEOUT: Duration = Duration::from_secs(5);

/// A running guardian.
#[derive(Debug)]
pub(crate) struct GuardianClient {
    child: Child,
    replies: Lines<BufReader<ChildStdout>>,
    pipe: GuardianPipe,
}

/// The guardian's last reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GuardianReport {
    Quiet,
    Acted,
    /// It died or does not answer, so it is unknown whether it acted.
    Gone,
}

/// The arguments of a guardian and of its replacement.
#[derive(Debug, Clone)]
pub(crate) struct GuardianSpec {
    /// The binary that provides the guardian.
    pub(crate) program: PathBuf,
    /// Every descendant of this process belongs to the command.
    pub(crate) sole: bool,
    pub(crate) grace: Duration,
    /// Identifies this run's processes.
    pub(crate) run_id: String,
    /// The lock's name, for the guardian's message.
    pub(crate) name: String,
}

impl GuardianClient {
    /// Starts a guardian. It is ready when it has confirmed its first order.
    pub(crate) fn start(spec: &GuardianSpec) -> Result<Self, SuperviseError> {
        Self::spawn(spec).map_err(SuperviseError::GuardianStart)
    }

    fn spawn(spec: &GuardianSpec) -> std::io::Result<Self> {
        let (orders, to) = pipe_with(PipeFlags::CLOEXEC)?;
        // Never block on the guardian: it may be stopped, and renewals must go on.
        fcntl_setfl(&to, OFlags::NONBLOCK)?;
        let root = if spec.sole { std::process::id() } else { 0 };
        let mut child = Command::new(&spec.program)
            .arg0("leasehold-guardian")
            .args([HELPER_ARGUMENT, GUARDIAN_ROLE])
            .arg(root.to_string())
            .arg(spec.grace.as_nanos().to_string())
            .args([&spec.run_id, &spec.name])
            .stdin(Stdio::from(orders))
            .stdout(Stdio::piped())
            .spawn()?;
        let replies = child.stdout.take().ok_or(std::io::ErrorKind::BrokenPipe)?;
        Ok(Self {
            child,
            replies: BufReader::new(replies).lines(),
            pipe: GuardianPipe(Arc::new(Mutex::new(to))),
        })
    }

    pub(crate) fn pid(&self) -> Option<Pid> {
        Pid::from_raw(self.child.id()?.try_into().ok()?)
    }

    /// The pipe for orders.
    pub(crate) fn pipe(&self) -> &GuardianPipe {
        &self.pipe
    }

    /// Makes the guardian watch this group. Returns after it has confirmed, in a session of its own.
    pub(crate) async fn watch_group(&mut self, tree: &ProcessTree) -> Result<(), SuperviseError> {
        let start = tree.leader_start.map_or_else(String::new, |start| format!(" {start}"));
        self.pipe.send(&format!("group {}{start}\n", tree.group.as_raw_nonzero()));
        let limit = BootClock.now() + GUARDIAN_REPLY_TIMEOUT;
        match run_until(&BootClock, limit, self.next_reply()).await {
            Some(Some(reply)) if reply == "set" => Ok(()),
            Some(_) => Err(SuperviseError::GuardianDied),
            None => Err(SuperviseError::GuardianSilent),
        }
    }

    /// The next reply; `None` after the guardian has died.
    pub(crate) async fn next_reply(&mut self) -> Option<String> {
        self.replies.next_line().await.ok().flatten()
    }

    /// Replaces a dead guardian. Clones of its [`GuardianPipe`] write to the new one.
    pub(crate) async fn restart(
        &mut self,
        spec: &GuardianSpec,
        tree: &ProcessTree,
    ) -> Result<(), SuperviseError> {
        let _ = self.child.try_wait();
        let mut new = Self::start(spec)?;
        new.watch_group(tree).await?;
        // Swap the descriptor inside the shared pipe, so that existing clones reach the new guardian.
        std::mem::swap(&mut *self.pipe.lock(), &mut *new.pipe.lock());
        new.pipe = self.pipe.clone();
        *self = new;
        Ok(())
    }

    /// Ends the guardian and returns whether it had to act.
    pub(crate) async fn dismiss(mut self) -> GuardianReport {
        self.pipe.send("done\n");
        let last = run_until(&BootClock, BootClock.now() + GUARDIAN_EXIT_TIMEOUT, async {
            let mut last = GuardianReport::Gone;
            while let Some(word) = self.next_reply().await {
                match word.as_str() {
                    "quiet" => last = GuardianReport::Quiet,
                    "acted" => last = GuardianReport::Acted,
                    _ => {}
                }
            }
            last
        })
        .await;
        if last.is_none() {
            // The guardian is stopped. Its command is gone, so nothing is left for it to do.
            let _ = self.child.start_kill();
        }
        let _ = self.child.wait().await;
        last.unwrap_or(GuardianReport::Gone)
    }
}

/// The pipe to the guardian. Writes never block: a guardian that does not read keeps its last deadline.
#[derive(Debug, Clone)]
pub(crate) struct GuardianPipe(Arc<Mutex<OwnedFd>>);

impl GuardianPipe {
    /// Sends the deadline. No process of the command may be alive `grace` after it.
    pub(crate) fn send_deadline(&self, stop_at: Moment, grace: Duration) {
        if stop_at == Moment::FAR {
            return self.send("open\n");
        }
        let kill_at = stop_at + grace;
        self.send(&format!("until {} {}\n", stop_at.as_nanos(), kill_at.as_nanos()));
    }

    /// Leaves the end of the command to the guardian.
    pub(crate) fn send_stop(&self) {
        self.send("stop\n");
    }

    fn send(&self, order: &str) {
        // Writes below PIPE_BUF are atomic. The guardian's death shows on the other pipe.
        let _ = rustix::io::write(&*self.lock(), order.as_bytes());
    }

    fn lock(&self) -> MutexGuard<'_, OwnedFd> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
