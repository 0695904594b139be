use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use leasehold_core::clock::{BootClock, Clock, ClockExt, until};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// A `redis-server` of our own, on a free port of the loopback interface and in a directory that goes with it. Killed
/// by its process id when dropped.
#[derive(Debug)]
pub struct RedisServer {
    child: Option<Child>,
    port: u16,
    args: Vec<String>,
    /// Words before `redis-server`: a program that changes something about itself and then becomes the server.
    before: Vec<OsString>,
    /// Told of each process of it that is gone.
    gone: Option<fn(u32)>,
    dir: TempDir,
}

impl RedisServer {
    /// A server without persistence.
    ///
    /// # Errors
    /// `redis-server` is not installed, or does not start.
    pub async fn start() -> io::Result<Self> {
        Self::with(&[]).await
    }

    /// A server with more arguments, e.g. `["--appendonly", "yes"]`. `{port}` and `{dir}` in them are filled in.
    ///
    /// # Errors
    /// `redis-server` is not installed, or does not start with these arguments.
    pub async fn with(args: &[&str]) -> io::Result<Self> {
        Self::under(&[], args).await
    }

    /// As [`with`](Self::with), started by these words, as in `env NAME=VALUE redis-server …`. They must become the
    /// server and not start it beside themselves, or it would survive us.
    ///
    /// # Errors
    /// As [`with`](Self::with).
    pub async fn under(before: &[OsString], args: &[&str]) -> io::Result<Self> {
        Self::watched(before, args, None).await
    }

    /// As [`under`](Self::under); `gone` hears the id of every process that was started and has ended, however this ends: what
    /// those words leave behind can be cleared away then.
    ///
    /// # Errors
    /// As [`with`](Self::with).
    pub async fn watched(before: &[OsString], args: &[&str], gone: Option<fn(u32)>) -> io::Result<Self> {
        let mut last = io::Error::other("no attempt was made");
        // The port is free when looked at, but somebody else may take it before the server does.
        for _ in 0..8 {
            let port = free_port()?;
            let mut server = Self {
                child: None,
                port,
                args: args.iter().map(|arg| (*arg).to_owned()).collect(),
                before: before.to_vec(),
                gone,
                dir: TempDir::new()?,
            };
            match server.launch().await {
                Ok(()) => return Ok(server),
                Err(err) => last = err,
            }
        }
        Err(last)
    }

    /// Where it listens.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Its port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its process, while it runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Its working directory: data files, and whatever a test puts there.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Kills it as `kill -9` does, and waits until it is gone.
    pub fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // A stopped process must go on to die of anything but SIGKILL; this is SIGKILL.
            let _ = child.kill();
            let _ = child.wait();
            if let Some(gone) = self.gone {
                gone(child.id());
            }
        }
    }

    /// Kills it and starts it again with the same port and data.
    ///
    /// # Errors
    /// It does not start again.
    pub async fn restart(&mut self) -> io::Result<()> {
        self.stop();
        self.launch().await
    }

    /// Stops it in its tracks: connections stay open, nothing answers.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = self
            .child
            .as_ref()
            .and_then(|child| Pid::from_raw(child.id().try_into().ok()?))
        {
            let _ = kill_process(pid, signal);
        }
    }

    async fn launch(&mut self) -> io::Result<()> {
        let (port, dir) = (self.port.to_string(), self.dir.path().display().to_string());
        let log = std::fs::File::create(self.log())?;
        let mut words = self
            .before
            .iter()
            .cloned()
            .chain([OsString::from("redis-server")]);
        let mut command = Command::new(words.next().unwrap_or_default());
        command
            .args(words)
            .args([
                "--bind",
                "127.0.0.1",
                "--port",
                &port,
                "--dir",
                &dir,
                "--save",
                "",
                "--daemonize",
                "no",
            ])
            .args(
                self.args
                    .iter()
                    .map(|arg| arg.replace("{port}", &port).replace("{dir}", &dir)),
            )
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .stdout(log);
        self.child = Some(command.spawn()?);
        let clock = BootClock;
        let end = clock.now() + Duration::from_secs(30);
        let ready = until(&clock, end, async {
            while !(self.says_so() && self.answers()) {
                if let Some(status) = self
                    .child
                    .as_mut()
                    .and_then(|child| child.try_wait().ok().flatten())
                {
                    return Err(io::Error::other(format!("redis-server ended: {status}")));
                }
                clock.sleep(Duration::from_millis(10)).await;
            }
            Ok(())
        });
        match ready.await {
            Some(done) => done,
            None => Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "redis-server did not answer",
            )),
        }
    }

    fn log(&self) -> PathBuf {
        self.dir.path().join("server.log")
    }

    /// It says itself that it listens. Somebody else's server may have taken the port first, and would answer just as well, until it
    /// is gone.
    fn says_so(&self) -> bool {
        std::fs::read_to_string(self.log()).is_ok_and(|log| log.contains("Ready to accept connections"))
    }

    /// It answers *and* has finished loading. Without TLS and whatever its ACL: an error reply is an answer.
    fn answers(&self) -> bool {
        // A server that only listens for TLS has its plain port at 0; that its TLS port accepts must do.
        let tls_only = self.args.iter().any(|arg| arg == "--tls-port");
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        let asked = || -> io::Result<bool> {
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
        asked().unwrap_or(false)
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
    async fn a_server_on_somebody_elses_port_has_not_started() {
        let theirs = RedisServer::start().await.unwrap();
        let mut ours = RedisServer::start().await.unwrap();
        ours.stop();
        ours.port = theirs.port();
        let refused = ours.launch().await.unwrap_err();
        assert!(refused.to_string().contains("redis-server ended"), "{refused}");
    }
}
