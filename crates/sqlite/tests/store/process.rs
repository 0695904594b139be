//! Child processes for tests: this test binary, started again to run one role.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use leasehold_core::store::{AcquireResponse, Store};
use leasehold_sqlite::{SqliteOptions, SqliteStore};

use crate::documents;
use crate::fixture::TestClient;

const ROLE_VARIABLE: &str = "LEASEHOLD_TEST_ROLE";
const FILE_VARIABLE: &str = "LEASEHOLD_TEST_FILE";

/// Prefix of a role's messages to its parent; all other output comes from the test runner.
const MESSAGE_PREFIX: &str = "@ ";

/// A running child process. Dropping it kills it.
pub(crate) struct Process {
    child: Child,
    stdin: Option<ChildStdin>,
    messages: Receiver<String>,
}

impl Process {
    pub(crate) fn start(role: &str, file: &Path) -> Self {
        Self::start_by(&mut Command::new(std::env::current_exe().unwrap()), role, file)
    }

    /// Starts the child from a shell that first runs `prepare`.
    pub(crate) fn start_in_shell(prepare: &str, role: &str, file: &Path) -> Self {
        Self::start_prepared(Command::new("sh"), prepare, role, file)
    }

    /// The same as root in its own mount namespace, where `prepare` can mount filesystems.
    pub(crate) fn start_in_namespace(prepare: &str, role: &str, file: &Path) -> Self {
        let mut unshare = Command::new("unshare");
        unshare.args(["-rm", "sh"]);
        Self::start_prepared(unshare, prepare, role, file)
    }

    fn start_prepared(mut shell: Command, prepare: &str, role: &str, file: &Path) -> Self {
        shell.args(["-c", &format!("{prepare}; exec \"$0\" \"$@\"")]);
        shell.arg(std::env::current_exe().unwrap());
        Self::start_by(&mut shell, role, file)
    }

    fn start_by(command: &mut Command, role: &str, file: &Path) -> Self {
        let mut child = command
            .args(["--exact", "process::role", "--ignored", "--nocapture"])
            .env(ROLE_VARIABLE, role)
            .env(FILE_VARIABLE, file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (tell, said) = channel();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                // The test runner's own output may come before ours on the same line.
                if let Some((_, said)) = line.split_once(MESSAGE_PREFIX)
                    && tell.send(said.to_owned()).is_err()
                {
                    return;
                }
            }
        });
        let stdin = child.stdin.take();
        Self { child, stdin, messages: said }
    }

    /// The next message of the child; `None` if it has ended.
    pub(crate) fn next_message(&self) -> Option<String> {
        match self.messages.recv_timeout(Duration::from_secs(60)) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("a process says nothing"),
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Writes a line to the child's stdin, on which some roles wait.
    pub(crate) fn send_line(&mut self) {
        writeln!(self.stdin.as_mut().unwrap()).unwrap();
    }

    /// Kills the child and returns its remaining messages.
    pub(crate) fn kill(mut self) -> Vec<String> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.messages.iter().collect()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The child may have ended by itself, or been killed.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Entry point of the child process.
#[test]
#[ignore = "started by other tests, as a process of its own"]
fn role() {
    let (Ok(role), Ok(file)) = (std::env::var(ROLE_VARIABLE), std::env::var(FILE_VARIABLE)) else {
        eprintln!("nothing to do: this is a role that other tests start");
        return;
    };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        match role.as_str() {
            "churn" => churn(&file).await,
            "wait" => wait(&file).await,
            "block" => block(&file),
            "open" => open(&file).await,
            "fill" => fill(&file).await,
            "refused" => refused(&file),
            "count" => count(&file).await,
            "follow" => documents::follow(&file, send_message).await,
            other => panic!("no role {other}"),
        }
    });
}

fn send_message(what: impl std::fmt::Display) {
    println!("{MESSAGE_PREFIX}{what}");
}

/// Acquires and releases without end; prints every grant.
async fn churn(file: &str) {
    let store = SqliteStore::open(SqliteOptions::new(file)).unwrap();
    for number in 0_u64.. {
        let who = TestClient::new("churn", &format!("job:{}", number % 3));
        let queue = number.is_multiple_of(2).then_some(Duration::from_millis(50));
        let request = who.acquire_request(100).with_queue(queue);
        let mut answer = who.acquire(&store, &request).await.unwrap();
        if let AcquireResponse::Busy(busy) = &answer
            && busy.queued
        {
            // The lease may have been handed over meanwhile; otherwise this client gives up.
            answer = who.acquire(&store, &request).await.unwrap();
        }
        match answer {
            AcquireResponse::Granted(grant) => {
                send_message(format_args!("{} {}", who.name, grant.fence));
                // Let some leases expire.
                if !number.is_multiple_of(7) {
                    who.release(&store).await;
                }
            }
            _ => drop(who.release(&store).await),
        }
    }
}

/// Waits in the queue, and acquires only after a wake-up.
async fn wait(file: &str) {
    let store = SqliteStore::open(SqliteOptions::new(file)).unwrap();
    let who = TestClient::new("waiting-process", "job");
    let listener = store.listen(&who.name, &who.token);
    who.expect_queued(&store).await;
    send_message("queued");
    listener.notified().await;
    send_message("woken");
    send_message(who.expect_granted(&store).await);
    std::future::pending().await
}

/// Begins a write transaction and does not end it.
fn block(file: &str) {
    let db = rusqlite::Connection::open(file).unwrap();
    db.execute_batch("BEGIN IMMEDIATE").unwrap();
    send_message("locked");
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

/// Opens the file after a line on stdin, and acquires a name of its own.
async fn open(file: &str) {
    send_message("ready");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    let store = SqliteStore::open(SqliteOptions::new(file)).unwrap();
    let mine = TestClient::new("opener", &format!("job:{}", std::process::id()));
    send_message(mine.expect_granted(&store).await);
}

/// Acquires more and more names until a request fails; prints the error.
async fn fill(file: &str) {
    let store = SqliteStore::open(SqliteOptions::new(file)).unwrap();
    for number in 0.. {
        let who = TestClient::new("filler", &format!("{number}:{}", "x".repeat(400)));
        if let Err(failure) = who.acquire(&store, &who.acquire_request(60_000)).await {
            let there = who.inspect(&store).await.is_some();
            send_message(format_args!("{:?} unknown={} there={there}", failure.kind, failure.unknown));
            return;
        }
    }
}

/// Adds to the document `counter`, after a line on stdin.
async fn count(file: &str) {
    let store = SqliteStore::open(SqliteOptions::new(file)).unwrap();
    send_message("ready");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    documents::count(&store).await;
    send_message("counted");
}

/// Fails to open the file; prints the error.
fn refused(file: &str) {
    let failure = SqliteStore::open(SqliteOptions::new(file)).unwrap_err();
    send_message(format_args!("{:?} unknown={} {failure}", failure.kind, failure.unknown));
}
