//! A `redis-server` process that lives as long as its test.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use leasehold_core::clock::{BootClock, Clock, ClockExt};
use leasehold_fence::redis::RedisFence;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, FromRedisValue};

/// Generous for slow machines: the tests assert nothing about speed.
pub(crate) const STARTUP_TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) struct Server {
    child: Child,
    folder: tempfile::TempDir,
}

impl Server {
    /// Listens on a socket in a temporary folder, since another process could take a port.
    pub(crate) async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let child = Command::new("redis-server")
            .args(["--port", "0", "--unixsocket", "redis.sock", "--save", "", "--appendonly", "no"])
            .arg("--dir")
            .arg(folder.path())
            .current_dir(folder.path())
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server must be installed");
        let server = Self { child, folder };
        eventually(async || server.try_connect("", STARTUP_TIMEOUT).await.ok().map(drop)).await;
        server
    }

    async fn try_connect(&self, user: &str, timeout: Duration) -> redis::RedisResult<MultiplexedConnection> {
        let socket = self.folder.path().join("redis.sock");
        let client = Client::open(format!("redis+unix://{}{user}", socket.display()))?;
        let config = AsyncConnectionConfig::new().set_response_timeout(Some(timeout));
        client.get_multiplexed_async_connection_with_config(&config).await
    }

    pub(crate) async fn connection(&self) -> MultiplexedConnection {
        self.try_connect("", STARTUP_TIMEOUT).await.unwrap()
    }

    pub(crate) async fn kit(&self) -> RedisFence<MultiplexedConnection> {
        RedisFence::new(self.connection().await)
    }

    /// Connects as this user, created with `ACL SETUSER … nopass`.
    #[allow(dead_code)]
    pub(crate) async fn kit_of(&self, user: &str) -> RedisFence<MultiplexedConnection> {
        let connection = self.try_connect(&format!("?user={user}&pass=any"), STARTUP_TIMEOUT).await;
        RedisFence::new(connection.unwrap())
    }

    #[allow(dead_code)]
    pub(crate) async fn impatient_kit(&self, timeout: Duration) -> RedisFence<MultiplexedConnection> {
        RedisFence::new(self.try_connect("", timeout).await.unwrap())
    }

    /// Runs one command, its words separated by spaces.
    pub(crate) async fn run_command<T: FromRedisValue>(&self, command: &str) -> T {
        let mut words = command.split(' ');
        let mut spoken = redis::cmd(words.next().unwrap());
        for word in words {
            spoken.arg(word);
        }
        spoken.query_async(&mut self.connection().await).await.unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Retries until the attempt succeeds, and panics if it never does.
pub(crate) async fn eventually<T>(mut attempt: impl AsyncFnMut() -> Option<T>) -> T {
    let end = BootClock.now() + STARTUP_TIMEOUT;
    loop {
        if let Some(done) = attempt().await {
            return done;
        }
        assert!(BootClock.now() < end, "it did not happen in {STARTUP_TIMEOUT:?}");
        BootClock.sleep(Duration::from_millis(10)).await;
    }
}
