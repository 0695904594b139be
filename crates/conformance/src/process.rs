//! Child processes that end with the test that started them.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command};

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process};

/// A child process that is killed, by its id, when the guard is dropped, even if it is stopped.
#[derive(Debug)]
pub struct ChildGuard(Child);

impl ChildGuard {
    /// Starts the command.
    ///
    /// # Errors
    /// The command could not be started.
    pub fn spawn(command: &mut Command) -> anyhow::Result<Self> {
        let child = command
            .spawn()
            .with_context(|| format!("{} could not be started", command.get_program().display()))?;
        Ok(Self(child))
    }

    /// The process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// The child itself, e.g. for its pipes.
    pub fn child(&mut self) -> &mut Child {
        &mut self.0
    }

    /// Sends a signal to the child.
    ///
    /// # Errors
    /// The process has already ended.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        let pid = i32::try_from(self.id()).ok().and_then(Pid::from_raw);
        // The id cannot belong to another process: the child is not reaped
        // before the guard is dropped.
        kill_process(pid.ok_or(io::ErrorKind::NotFound)?, signal).map_err(io::Error::from)
    }

    /// Kills the child (`kill -9`) and waits until it has ended.
    ///
    /// # Errors
    /// Waiting for the child failed.
    pub fn kill(&mut self) -> io::Result<()> {
        // An error means that the child has already ended.
        let _ = self.0.kill();
        self.0.wait().map(drop)
    }
}

impl Drop for ChildGuard {
    fn drop(&mut self) {
        // An error cannot be reported from here.
        let _ = self.kill();
    }
}

/// A port on 127.0.0.1 that was free a moment ago, for a server that a test starts. Another process
/// may take it first, so a server that cannot bind needs another attempt.
///
/// # Errors
/// No port is free.
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
