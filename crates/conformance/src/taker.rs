//! The test's side of a lock-taking process; see
//! [`locktaker`](crate::locktaker) for the process itself.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use leasehold_core::Fence;
use leasehold_core::clock::{BootClock, Clock, run_until};
use rustix::process::Signal;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::locktaker::RESPONSE_PREFIX;
use crate::process::ChildGuard;

/// Environment variable with the URL of the store that a lock-taking process opens.
pub const URL_VARIABLE: &str = "LEASEHOLD_TAKER_URL";

/// Time limit for the process to start or to respond.
const PROCESS_RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);

/// How to start a lock-taking process.
#[derive(Debug, Clone)]
pub struct TakerCommand {
    exe: PathBuf,
    args: Vec<OsString>,
    url: String,
}

impl TakerCommand {
    /// A separate program that calls [`locktaker::main`](crate::locktaker::main) with
    /// the URL from [`URL_VARIABLE`].
    pub fn exe(exe: impl Into<PathBuf>, url: impl Into<String>) -> Self {
        Self { exe: exe.into(), args: Vec::new(), url: url.into() }
    }

    /// This test program again, running only the test that [`taker!`](crate::taker) created.
    /// `path` is that test's module path.
    ///
    /// # Errors
    /// The path of the running program is not known.
    pub fn this_test(path: &str, url: impl Into<String>) -> io::Result<Self> {
        // Test names do not include the crate's name.
        let test =
            path.split_once("::").map_or("locktaker".to_owned(), |(_, inner)| format!("{inner}::locktaker"));
        let args = [test.as_str(), "--exact", "--ignored", "--nocapture", "--test-threads=1"];
        Ok(Self { exe: std::env::current_exe()?, args: args.map(OsString::from).to_vec(), url: url.into() })
    }
}

/// A running lock-taking process; killed when dropped.
#[derive(Debug)]
pub struct LockProcess {
    child: ChildGuard,
    responses: UnboundedReceiver<String>,
}

impl LockProcess {
    /// Starts the process and waits until it has opened its store.
    ///
    /// # Errors
    /// The process could not be started, or could not open its store.
    pub async fn spawn(command: &TakerCommand) -> anyhow::Result<Self> {
        let mut child = ChildGuard::spawn(
            Command::new(&command.exe)
                .args(&command.args)
                .env(URL_VARIABLE, &command.url)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped()),
        )?;
        let out = child.child().stdout.take().context("the process has no output")?;
        let (tell, answers) = unbounded_channel();
        // A thread, because reading the pipe blocks. It ends with the child's output.
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                // The test runner's first line may come before ours on the same line.
                if let Some((_, answer)) = line.split_once(RESPONSE_PREFIX)
                    && tell.send(answer.to_owned()).is_err()
                {
                    return;
                }
            }
        });
        let mut taker = Self { child, responses: answers };
        let ready = taker.next_response().await?;
        if ready.starts_with("ready ") {
            Ok(taker)
        } else {
            bail!("the lock-taking process answered `{ready}` instead of being ready")
        }
    }

    /// The process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a command and waits for its response.
    ///
    /// # Errors
    /// The process has ended or does not respond.
    pub async fn send_command(&mut self, command: &str) -> anyhow::Result<String> {
        self.start_command(command)?;
        self.next_response().await.with_context(|| format!("no response to `{command}`"))
    }

    /// Sends a command without waiting for its response;
    /// [`next_response`](Self::next_response) returns it later.
    ///
    /// # Errors
    /// The process has ended.
    pub fn start_command(&mut self, command: &str) -> anyhow::Result<()> {
        let input = self.child.child().stdin.as_mut().context("the process has no input")?;
        writeln!(input, "{command}").with_context(|| format!("cannot send `{command}`: the process is gone"))
    }

    /// The next response of the process.
    ///
    /// # Errors
    /// The process has ended or does not respond.
    pub async fn next_response(&mut self) -> anyhow::Result<String> {
        match run_until(&BootClock, BootClock.now() + PROCESS_RESPONSE_TIMEOUT, self.responses.recv()).await {
            Some(Some(answer)) => Ok(answer),
            Some(None) => bail!("the lock-taking process is gone"),
            None => bail!("the lock-taking process has not answered for {PROCESS_RESPONSE_TIMEOUT:?}"),
        }
    }

    /// Lets the process acquire a free name.
    ///
    /// # Errors
    /// The name was not granted.
    pub async fn expect_granted(&mut self, id: &str, name: &str, ttl: Duration) -> anyhow::Result<Fence> {
        let answer = self.send_command(&format!("ask {id} {name} {}", ttl.as_millis())).await?;
        match answer.strip_prefix("granted ") {
            Some(fence) => Ok(fence.parse()?),
            None => bail!("another process asked for `{name}`, which is free, and got `{answer}`"),
        }
    }

    /// Kills the process (`kill -9`) and waits until it has ended.
    ///
    /// # Errors
    /// Waiting for the process failed.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        Ok(self.child.kill()?)
    }

    /// Stops the process (`SIGSTOP`) until it is continued.
    ///
    /// # Errors
    /// The process has ended.
    pub fn stop(&self) -> anyhow::Result<()> {
        Ok(self.child.signal(Signal::STOP)?)
    }

    /// Continues a stopped process (`SIGCONT`).
    ///
    /// # Errors
    /// The process has ended.
    pub fn resume(&self) -> anyhow::Result<()> {
        Ok(self.child.signal(Signal::CONT)?)
    }
}

/// Lets this test program also be the lock-taking process. Creates an ignored test that the
/// cross-process cases start in a separate process. `$open` gets the URL from
/// [`Fixture::taker`](crate::Fixture::taker):
///
/// ```no_run
/// # mod a_store {
/// #     use leasehold_core::store::SharedStore;
/// #     pub async fn open(_: &str) -> anyhow::Result<SharedStore> { unimplemented!() }
/// # }
/// leasehold_conformance::taker!(async |url: String| a_store::open(&url).await);
/// // and in the fixture: fn taker(&self) -> Option<TakerCommand> { taker_command(&self.url).ok() }
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! taker {
    ($open:expr) => {
        #[test]
        #[ignore = "not a test: the process that cross-process cases start"]
        fn locktaker() {
            if let Ok(url) = std::env::var($crate::URL_VARIABLE) {
                $crate::locktaker::main(&url, $open);
            }
        }

        /// How to start this program as the lock-taking process on the store at `url`.
        #[allow(dead_code)]
        fn taker_command(url: &str) -> std::io::Result<$crate::TakerCommand> {
            $crate::TakerCommand::this_test(module_path!(), url)
        }
    };
}
