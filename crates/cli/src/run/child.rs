//! The command's process: gated, in a group of its own, with what it should know in its environment.

use std::ffi::OsString;
use std::os::fd::{AsRawFd, OwnedFd};

use anyhow::Context;
use leasehold::{Hold, StoreUrl};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use tokio::process::{Child, Command};

use crate::family::MARK;
use crate::gate::{GO, WORD};

/// A command that has not begun.
#[derive(Debug)]
pub(crate) struct Gated {
    /// Its process; becomes the command when the gate opens.
    pub(crate) child: Child,
    /// Its process group, which has the same number.
    pub(crate) group: Pid,
    gate: OwnedFd,
}

impl Gated {
    /// Makes its process, which waits. Must be called on the main thread: the kernel reports the death of the *thread*
    /// that made a process as the death of its parent.
    pub(crate) fn spawn(
        argv: &[OsString],
        hold: &Hold,
        store: &StoreUrl,
        holder: &str,
        mark: &str,
    ) -> anyhow::Result<Self> {
        let (wait, gate) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        // This end is the one thing that the new process inherits besides its three standard ones.
        fcntl_setfd(&wait, FdFlags::empty())?;
        let mut command = Command::new("/proc/self/exe");
        command
            .arg0("leasehold-gate")
            .arg(WORD)
            .arg(wait.as_raw_fd().to_string())
            .arg(std::process::id().to_string())
            .args(argv)
            .process_group(0)
            .env(MARK, mark)
            .env("LEASEHOLD_NAME", hold.name().as_str())
            .env("LEASEHOLD_CLASS", hold.class())
            .env("LEASEHOLD_HOLDER", holder)
            .env("LEASEHOLD_STORE", store.to_string())
            // Not an outer run's: a wrong fence is worse than none.
            .env_remove("LEASEHOLD_FENCE");
        if let Ok(fence) = hold.fence() {
            command.env("LEASEHOLD_FENCE", fence.to_string());
        }
        let child = command
            .spawn()
            .context("the command's process could not be made")?;
        let group = child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?));
        Ok(Self {
            group: group.context("the command's process ended at once")?,
            child,
            gate,
        })
    }

    /// The command begins.
    pub(crate) fn open(self) -> Child {
        // Fails only if the process is dead, and then waiting for it says why.
        let _ = rustix::io::write(&self.gate, GO);
        self.child
    }
}

/// Has the command been stopped (ctrl-Z, or by reading from a terminal that it does not have) since we last asked?
pub(crate) fn stopped(pid: Pid) -> bool {
    let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
    matches!(waitid(WaitId::Pid(pid), options), Ok(Some(status)) if status.stopped())
}

/// Collects orphans that we adopted and that have ended. Our own children are left to those who wait for them.
pub(crate) fn collect_orphans(own: &[Option<Pid>]) {
    let me = rustix::process::getpid();
    let peek = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    if !matches!(waitid(WaitId::All, peek), Ok(Some(_))) {
        return;
    }
    for process in crate::family::processes() {
        if process.dead && process.parent == Some(me) && !own.contains(&Some(process.pid)) {
            let _ = rustix::process::waitpid(Some(process.pid), rustix::process::WaitOptions::NOHANG);
        }
    }
}
