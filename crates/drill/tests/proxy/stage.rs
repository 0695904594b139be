//! What every test needs: a server that echoes and remembers, a client, and patience with a limit.

use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold_core::clock::{BootClock, Clock, ClockExt, Moment, until};
use leasehold_drill::proxy::{Config, Proxy};
use leasehold_redis::testkit::RedisServer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Long enough for a loaded machine; no test waits for it unless it fails.
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs `work`, or fails with what was waited for.
pub(crate) async fn within<F: Future>(what: &str, work: F) -> F::Output {
    let done = until(&BootClock, BootClock.now() + PATIENCE, work).await;
    done.unwrap_or_else(|| panic!("waited for {what}, in vain"))
}

/// Asks until it is so.
pub(crate) async fn eventually(what: &str, mut so: impl FnMut() -> bool) {
    within(what, async {
        while !so() {
            BootClock.sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// Measures how long something took at least.
pub(crate) struct Watch(Moment);

impl Watch {
    pub(crate) fn start() -> Self {
        Self(BootClock.now())
    }

    pub(crate) fn elapsed(&self) -> Duration {
        BootClock.now().since(self.0)
    }
}

/// A server that sends back what it gets, and remembers it.
pub(crate) struct Echo {
    pub(crate) address: SocketAddr,
    heard: Arc<Mutex<Vec<u8>>>,
    /// How many connections have come.
    met: Arc<AtomicUsize>,
    /// How the connections ended, in that order: EOF or the error.
    ends: Arc<Mutex<Vec<Option<io::ErrorKind>>>>,
    task: JoinHandle<()>,
}

impl Echo {
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
        Self {
            address,
            heard,
            met,
            ends,
            task,
        }
    }

    /// Everything that came, over all connections.
    pub(crate) fn heard(&self) -> Vec<u8> {
        self.heard.lock().unwrap().clone()
    }

    /// How many connections have come.
    pub(crate) fn met(&self) -> usize {
        self.met.load(Ordering::Relaxed)
    }

    pub(crate) fn ends(&self) -> Vec<Option<io::ErrorKind>> {
        self.ends.lock().unwrap().clone()
    }
}

impl Drop for Echo {
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
pub(crate) async fn echo_proxy() -> (Echo, Proxy) {
    let echo = Echo::start().await;
    let proxy = Proxy::start(Config::raw(echo.address).seed(7)).await.unwrap();
    (echo, proxy)
}

/// A Redis server behind a proxy.
pub(crate) async fn redis_proxy(seed: u64) -> (RedisServer, Proxy) {
    let server = RedisServer::start()
        .await
        .expect("redis-server must be installed");
    let upstream = SocketAddr::from((Ipv4Addr::LOCALHOST, server.port()));
    let proxy = Proxy::start(Config::resp(upstream).seed(seed)).await.unwrap();
    (server, proxy)
}

/// A plain client.
pub(crate) struct Client(pub(crate) TcpStream);

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        Self(within("a connection", TcpStream::connect(address)).await.unwrap())
    }

    pub(crate) async fn to_port(port: u16) -> Self {
        Self::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await
    }

    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        within("a write", self.0.write_all(bytes.as_ref())).await.unwrap();
    }

    /// Exactly so many bytes.
    pub(crate) async fn receive(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        within("an answer", self.0.read_exact(&mut bytes)).await.unwrap();
        bytes
    }

    /// Everything up to the end, and how that came.
    pub(crate) async fn rest(&mut self) -> (Vec<u8>, Option<io::ErrorKind>) {
        let mut bytes = Vec::new();
        let end = within("the end", self.0.read_to_end(&mut bytes)).await;
        (bytes, end.err().map(|error| error.kind()))
    }

    /// Sends and waits for exactly this answer.
    pub(crate) async fn expect(&mut self, send: &str, answer: &str) {
        self.send(send).await;
        let got = self.receive(answer.len()).await;
        assert_eq!(String::from_utf8_lossy(&got), answer, "to {send:?}");
    }

    /// Nothing comes for a while. Cannot fail by being slow; only something coming fails it.
    pub(crate) async fn silence(&mut self) {
        let mut byte = [0];
        let soon = BootClock.now() + Duration::from_millis(150);
        let got = until(&BootClock, soon, self.0.peek(&mut byte)).await;
        assert!(got.is_none(), "silence expected, not {got:?}");
    }
}
