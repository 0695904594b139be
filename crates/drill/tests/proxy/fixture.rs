//! Fixtures of the proxy tests: an echo server that keeps what it received, a client, and waits
//! with a timeout.

use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold_core::clock::{BootClock, Clock, ClockExt, Moment, run_until};
use leasehold_drill::proxy::{Proxy, ProxyConfig};
use leasehold_redis::testkit::RedisServer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

// Long enough for a loaded machine. Only a failing test waits this long.
const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// Runs `work`, and panics after the timeout, naming `what` it waited for.
pub(crate) async fn with_timeout<F: Future>(what: &str, work: F) -> F::Output {
    let done = run_until(&BootClock, BootClock.now() + TEST_TIMEOUT, work).await;
    done.unwrap_or_else(|| panic!("waited for {what}, in vain"))
}

/// Polls until the condition is true.
pub(crate) async fn eventually(what: &str, mut so: impl FnMut() -> bool) {
    with_timeout(what, async {
        while !so() {
            BootClock.sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// A stopwatch. Tests assert lower bounds only: a loaded machine makes everything slower.
pub(crate) struct Stopwatch(Moment);

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self(BootClock.now())
    }

    pub(crate) fn elapsed(&self) -> Duration {
        BootClock.now().since(self.0)
    }
}

/// A server that sends back what it receives, and keeps a copy.
pub(crate) struct EchoServer {
    pub(crate) address: SocketAddr,
    received: Arc<Mutex<Vec<u8>>>,
    connection_count: Arc<AtomicUsize>,
    /// How each connection ended, in order of their ends: none for EOF, or the error.
    connection_ends: Arc<Mutex<Vec<Option<io::ErrorKind>>>>,
    task: JoinHandle<()>,
}

impl EchoServer {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let heard = Arc::<Mutex<Vec<u8>>>::default();
        let ends = Arc::<Mutex<Vec<Option<io::ErrorKind>>>>::default();
        let (hears, finishes) = (Arc::clone(&heard), Arc::clone(&ends));
        let met = Arc::<AtomicUsize>::default();
        let meets = Arc::clone(&met);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                meets.fetch_add(1, Ordering::Relaxed);
                let (hears, finishes) = (Arc::clone(&hears), Arc::clone(&finishes));
                tokio::spawn(async move {
                    let end = echo(stream, &hears).await.err().map(|error| error.kind());
                    finishes.lock().unwrap().push(end);
                });
            }
        });
        Self { address, received: heard, connection_count: met, connection_ends: ends, task }
    }

    /// All bytes received, over all connections.
    pub(crate) fn received(&self) -> Vec<u8> {
        self.received.lock().unwrap().clone()
    }

    /// Number of accepted connections.
    pub(crate) fn connection_count(&self) -> usize {
        self.connection_count.load(Ordering::Relaxed)
    }

    pub(crate) fn connection_ends(&self) -> Vec<Option<io::ErrorKind>> {
        self.connection_ends.lock().unwrap().clone()
    }
}

impl Drop for EchoServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn echo(mut stream: TcpStream, heard: &Mutex<Vec<u8>>) -> io::Result<()> {
    let mut buffer = vec![0; 16 << 10];
    loop {
        let got = stream.read(&mut buffer).await?;
        if got == 0 {
            return Ok(());
        }
        heard.lock().unwrap().extend_from_slice(&buffer[..got]);
        stream.write_all(&buffer[..got]).await?;
    }
}

/// An echo server behind a proxy.
pub(crate) async fn echo_proxy() -> (EchoServer, Proxy) {
    let echo = EchoServer::start().await;
    let proxy = Proxy::start(ProxyConfig::raw(echo.address).seed(7)).await.unwrap();
    (echo, proxy)
}

/// A Redis server behind a proxy.
pub(crate) async fn redis_proxy(seed: u64) -> (RedisServer, Proxy) {
    let server = RedisServer::start().await.expect("redis-server must be installed");
    let upstream = SocketAddr::from((Ipv4Addr::LOCALHOST, server.port()));
    let proxy = Proxy::start(ProxyConfig::resp(upstream).seed(seed)).await.unwrap();
    (server, proxy)
}

/// A TCP client with a timeout on every operation.
pub(crate) struct Client(pub(crate) TcpStream);

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        Self(with_timeout("a connection", TcpStream::connect(address)).await.unwrap())
    }

    pub(crate) async fn to_port(port: u16) -> Self {
        Self::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await
    }

    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        with_timeout("a write", self.0.write_all(bytes.as_ref())).await.unwrap();
    }

    /// Receives exactly `count` bytes.
    pub(crate) async fn receive(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        with_timeout("an answer", self.0.read_exact(&mut bytes)).await.unwrap();
        bytes
    }

    /// Reads until the connection ends. Returns the bytes, and the error unless it was EOF.
    pub(crate) async fn read_to_end(&mut self) -> (Vec<u8>, Option<io::ErrorKind>) {
        let mut bytes = Vec::new();
        let end = with_timeout("the end", self.0.read_to_end(&mut bytes)).await;
        (bytes, end.err().map(|error| error.kind()))
    }

    /// Sends text and expects exactly this answer.
    pub(crate) async fn expect(&mut self, send: &str, answer: &str) {
        self.send(send).await;
        let got = self.receive(answer.len()).await;
        assert_eq!(String::from_utf8_lossy(&got), answer, "to {send:?}");
    }

    /// Expects that no data arrives for a while. A slow machine cannot fail it; only data can.
    pub(crate) async fn expect_silence(&mut self) {
        let mut byte = [0];
        let soon = BootClock.now() + Duration::from_millis(150);
        let got = run_until(&BootClock, soon, self.0.peek(&mut byte)).await;
        assert!(got.is_none(), "silence expected, not {got:?}");
    }
}
