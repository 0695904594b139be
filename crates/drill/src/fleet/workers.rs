//! The director's side of the workers: starts them, signals them, and leaves no process behind.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use leasehold_core::clock::{BootClock, Clock, run_until};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::task::JoinHandle;

use super::history_buffer::HistoryBuffer;
use super::worker_spec::WorkerSpec;
use super::{DrillError, FakeWallClock, WORKER_ARG};
use crate::history::HistoryEntry;

// A client needs up to 3 s for its shutdown; the rest is for a loaded host. After that the worker
// is killed.
const WORKER_EXIT_TIMEOUT: Duration = Duration::from_secs(15);

/// The program to start as a worker, with its arguments.
#[derive(Debug, Clone)]
pub struct WorkerProgram {
    path: PathBuf,
    worker_arg: Option<&'static str>,
}

impl WorkerProgram {
    /// A program that is only a worker and needs no argument.
    #[must_use]
    pub fn standalone(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), worker_arg: None }
    }

    /// The current program, which becomes a worker with the argument [`WORKER_ARG`].
    ///
    /// # Errors
    /// The path of the current program is unknown.
    pub fn current() -> Result<Self, DrillError> {
        let path = std::env::current_exe().map_err(DrillError::io("cannot find this program's own file"))?;
        Ok(Self { path, worker_arg: Some(WORKER_ARG) })
    }

    /// The command prefix that makes another program die with this process.
    #[must_use]
    pub fn binding_prefix(&self) -> Vec<OsString> {
        let director = std::process::id().to_string();
        vec![self.path.clone().into(), super::BOUND_ARG.into(), director.into()]
    }
}

/// How a worker ended after it was asked to.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum WorkerExit {
    /// With exit status 0.
    Clean,
    /// With an error. A busy host is no excuse for that.
    Failed(String),
    /// It exceeded the timeout and was killed.
    TimedOut,
}

impl WorkerExit {
    /// Whether it ended with exit status 0.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        *self == Self::Clean
    }
}

struct RunningWorker {
    child: Child,
    stdin: Option<ChildStdin>,
    reader: JoinHandle<()>,
    clients: Vec<String>,
    /// Its process id, if it runs under a fake wall clock, whose shared memory has to be removed.
    fake_clock_pid: Option<u32>,
}

impl Drop for RunningWorker {
    fn drop(&mut self) {
        let _ = self.child.start_kill();
        // SIGKILL ends it at once, so this loop is short. A process that is still starting could
        // create its shared memory after the removal below.
        while let Ok(None) = self.child.try_wait() {
            std::thread::yield_now();
        }
        if let Some(pid) = self.fake_clock_pid {
            FakeWallClock::remove_shared_memory(pid);
        }
    }
}

/// The running workers. **Dropping it** kills and reaps all of them, paused ones too.
/// [`end_all`](Self::end_all) lets them finish first.
///
/// Start workers on a thread that outlives them. The kernel kills a worker when the thread that
/// started it ends, so no worker survives a killed director.
pub struct Workers {
    program: WorkerProgram,
    store: String,
    policies: PathBuf,
    target: PathBuf,
    history: HistoryBuffer,
    workers: BTreeMap<String, RunningWorker>,
}

impl std::fmt::Debug for Workers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Workers").field("workers", &self.workers.keys()).finish_non_exhaustive()
    }
}

impl Workers {
    /// Creates an empty set. Its workers will use this store and this target.
    #[must_use]
    pub fn new(
        program: WorkerProgram,
        store: &str,
        policies: &Path,
        ledger: &Path,
        history: HistoryBuffer,
    ) -> Self {
        Self {
            program,
            store: store.to_owned(),
            policies: policies.to_owned(),
            target: ledger.to_owned(),
            history,
            workers: BTreeMap::new(),
        }
    }

    /// Starts a worker.
    ///
    /// # Errors
    /// The process cannot be started or does not read its spec.
    pub async fn start(&mut self, orders: WorkerSpec) -> Result<(), DrillError> {
        let store = self.store.clone();
        self.spawn_worker(&[], &store, orders).await
    }

    /// Starts a worker with a command prefix such as
    /// [`FakeWallClock::command_prefix`](super::FakeWallClock::command_prefix).
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn start_with_prefix(
        &mut self,
        before: &[OsString],
        orders: WorkerSpec,
    ) -> Result<(), DrillError> {
        let store = self.store.clone();
        self.spawn_worker(before, &store, orders).await
    }

