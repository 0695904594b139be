//! The test's end of a lock-taking process: see [`locktaker`](crate::locktaker) for the other end.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use leasehold_core::Fence;
use leasehold_core::clock::{BootClock, Clock, until};
use rustix::process::Signal;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::locktaker::MARK;
use crate::process::ChildGuard;

/// The variable that tells a lock-taking process which store to open.
pub const URL_VARIABLE: &str = "LEASEHOLD_TAKER_URL";

/// How long a process may take to start or to answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// How to start a lock-taking process.
#[derive(Debug, Clone)]
pub struct TakerCommand {
    exe: PathBuf,
    args: Vec<OsString>,
    url: String,
}

impl TakerCommand {
    /// A program of its own that calls [`locktaker::main`](crate::locktaker::main) with the URL from the
    /// variable [`URL_VARIABLE`].
    pub fn exe(exe: impl Into<PathBuf>, url: impl Into<String>) -> Self {
        Self {
            exe: exe.into(),
            args: Vec::new(),
            url: url.into(),
        }
    }

    /// This test program once more, with nothing but the test that [`taker!`](crate::taker) made; `path` is that
    /// test's module path.
    ///
    /// # Errors
    /// The program cannot tell where it is.
    pub fn this_test(path: &str, url: impl Into<String>) -> io::Result<Self> {
        // Tests are called without their crate's name.
        let test = path
            .split_once("::")
            .map_or("locktaker".to_owned(), |(_, inner)| format!("{inner}::locktaker"));
        let args = [
            test.as_str(),
            "--exact",
            "--ignored",
            "--nocapture",
            "--test-threads=1",
        ];
        Ok(Self {
            exe: std::env::current_exe()?,
            args: args.map(OsString::from).to_vec(),
            url: url.into(),
        })
    }
}

/// A running lock-taking process; killed when dropped.
#[derive(Debug)]
pub struct Taker {
    child: ChildGuard,
    answers: UnboundedReceiver<String>,
}

impl Taker {
    /// Starts it and waits until it has opened its store.
    ///
    /// # Errors
    /// It could not be started, or could not open its store.
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
        // A thread of its own: it ends with the process's output.
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                // The runner's first line may stand before ours without an end.
                if let Some((_, answer)) = line.split_once(MARK)
                    && tell.send(answer.to_owned()).is_err()
                {
                    return;
                }
            }
        });
        let mut taker = Self { child, answers };
        let ready = taker.line().await?;
        if ready.starts_with("ready ") {
            Ok(taker)
        } else {
            bail!("the lock-taking process answered `{ready}` instead of being ready")
        }
    }

    /// The process's id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Gives a command and waits for its answer.
    ///
    /// # Errors
    /// The process is gone or does not answer.
    pub async fn tell(&mut self, command: &str) -> anyhow::Result<String> {
        self.start(command)?;
        self.line().await.with_context(|| format!("told `{command}`"))
    }

    /// Gives a command and does not wait for its answer: [`line`](Self::line) has it later.
    ///
    /// # Errors
    /// The process is gone.
    pub fn start(&mut self, command: &str) -> anyhow::Result<()> {
        let input = self
            .child
            .child()
            .stdin
            .as_mut()
            .context("the process has no input")?;
        writeln!(input, "{command}").with_context(|| format!("the process is gone and was told `{command}`"))
    }

    /// The next answer.
    ///
    /// # Errors
    /// The process is gone or does not answer.
    pub async fn line(&mut self) -> anyhow::Result<String> {
        match until(&BootClock, BootClock.now() + PATIENCE, self.answers.recv()).await {
            Some(Some(answer)) => Ok(answer),
            Some(None) => bail!("the lock-taking process is gone"),
            None => bail!("the lock-taking process has not answered for {PATIENCE:?}"),
        }
    }

    /// Tells it to ask, and it is to get the lease.
    ///
    /// # Errors
    /// It did not.
    pub async fn gets(&mut self, id: &str, name: &str, ttl: Duration) -> anyhow::Result<Fence> {
        let answer = self.tell(&format!("ask {id} {name} {}", ttl.as_millis())).await?;
        match answer.strip_prefix("granted ") {
            Some(fence) => Ok(fence.parse()?),
            None => bail!("another process asked for `{name}`, which is free, and got `{answer}`"),
        }
    }

    /// `kill -9`, and waits until it is gone.
    ///
    /// # Errors
    /// It could not be waited for.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        Ok(self.child.kill()?)
    }

    /// `SIGSTOP`: it stands still until continued.
    ///
    /// # Errors
    /// It is gone.
    pub fn stop(&self) -> anyhow::Result<()> {
        Ok(self.child.signal(Signal::STOP)?)
    }

    /// `SIGCONT`.
    ///
    /// # Errors
    /// It is gone.
    pub fn cont(&self) -> anyhow::Result<()> {
        Ok(self.child.signal(Signal::CONT)?)
    }
}

/// Makes this test program able to be the lock-taking process too: a test that is ignored, and that the
/// cross-process cases start in a process of its own. `$open` is called with the URL that
/// [`Fixture::taker`](crate::Fixture::taker) gave:
///
/// ```no_run
/// # mod a_store { pub async fn open(_: &str) -> anyhow::Result<leasehold_core::store::SharedStore> { unimplemented!() } }
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
