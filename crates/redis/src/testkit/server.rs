use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use leasehold_core::clock::{BootClock, Clock, ClockExt, run_until};
use leasehold_core::testbed::ProcessWrapper;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// A `redis-server` process on a free loopback port, with a temporary directory. Killed by
/// its process id when dropped.
#[derive(Debug)]
pub struct RedisServer {
    child: Option<Child>,
    port: u16,
    args: Vec<String>,
    wrapper: ProcessWrapper,
    dir: TempDir,
}

impl RedisServer {
    /// Starts a server without persistence.
    ///
    /// # Errors
    /// `redis-server` is not installed, or does not start.
    pub async fn start() -> io::Result<Self> {
        Self::start_with(&[]).await
    }

    /// Starts a server with more arguments, e.g. `["--appendonly", "yes"]`. Replaces
    /// `{port}` and `{dir}` in them.
    ///
    /// # Errors
    /// `redis-server` is not installed, or does not start with these arguments.
    pub async fn start_with(args: &[&str]) -> io::Result<Self> {
        Self::start_wrapped(ProcessWrapper::default(), args).await
    }

    /// As [`start_with`](Self::start_with), with a command in front of `redis-server`.
    ///
    /// # Errors
    /// As [`start_with`](Self::start_with).
    pub async fn start_wrapped(wrapper: ProcessWrapper, args: &[&str]) -> io::Result<Self> {
        let mut last = io::Error::other("no attempt was made");
        // The port is free now, but another process may take it before the server does.
        for _ in 0..8 {
            let port = free_port()?;
            let mut server = Self {
                child: None,
                port,
                args: args.iter().map(|arg| (*arg).to_owned()).collect(),
                wrapper: wrapper.clone(),
                dir: TempDir::new()?,
            };
            match server.launch().await {
                Ok(()) => return Ok(server),
                Err(err) => last = err,
            }
        }
        Err(last)
    }

    /// The URL of the server.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// The port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The process id, while the server runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// The working directory, with data files and files that a test puts there.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Kills the server with SIGKILL and waits until it has ended.
    pub fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // SIGKILL also ends a process that SIGSTOP has stopped.
            let _ = child.kill();
            let _ = child.wait();
            if let Some(gone) = self.wrapper.on_exit {
                gone(child.id());
            }
        }
    }

    /// Kills the server and starts it again with the same port and data.
    ///
    /// # Errors
    /// The server does not start again.
    pub async fn restart(&mut self) -> io::Result<()> {
        self.stop();
        self.launch().await
    }

    /// Stops the process with SIGSTOP: connections stay open, but it does not respond.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Continues the process with SIGCONT.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = self.child.as_ref().and_then(|child| Pid::from_raw(child.id().try_into().ok()?)) {
            let _ = kill_process(pid, signal);
        }
    }

    async fn launch(&mut self) -> io::Result<()> {
        let (port, dir) = (self.port.to_string(), self.dir.path().display().to_string());
        let log = std::fs::File::create(self.log_path())?;
        let mut words = self.wrapper.prefix.iter().cloned().chain([OsString::from("redis-server")]);
        let mut command = Command::new(words.next().unwrap_or_default());
        command
            .args(words)
            .args(["--bind", "127.0.0.1", "--port", &port, "--dir", &dir, "--save", "", "--daemonize", "no"])
            .args(self.args.iter().map(|arg| arg.replace("{port}", &port).replace("{dir}", &dir)))
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .stdout(log);
        self.child = Some(command.spawn()?);
        let clock = BootClock;
        let end = clock.now() + Duration::from_secs(30);
        let ready = run_until(&clock, end, async {
            while !(self.is_ready_in_log() && self.is_serving()) {
                if let Some(status) = self.child.as_mut().and_then(|child| child.try_wait().ok().flatten()) {
                    return Err(io::Error::other(format!("redis-server ended: {status}")));
                }
                clock.sleep(Duration::from_millis(10)).await;
            }
            Ok(())
        });
        match ready.await {
            Some(done) => done?,
            None => return Err(io::Error::new(io::ErrorKind::TimedOut, "redis-server did not answer")),
        }
        if let (Some(started), Some(pid)) = (self.wrapper.on_start, self.pid()) {
            started(pid);
        }
        Ok(())
    }

    fn log_path(&self) -> PathBuf {
        self.dir.path().join("server.log")
    }

    /// Whether the server's own log says that it listens. Another server may have taken the port
    /// first, and its replies would look the same.
    fn is_ready_in_log(&self) -> bool {
        std::fs::read_to_string(self.log_path()).is_ok_and(|log| log.contains("Ready to accept connections"))
    }

    /// Whether the server responds and has finished loading. Any ACL will do,
    /// since an error is a reply too.
    fn is_serving(&self) -> bool {
        // With `--tls-port` the plain port is 0. An accepted TCP connection has to suffice.
        let tls_only = self.args.iter().any(|arg| arg == "--tls-port");
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        let answers = || -> io::Result<bool> {
            let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
            if tls_only {
                return Ok(true);
            }
            stream.set_read_timeout(Some(Duration::from_secs(1)))?;
            stream.write_all(b"PING\r\n")?;
            let mut answer = [0; 64];
            let got = stream.read(&mut answer)?;
            Ok(got > 0 && !answer.starts_with(b"-LOADING"))
        };
        answers().unwrap_or(false)
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.stop();
    }
}

fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[tokio::test]
    async fn server_on_a_taken_port_does_not_start() {
        let theirs = RedisServer::start().await.unwrap();
        let mut ours = RedisServer::start().await.unwrap();
        ours.stop();
        ours.port = theirs.port();
        let refused = ours.launch().await.unwrap_err();
        assert!(refused.to_string().contains("redis-server ended"), "{refused}");
    }
}