    /// Starts a worker that uses another URL for the store.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn start_with_url(&mut self, store: &str, orders: WorkerSpec) -> Result<(), DrillError> {
        self.spawn_worker(&[], store, orders).await
    }

    async fn spawn_worker(
        &mut self,
        before: &[OsString],
        store: &str,
        mut orders: WorkerSpec,
    ) -> Result<(), DrillError> {
        store.clone_into(&mut orders.store);
        orders.policies.clone_from(&self.policies);
        orders.ledger.clone_from(&self.target);
        let who = orders.who.clone();
        let program = self.program.path.clone().into();
        let mut words = before.iter().cloned().chain([program]);
        let mut command = Command::new(words.next().unwrap_or_default());
        command
            .args(words)
            .args(self.program.worker_arg)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            // Ctrl-C goes to the director only, which ends its workers in order.
            .process_group(0)
            .kill_on_drop(true);
        let started = command.spawn();
        let mut child = started.map_err(DrillError::io(format!("cannot start worker {who}")))?;
        let (Some(mut stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(DrillError::Store(format!("worker {who} has no pipes")));
        };
        let (history, from) = (self.history.clone(), who.clone());
        let reader = tokio::spawn(async move {
            let mut lines = BufReader::new(stdout).split(b'\n');
            while let Ok(Some(line)) = lines.next_segment().await {
                history.push_line(&from, &String::from_utf8_lossy(&line));
            }
        });
        let mut line = serde_json::to_vec(&orders).map_err(|error| DrillError::Store(error.to_string()))?;
        line.push(b'\n');
        // Registered before the first await: if this future is dropped, `Drop` still kills the
        // process.
        let worker = RunningWorker {
            fake_clock_pid: child.id().filter(|_| !before.is_empty()),
            child,
            stdin: None,
            reader,
            clients: orders.client_names(),
        };
        self.workers.insert(who.clone(), worker);
        let sent = stdin.write_all(&line).await;
        if let Some(worker) = self.workers.get_mut(&who) {
            worker.stdin = Some(stdin);
        }
        sent.map_err(DrillError::io(format!("worker {who} does not take its orders")))
    }

    /// Kills a worker with SIGKILL and waits until the process has ended.
    pub async fn kill(&mut self, who: &str) {
        if let Some(mut worker) = self.workers.remove(who) {
            self.record_signal(&worker.clients, "kill");
            let _ = worker.child.kill().await;
            let _ = (&mut worker.reader).await;
        }
    }

    /// Pauses a worker with SIGSTOP.
    pub fn pause(&self, who: &str) {
        self.send_signal(who, Signal::STOP, "stop");
    }

    /// Resumes a paused worker with SIGCONT.
    pub fn resume(&self, who: &str) {
        self.send_signal(who, Signal::CONT, "continue");
    }

    /// Asks one worker to end, and kills it after the timeout. The caller judges the result: a
    /// drill with a worker that had to be killed is not clean.
    pub async fn end_worker(&mut self, who: &str) -> WorkerExit {
        let Some(mut worker) = self.workers.remove(who) else {
            return WorkerExit::Clean;
        };
        self.record_signal(&worker.clients, "end");
        // End of its standard input is the request to end.
        drop(worker.stdin.take());
        let ended = run_until(&BootClock, BootClock.now() + WORKER_EXIT_TIMEOUT, worker.child.wait()).await;
        if ended.is_none() {
            self.record_signal(&worker.clients, "kill");
            let _ = worker.child.kill().await;
        }
        let _ = (&mut worker.reader).await;
        match ended {
            Some(Ok(status)) if status.success() => WorkerExit::Clean,
            Some(Ok(status)) => WorkerExit::Failed(status.to_string()),
            Some(Err(error)) => WorkerExit::Failed(error.to_string()),
            None => WorkerExit::TimedOut,
        }
    }

    /// Asks all workers to end. Returns those that failed or timed out, and how they ended.
    pub async fn end_all(&mut self) -> Vec<(String, WorkerExit)> {
        // All are asked before the first is awaited: they end at the same time.
        for worker in self.workers.values_mut() {
            drop(worker.stdin.take());
        }
        let all: Vec<String> = self.workers.keys().cloned().collect();
        let mut others = Vec::new();
        for who in all {
            let ended = self.end_worker(&who).await;
            if !ended.is_clean() {
                others.push((who, ended));
            }
        }
        others
    }

    /// The process ids of the running workers.
    #[must_use]
    pub fn pids(&self) -> Vec<u32> {
        self.workers.values().filter_map(|worker| worker.child.id()).collect()
    }

    fn send_signal(&self, who: &str, signal: Signal, word: &str) {
        let Some(worker) = self.workers.get(who) else {
            return;
        };
        let pid = worker.child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?));
        if let Some(pid) = pid {
            self.record_signal(&worker.clients, word);
            let _ = kill_process(pid, signal);
        }
    }

    fn record_signal(&self, clients: &[String], signal: &str) {
        for client in clients {
            self.history.record(HistoryEntry::Signal { client: client.clone(), signal: signal.to_owned() });
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        // All are killed before `RunningWorker::drop` waits for the first.
        for worker in self.workers.values_mut() {
            let _ = worker.child.start_kill();
        }
    }
}
