//! A folder, a store and the real binary, for tests that look at processes.
//!
//! Nothing here asserts on speed: tests wait for conditions, and compare what the commands themselves wrote down.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use leasehold::clock::{BootClock, Clock};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tempfile::TempDir;

/// Longer than anything takes on a busy machine, shorter than the runner's patience.
const PATIENCE: Duration = Duration::from_secs(60);

/// Appends the boot clock in seconds to the file `$1` until it is ended; TERM does not end it.
pub(crate) const BEAT: &str =
    "trap '' TERM; while :; do read up rest < /proc/uptime; echo $up >> $1; sleep 0.02; done";

/// A folder and a store.
pub(crate) struct Stage {
    folder: TempDir,
    store: String,
}

impl Stage {
    /// On a SQLite file.
    pub(crate) fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = format!("sqlite:{}", folder.path().join("locks.db").display());
        Self { folder, store }
    }

    /// On this store.
    pub(crate) fn at(store: impl Into<String>) -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            store: store.into(),
        }
    }

    pub(crate) fn store(&self) -> &str {
        &self.store
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    pub(crate) fn write(&self, file: &str, text: &str) {
        fs::write(self.path(file), text).unwrap();
    }

    /// What is in a file by now.
    pub(crate) fn read(&self, file: &str) -> String {
        fs::read_to_string(self.path(file)).unwrap_or_default()
    }

    /// Waits until a command has written a whole line to this file, and answers it.
    pub(crate) fn line(&self, file: &str) -> String {
        eventually(&format!("a line in {file}"), || self.read(file).ends_with('\n'));
        self.read(file).trim().to_owned()
    }

    /// The process whose id was written to this file.
    pub(crate) fn pid(&self, file: &str) -> Pid {
        Pid::from_raw(self.line(file).parse().unwrap()).unwrap()
    }

    /// The binary, in this folder, on this store, and nothing else of the caller's environment that it reads.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
        for (key, _) in std::env::vars_os() {
            if key.to_string_lossy().starts_with("LEASEHOLD_") {
                command.env_remove(key);
            }
        }
        command
            .args(args)
            .current_dir(self.folder.path())
            .env("LEASEHOLD_STORE", &self.store)
            .env_remove("XDG_STATE_HOME")
            .env("HOME", self.folder.path())
            .stdin(Stdio::null());
        command
    }

    /// Runs it to its end.
    pub(crate) fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Starts it.
    pub(crate) fn start(&self, args: &[&str]) -> Running {
        self.start_with(args, |_| {})
    }

    /// Starts it with changes.
    pub(crate) fn start_with(&self, args: &[&str], change: impl FnOnce(&mut Command)) -> Running {
        let log = tempfile::NamedTempFile::new_in(self.folder.path())
            .unwrap()
            .into_temp_path()
            .keep()
            .unwrap();
        let (out, err) = (log.with_extension("out"), log.with_extension("err"));
        let mut command = self.command(args);
        command
            .stdout(File::create(&out).unwrap())
            .stderr(File::create(&err).unwrap());
        change(&mut command);
        Running {
            child: command.spawn().unwrap(),
            out,
            err,
        }
    }
}

impl Running {
    /// Another process, whose output goes to this file.
    pub(crate) fn of(child: Child, out: PathBuf) -> Self {
        let err = out.clone();
        Self { child, out, err }
    }
}

/// A `leasehold` that runs; killed when dropped, upon which its guardian ends its command.
pub(crate) struct Running {
    pub(crate) child: Child,
    out: PathBuf,
    err: PathBuf,
}

impl Running {
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Waits for its end and answers the exit code; -N if it died of signal N.
    pub(crate) fn code(&mut self) -> i32 {
        use std::os::unix::process::ExitStatusExt;
        let mut status = None;
        eventually("leasehold to end", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        let status = status.unwrap();
        status.code().unwrap_or_else(|| -status.signal().unwrap())
    }

    pub(crate) fn ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    pub(crate) fn stdout(&self) -> String {
        fs::read_to_string(&self.out).unwrap()
    }

    pub(crate) fn stderr(&self) -> String {
        fs::read_to_string(&self.err).unwrap()
    }

    /// Waits until it has said this.
    pub(crate) fn says(&self, text: &str) {
        eventually(&format!("{text:?} in what leasehold says"), || {
            self.stderr().contains(text)
        });
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The child of this leasehold that is not its command.
pub(crate) fn guardian_of(run: &Running) -> Pid {
    let parent = run.pid().as_raw_nonzero();
    let mut found = None;
    eventually("a guardian", || {
        let tasks = fs::read_dir(format!("/proc/{parent}/task")).unwrap();
        let children: String = tasks
            .filter_map(|task| fs::read_to_string(task.ok()?.path().join("children")).ok())
            .collect();
        found = children.split_whitespace().find_map(|pid| {
            let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).ok()?;
            let pid = Pid::from_raw(pid.parse().ok()?)?;
            (line.starts_with("leasehold-guardian\0") && alive(pid)).then_some(pid)
        });
        found.is_some()
    });
    found.unwrap()
}

/// A process that is stopped until this is dropped; so nothing is left behind by a test that fails.
pub(crate) struct Frozen(Pid);

impl Frozen {
    pub(crate) fn new(pid: Pid) -> Self {
        kill_process(pid, Signal::STOP).unwrap();
        Self(pid)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::CONT);
    }
}

/// Waits for a condition.
#[allow(clippy::disallowed_methods, reason = "real processes are waited for")]
pub(crate) fn eventually(what: &str, mut so: impl FnMut() -> bool) {
    let end = BootClock.now() + PATIENCE;
    while !so() {
        assert!(BootClock.now() < end, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Is there a process of this id that has not ended?
pub(crate) fn alive(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    stat.is_ok_and(|stat| {
        !stat
            .rsplit_once(')')
            .unwrap()
            .1
            .trim_start()
            .starts_with(['Z', 'X'])
    })
}

pub(crate) fn signal_group(group: Pid, signal: Signal) {
    kill_process_group(group, signal).unwrap();
}

/// The last time that [`BEAT`] wrote, in seconds of the boot clock. The last line may be cut off by its end.
pub(crate) fn last_beat(text: &str) -> f64 {
    let whole = text.rsplit_once('\n').expect("at least one beat").0;
    whole.lines().last().unwrap().parse().unwrap()
}

/// The boot clock in seconds, as `/proc/uptime` shows it.
pub(crate) fn uptime() -> f64 {
    BootClock.now().as_nanos() as f64 / 1e9
}

/// Whoever started the tests may have had signals ignored (`nohup`, a shell's `&`); that is inherited.
pub(crate) fn ignored_here(signal: Signal) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap() & (1 << (signal.as_raw() - 1)) != 0
}

pub(crate) fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

pub(crate) fn said(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

pub(crate) fn printed(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}
