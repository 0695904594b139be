//! Processes that a test starts, and that end with it.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command};

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process};

/// A child process that is killed, by its id, when this is dropped; stopped or not, nothing is left behind.
#[derive(Debug)]
pub struct ChildGuard(Child);

impl ChildGuard {
    /// Starts the command.
    ///
    /// # Errors
    /// It could not be started.
    pub fn spawn(command: &mut Command) -> anyhow::Result<Self> {
        let child = command
            .spawn()
            .with_context(|| format!("{} could not be started", command.get_program().display()))?;
        Ok(Self(child))
    }

    /// The process's id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// The child itself, e.g. for its pipes.
    pub fn child(&mut self) -> &mut Child {
        &mut self.0
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// The process has ended already.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        let pid = i32::try_from(self.id()).ok().and_then(Pid::from_raw);
        // The child is not waited for before it is dropped, so its id cannot be another process's by now.
        kill_process(pid.ok_or(io::ErrorKind::NotFound)?, signal).map_err(io::Error::from)
    }

    /// Kills it (`kill -9`) and waits until it is gone.
    ///
    /// # Errors
    /// It could not be waited for.
    pub fn kill(&mut self) -> io::Result<()> {
        // Ended already is as good as killed.
        let _ = self.0.kill();
        self.0.wait().map(drop)
    }
}

impl Drop for ChildGuard {
    fn drop(&mut self) {
        // Whatever went wrong, there is nobody left to tell.
        let _ = self.kill();
    }
}

/// A port on 127.0.0.1 that nobody used a moment ago, for a server that a test starts. Another process may take
/// it first: a server that cannot bind is started again on the next one.
///
/// # Errors
/// There is none.
pub fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopped_child_ends_with_its_guard() {
        let child = ChildGuard::spawn(Command::new("sleep").arg("1000")).unwrap();
        child.signal(Signal::STOP).unwrap();
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        drop(child);
        assert!(rustix::process::test_kill_process(pid).is_err());
    }

    #[test]
    fn free_ports_can_be_bound() {
        TcpListener::bind((Ipv4Addr::LOCALHOST, free_port().unwrap())).unwrap();
    }
}
