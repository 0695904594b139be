//! The director's side of the workers: starts them, signals them, and leaves none behind.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use leasehold_core::clock::{BootClock, Clock, until};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::task::JoinHandle;

use super::orders::Orders;
use super::tape::Tape;
use super::{Error, Skew, WORD};
use crate::history::Entry;

/// How long workers may take to end in order before they are killed.
const END: Duration = Duration::from_secs(15);

/// Which program is a worker, and by which words.
#[derive(Debug, Clone)]
pub struct Program {
    path: PathBuf,
    word: Option<&'static str>,
}

impl Program {
    /// A program that is nothing but a worker.
    #[must_use]
    pub fn bare(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            word: None,
        }
    }

    /// The program that is running now, which answers to [`WORD`].
    ///
    /// # Errors
    /// The system does not say where it is.
    pub fn this() -> Result<Self, Error> {
        let path = std::env::current_exe().map_err(Error::io("cannot find this program's own file"))?;
        Ok(Self {
            path,
            word: Some(WORD),
        })
    }

    /// The words before another program's that make it die with this process.
    #[must_use]
    pub fn binding(&self) -> Vec<OsString> {
        let director = std::process::id().to_string();
        vec![self.path.clone().into(), super::BOUND.into(), director.into()]
    }
}

/// How a worker ended that was told to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// As it should.
    InOrder,
    /// By itself, with an error: however busy the machine is, that is none of its doing.
    Failed(String),
    /// It had not ended when its time was over, and was killed.
    Late,
}

impl Ended {
    /// As it should.
    #[must_use]
    pub fn in_order(&self) -> bool {
        *self == Self::InOrder
    }
}

struct Worker {
    child: Child,
    stdin: Option<ChildStdin>,
    reader: JoinHandle<()>,
    clients: Vec<String>,
    /// Its process, if it was started under a clock that leaves something behind.
    under_a_clock: Option<u32>,
}

impl Drop for Worker {
    /// Killed, reaped, and nothing of its clock left.
    fn drop(&mut self) {
        let _ = self.child.start_kill();
        // Killed, so it ends at once; what is not reaped here, the runtime reaps.
        while let Ok(None) = self.child.try_wait() {
            std::thread::yield_now();
        }
        if let Some(pid) = self.under_a_clock {
            Skew::unshare(pid);
        }
    }
}

/// Running workers. **Dropping it** kills and reaps every one of them, stopped ones too; [`end`](Self::end) lets them
/// finish first.
///
/// Workers must be started on a thread that lives as long as they do: a worker dies with the thread that started it, so that
/// none survives a director that is killed.
pub struct Crew {
    program: Program,
    store: String,
    policies: PathBuf,
    ledger: PathBuf,
    tape: Tape,
    workers: BTreeMap<String, Worker>,
}

impl std::fmt::Debug for Crew {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Crew")
            .field("workers", &self.workers.keys())
            .finish_non_exhaustive()
    }
}

impl Crew {
    /// Nobody yet; whoever is started works on this store and this ledger.
    #[must_use]
    pub fn new(program: Program, store: &str, policies: &Path, ledger: &Path, tape: Tape) -> Self {
        Self {
            program,
            store: store.to_owned(),
            policies: policies.to_owned(),
            ledger: ledger.to_owned(),
            tape,
            workers: BTreeMap::new(),
        }
    }

    /// Starts a worker.
    ///
    /// # Errors
    /// The process cannot be started or does not take its orders.
    pub async fn start(&mut self, orders: Orders) -> Result<(), Error> {
        let store = self.store.clone();
        self.launch(&[], &store, orders).await
    }

    /// Starts a worker through these words, which become it (as [`Skew::words`](super::Skew::words) do).
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn start_under(&mut self, before: &[OsString], orders: Orders) -> Result<(), Error> {
        let store = self.store.clone();
        self.launch(before, &store, orders).await
    }

