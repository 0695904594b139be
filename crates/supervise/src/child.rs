//! The command's process: it waits behind the gate, in a process group of its own.

use std::os::fd::{AsRawFd, OwnedFd};
use std::process::Stdio;

use leasehold_core::Hold;
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use tokio::process::{Child, Command};

use crate::command::{CommandSpec, Streams};
use crate::error::SuperviseError;
use crate::gate::GO_BYTE;
use crate::helper_process::{GATE_ROLE, HELPER_ARGUMENT};
use crate::process_tree::RUN_ID_VARIABLE;

/// A process that waits to execute the command. Without a helper program it does not wait.
#[derive(Debug)]
pub(crate) struct HeldChild {
    /// Executes the command when the gate opens.
    child: Child,
    /// The child's process group; its number is the child's pid.
    pub(crate) group: Pid,
    gate: Option<OwnedFd>,
}

impl HeldChild {
    /// Starts the process, which waits at the gate.
    pub(crate) fn spawn(spec: &CommandSpec, hold: &Hold, run_id: &str) -> Result<Self, SuperviseError> {
        let mut argv = spec.argv.iter();
        let (mut command, gate, _wait) = match &spec.helper {
            Some(helper) => {
                let (wait, gate) =
                    pipe_with(PipeFlags::CLOEXEC).map_err(|error| SuperviseError::Spawn(error.into()))?;
                let mut command = Command::new(helper);
                command.arg0("leasehold-gate").args([HELPER_ARGUMENT, GATE_ROLE]);
                let wait = match spec.streams {
                    Streams::Inherited => {
                        // The child inherits this end besides its three standard descriptors. All others are
                        // CLOEXEC.
                        fcntl_setfd(&wait, FdFlags::empty())
                            .map_err(|error| SuperviseError::Spawn(error.into()))?;
                        command.arg(wait.as_raw_fd().to_string());
                        Some(wait)
                    }
                    // As standard input: a descriptor without CLOEXEC would also reach other commands that
                    // are started at the same time.
                    Streams::Captured => {
                        command.arg("0").stdin(Stdio::from(wait));
                        None
                    }
                };
                command.arg(std::process::id().to_string());
                (command, Some(gate), wait)
            }
            None => {
                let mut command = Command::new(argv.next().ok_or_else(no_command)?);
                if spec.streams == Streams::Captured {
                    command.stdin(Stdio::null());
                }
                (command, None, None)
            }
        };
        if spec.streams == Streams::Captured {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        if let Some(names) = &spec.inherited {
            command.env_clear();
            command.envs(names.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
        }
        command
            .args(argv)
            // A group of its own, so that one signal reaches all processes the command starts.
            .process_group(0)
            .env(RUN_ID_VARIABLE, run_id)
            .env("LEASEHOLD_NAME", hold.name().as_str())
            // Remove the fence of an outer `run`: a wrong fence is worse than none.
            .env_remove("LEASEHOLD_FENCE")
            .envs(spec.environment.iter().map(|(name, value)| (name, value)));
        if let Ok(fence) = hold.fence() {
            command.env("LEASEHOLD_FENCE", fence.to_string());
        }
        let child = command.spawn().map_err(SuperviseError::Spawn)?;
        let group = child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?));
        Ok(Self { group: group.ok_or_else(no_command)?, child, gate })
    }

    /// Opens the gate: the command starts.
    pub(crate) fn open(self) -> Child {
        if let Some(gate) = &self.gate {
            // Fails only if the process is dead; waiting for it then reports the reason.
            let _ = rustix::io::write(gate, GO_BYTE);
        }
        self.child
    }
}

fn no_command() -> SuperviseError {
    SuperviseError::Spawn(std::io::ErrorKind::InvalidInput.into())
}

/// Whether the command was stopped since the last call, by ctrl-Z or by reading a terminal it does not own.
#[must_use]
pub fn was_stopped(pid: Pid) -> bool {
    let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
    matches!(waitid(WaitId::Pid(pid), options), Ok(Some(status)) if status.stopped())
}

/// Whether a child has ended. It stays a zombie, so its number and its group's stay taken.
pub(crate) fn has_exited(pid: Pid) -> bool {
    let peek = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    // ECHILD: it was reaped elsewhere.
    !matches!(waitid(WaitId::Pid(pid), peek), Ok(None))
}

/// Reaps adopted orphans that have ended. Tokio reaps the children in `own` itself.
pub(crate) fn reap_orphans(own: &[Option<Pid>]) {
    let me = rustix::process::getpid();
    // NOWAIT peeks without reaping, so the /proc scan below runs only when some child has ended.
    let peek = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    if !matches!(waitid(WaitId::All, peek), Ok(Some(_))) {
        return;
    }
    for process in crate::process_tree::processes() {
        if process.dead && process.parent == Some(me) && !own.contains(&Some(process.pid)) {
            let _ = rustix::process::waitpid(Some(process.pid), rustix::process::WaitOptions::NOHANG);
        }
    }
}
