//! Leasehold's side of the guardian (see `guardian`): start it, tell it each deadline, notice its death, dismiss it.

use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context;
use leasehold::Hold;
use leasehold::clock::{BootClock, Clock, Moment, until};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Pid;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::guardian::WORD;

/// How long a guardian may take to answer. It does nothing but answer, so only a machine in trouble takes longer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a dismissed one may take to say how it was. By then everybody it watched is gone.
const FAREWELL: Duration = Duration::from_secs(5);
/// A deadline further away than this is none.
const NEVER: Duration = Duration::from_secs(366 * 24 * 3600);

/// A guardian that watches.
#[derive(Debug)]
pub(crate) struct Guard {
    child: Child,
    answers: Lines<BufReader<ChildStdout>>,
    line: Line,
}

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dismissed {
    /// It never had to act.
    Quiet,
    /// It ended the command.
    Acted,
    /// It died, or does not answer: nobody knows.
    Gone,
}

/// What a guardian is started with; the same for the one that replaces it.
#[derive(Debug, Clone)]
pub(crate) struct Duty {
    /// From TERM to KILL.
    pub(crate) grace: Duration,
    /// Tells this run's processes from others.
    pub(crate) mark: String,
    /// The lock's name, for its one message.
    pub(crate) name: String,
}

impl Guard {
    /// Starts one and waits until it is out of reach of our signals.
    pub(crate) async fn start(duty: &Duty) -> anyhow::Result<Self> {
        let (orders, to) = pipe_with(PipeFlags::CLOEXEC)?;
        fcntl_setfl(&to, OFlags::NONBLOCK)?;
        // The running file, even if it was replaced or removed meanwhile.
        let mut child = Command::new("/proc/self/exe")
            .arg0("leasehold-guardian")
            .arg(WORD)
            .arg(std::process::id().to_string())
            .arg(duty.grace.as_nanos().to_string())
            .args([&duty.mark, &duty.name])
            .stdin(Stdio::from(orders))
            .stdout(Stdio::piped())
            .spawn()
            .context("the guardian process could not be started")?;
        let answers = child.stdout.take().context("the guardian has no output")?;
        let mut guard = Self {
            child,
            answers: BufReader::new(answers).lines(),
            line: Line(Arc::new(Mutex::new(to))),
        };
        guard.expect("ready").await?;
        Ok(guard)
    }

    /// Its process.
    pub(crate) fn pid(&self) -> Option<Pid> {
        Pid::from_raw(self.child.id()?.try_into().ok()?)
    }

    /// The way to tell it deadlines.
    pub(crate) fn line(&self) -> Line {
        self.line.clone()
    }

    /// Makes it watch this group, and returns when it does.
    pub(crate) async fn watch(&mut self, group: Pid) -> anyhow::Result<()> {
        self.line.tell(&format!("group {}\n", group.as_raw_nonzero()));
        self.expect("set").await
    }

    async fn expect(&mut self, word: &str) -> anyhow::Result<()> {
        let heard = until(&BootClock, BootClock.now() + PATIENCE, self.hear()).await;
        match heard {
            Some(Some(heard)) if heard == word => Ok(()),
            Some(_) => anyhow::bail!("the guardian process died at once"),
            None => anyhow::bail!("the guardian process does not answer"),
        }
    }

    /// Its next word; `None` when it is gone.
    pub(crate) async fn hear(&mut self) -> Option<String> {
        self.answers.next_line().await.ok().flatten()
    }

    /// Replaces a dead one; those who have its [`Line`] talk to the new one.
    pub(crate) async fn restart(&mut self, duty: &Duty, group: Pid) -> anyhow::Result<()> {
        let _ = self.child.try_wait();
        let mut new = Self::start(duty).await?;
        new.watch(group).await?;
        std::mem::swap(&mut *self.line.lock(), &mut *new.line.lock());
        new.line = self.line.clone();
        *self = new;
        Ok(())
    }

    /// It is not needed any more. Says whether it had to act.
    pub(crate) async fn dismiss(mut self) -> Dismissed {
        self.line.tell("done\n");
        let last = until(&BootClock, BootClock.now() + FAREWELL, async {
            let mut last = Dismissed::Gone;
            while let Some(word) = self.hear().await {
                match word.as_str() {
                    "quiet" => last = Dismissed::Quiet,
                    "acted" => last = Dismissed::Acted,
                    _ => {}
                }
            }
            last
        })
        .await;
        if last.is_none() {
            // Stopped by someone: what it would still do is not wanted any more.
            let _ = self.child.start_kill();
        }
        let _ = self.child.wait().await;
        last.unwrap_or(Dismissed::Gone)
    }
}

/// The pipe to the guardian. Never blocks: a guardian that does not read keeps the deadline it has.
#[derive(Debug, Clone)]
pub(crate) struct Line(Arc<Mutex<OwnedFd>>);

impl Line {
    /// Tells it until when the hold is good; `grace` later nobody may be alive.
    pub(crate) fn tell_deadline(&self, deadline: Option<Moment>, grace: Duration) {
        match deadline {
            Some(at) => {
                let kill = at + grace;
                self.tell(&format!("until {} {}\n", at.as_nanos(), kill.as_nanos()));
            }
            None => self.tell("open\n"),
        }
    }

    fn tell(&self, order: &str) {
        // A short line is written whole or not at all. Its death is seen at the other pipe.
        let _ = rustix::io::write(&*self.lock(), order.as_bytes());
    }

    fn lock(&self) -> MutexGuard<'_, OwnedFd> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// When the hold must have ended; `None` where the class lets work go on without proof.
pub(crate) fn deadline(hold: &Hold) -> Option<Moment> {
    // The clock first: so what is added up is never later than the true deadline.
    let now = BootClock.now();
    let left = hold.remaining();
    (left < NEVER).then(|| now + left)
}