    /// Starts a worker that reaches the store another way.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn start_on(&mut self, store: &str, orders: Orders) -> Result<(), Error> {
        self.launch(&[], store, orders).await
    }

    async fn launch(&mut self, before: &[OsString], store: &str, mut orders: Orders) -> Result<(), Error> {
        store.clone_into(&mut orders.store);
        orders.policies.clone_from(&self.policies);
        orders.ledger.clone_from(&self.ledger);
        let who = orders.who.clone();
        let program = self.program.path.clone().into();
        let mut words = before.iter().cloned().chain([program]);
        let mut command = Command::new(words.next().unwrap_or_default());
        command
            .args(words)
            .args(self.program.word)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            // The keyboard's signals are the director's to handle.
            .process_group(0)
            .kill_on_drop(true);
        let started = command.spawn();
        let mut child = started.map_err(Error::io(format!("cannot start worker {who}")))?;
        let (Some(mut stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Error::Store(format!("worker {who} has no pipes")));
        };
        let (tape, from) = (self.tape.clone(), who.clone());
        let reader = tokio::spawn(async move {
            let mut lines = BufReader::new(stdout).split(b'\n');
            while let Ok(Some(line)) = lines.next_segment().await {
                tape.line(&from, &String::from_utf8_lossy(&line));
            }
        });
        let mut line = serde_json::to_vec(&orders).map_err(|error| Error::Store(error.to_string()))?;
        line.push(b'\n');
        // Ours before anything is waited for: whoever drops this meanwhile ends it too.
        let worker = Worker {
            under_a_clock: child.id().filter(|_| !before.is_empty()),
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
        sent.map_err(Error::io(format!("worker {who} does not take its orders")))
    }

    /// Kills a worker as `kill -9` does, and waits until it is gone.
    pub async fn kill(&mut self, who: &str) {
        if let Some(mut worker) = self.workers.remove(who) {
            self.note(&worker.clients, "kill");
            let _ = worker.child.kill().await;
            let _ = (&mut worker.reader).await;
        }
    }

    /// Stops a worker in its tracks.
    pub fn stop(&self, who: &str) {
        self.signal(who, Signal::STOP, "stop");
    }

    /// Lets a stopped worker go on.
    pub fn go_on(&self, who: &str) {
        self.signal(who, Signal::CONT, "continue");
    }

    /// Ends one worker in order. Whether it did is for the caller to judge: a drill with a worker that had to be killed is
    /// not clean.
    pub async fn finish(&mut self, who: &str) -> Ended {
        let Some(mut worker) = self.workers.remove(who) else {
            return Ended::InOrder;
        };
        self.note(&worker.clients, "end");
        drop(worker.stdin.take());
        let ended = until(&BootClock, BootClock.now() + END, worker.child.wait()).await;
        if ended.is_none() {
            self.note(&worker.clients, "kill");
            let _ = worker.child.kill().await;
        }
        let _ = (&mut worker.reader).await;
        match ended {
            Some(Ok(status)) if status.success() => Ended::InOrder,
            Some(Ok(status)) => Ended::Failed(status.to_string()),
            Some(Err(error)) => Ended::Failed(error.to_string()),
            None => Ended::Late,
        }
    }

    /// Ends all workers in order; answers those that did not, and how they ended.
    pub async fn end(&mut self) -> Vec<(String, Ended)> {
        // All are told before any is waited for.
        for worker in self.workers.values_mut() {
            drop(worker.stdin.take());
        }
        let all: Vec<String> = self.workers.keys().cloned().collect();
        let mut others = Vec::new();
        for who in all {
            let ended = self.finish(&who).await;
            if !ended.in_order() {
                others.push((who, ended));
            }
        }
        others
    }

    /// Their process ids.
    #[must_use]
    pub fn pids(&self) -> Vec<u32> {
        self.workers
            .values()
            .filter_map(|worker| worker.child.id())
            .collect()
    }

    fn signal(&self, who: &str, signal: Signal, word: &str) {
        let Some(worker) = self.workers.get(who) else {
            return;
        };
        let pid = worker
            .child
            .id()
            .and_then(|id| Pid::from_raw(id.try_into().ok()?));
        if let Some(pid) = pid {
            self.note(&worker.clients, word);
            let _ = kill_process(pid, signal);
        }
    }

    fn note(&self, clients: &[String], signal: &str) {
        for client in clients {
            self.tape.note(Entry::Signal {
                client: client.clone(),
                signal: signal.to_owned(),
            });
        }
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        // All of them before any is waited for.
        for worker in self.workers.values_mut() {
            let _ = worker.child.start_kill();
        }
    }
}
