//! Processes of their own: this test binary, started again to play one role.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use leasehold_core::store::{Answer, Ask, Store};
use leasehold_sqlite::{SqliteOptions, SqliteStore};

use crate::scene::Who;

const ROLE: &str = "LEASEHOLD_TEST_ROLE";
const FILE: &str = "LEASEHOLD_TEST_FILE";

/// What a role tells its starter begins with this; everything else is the test runner's.
const MARK: &str = "@ ";

/// A running role. Dropping it kills it.
pub(crate) struct Process {
    child: Child,
    stdin: Option<ChildStdin>,
    said: Receiver<String>,
}

impl Process {
    pub(crate) fn start(role: &str, file: &Path) -> Self {
        Self::start_by(&mut Command::new(std::env::current_exe().unwrap()), role, file)
    }

    /// Started by a shell, which first runs `prepare`.
    pub(crate) fn start_in_shell(prepare: &str, role: &str, file: &Path) -> Self {
        Self::start_prepared(Command::new("sh"), prepare, role, file)
    }

    /// The same as root of a world of its own, in which file systems can be mounted.
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
            .env(ROLE, role)
            .env(FILE, file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (tell, said) = channel();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                // The runner's own output may stand before ours on the same line.
                if let Some((_, said)) = line.split_once(MARK)
                    && tell.send(said.to_owned()).is_err()
                {
                    return;
                }
            }
        });
        let stdin = child.stdin.take();
        Self { child, stdin, said }
    }

    /// The next thing it says; `None` if it has ended.
    pub(crate) fn hears(&self) -> Option<String> {
        match self.said.recv_timeout(Duration::from_secs(60)) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("a process says nothing"),
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Lets it go on.
    pub(crate) fn go(&mut self) {
        writeln!(self.stdin.as_mut().unwrap()).unwrap();
    }

    /// Kills it on the spot and gives what it still had said.
    pub(crate) fn kill(mut self) -> Vec<String> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.said.iter().collect()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself, or been killed.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The other side: what a started process does.
#[test]
#[ignore = "started by other tests, as a process of its own"]
fn role() {
    let (Ok(role), Ok(file)) = (std::env::var(ROLE), std::env::var(FILE)) else {
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
            other => panic!("no role {other}"),
        }
    });
}

fn say(what: impl std::fmt::Display) {
    println!("{MARK}{what}");
}

/// Takes and gives back without end; tells every grant.
async fn churn(file: &str) {
    let store = SqliteStore::open(SqliteOptions::new(file)).unwrap();
    for number in 0_u64.. {
        let who = Who::new("churn", &format!("job:{}", number % 3));
        let ask = Ask {
            queue: number.is_multiple_of(2).then_some(Duration::from_millis(50)),
            ..who.ask(100)
        };
        let mut answer = who.put(&store, &ask).await.unwrap();
        if let Answer::Busy(busy) = &answer
            && busy.queued
        {
            // It may have been handed the lease meanwhile; if not, it gives up.
            answer = who.put(&store, &ask).await.unwrap();
        }
        match answer {
            Answer::Granted(grant) => {
                say(format_args!("{} {}", who.name, grant.fence));
                // Now and then one is left to run out.
                if !number.is_multiple_of(7) {
                    who.gives(&store).await;
                }
            }
            _ => drop(who.gives(&store).await),
        }
    }
}

/// Waits in the queue, never to ask again.
async fn wait(file: &str) {
    let store = SqliteStore::open(SqliteOptions::new(file)).unwrap();
    let who = Who::new("waiting-process", "job");
    let listener = store.listen(&who.name, &who.token);
    who.queues(&store).await;
    say("queued");
    listener.woken().await;
    say("woken");
    say(who.gets(&store).await);
    std::future::pending().await
}

/// Begins a step and does not end it.
fn block(file: &str) {
    let db = rusqlite::Connection::open(file).unwrap();
    db.execute_batch("BEGIN IMMEDIATE").unwrap();
    say("locked");
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

/// Opens the file when told to, and takes something of its own.
async fn open(file: &str) {
    say("ready");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    let store = SqliteStore::open(SqliteOptions::new(file)).unwrap();
    let mine = Who::new("opener", &format!("job:{}", std::process::id()));
    say(mine.gets(&store).await);
}

/// Takes more and more until something gives way; tells what.
async fn fill(file: &str) {
    let store = SqliteStore::open(SqliteOptions::new(file)).unwrap();
    for number in 0.. {
        let who = Who::new("filler", &format!("{number}:{}", "x".repeat(400)));
        if let Err(failure) = who.put(&store, &who.ask(60_000)).await {
            let there = who.sees(&store).await.is_some();
            say(format_args!(
                "{:?} unknown={} there={there}",
                failure.cause, failure.unknown
            ));
            return;
        }
    }
}

/// Cannot open the file; tells why.
fn refused(file: &str) {
    let failure = SqliteStore::open(SqliteOptions::new(file)).unwrap_err();
    say(format_args!(
        "{:?} unknown={} {failure}",
        failure.cause, failure.unknown
    ));
}
