//! Starting, disabling, enabling and stopping a proxy.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use leasehold_core::clock::{BootClock, Clock, Moment, RuntimeClock, SharedClock, Sleep, run_until};
use leasehold_drill::proxy::{Error, Proxy, ProxyConfig, serve};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

use super::fixture::{Client, EchoServer, echo_proxy, eventually, with_timeout};

async fn is_refused(address: SocketAddr) -> bool {
    let error = with_timeout("an answer", TcpStream::connect(address)).await.err();
    error.is_some_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

#[tokio::test]
async fn disable_closes_connections_and_enable_keeps_the_port() {
    let (_echo, proxy) = echo_proxy().await;
    let mut client = Client::connect(proxy.address()).await;
    client.expect("hello", "hello").await;
    proxy.disable().await.unwrap();
    assert!(!proxy.is_enabled());
    assert_eq!(client.read_to_end().await, (vec![], None));
    assert!(is_refused(proxy.address()).await);
    assert_eq!(proxy.stats().open, 0);
    assert_eq!(proxy.history()[0].kind, "down");
    proxy.heal().await.unwrap();
    Client::connect(proxy.address()).await.expect("again", "again").await;
}

#[tokio::test]
async fn a_disabled_proxy_keeps_its_port() {
    let (echo, proxy) = echo_proxy().await;
    // Disabled at once, before the proxy's own task has run.
    with_timeout("the proxy to go down", proxy.disable()).await.unwrap();
    // Neither a socket with SO_REUSEADDR, which tokio sets here, nor another proxy can take the
    // port.
    assert!(TcpListener::bind(proxy.address()).await.is_err());
    let another = ProxyConfig::raw(echo.address).listen(proxy.address());
    assert!(matches!(Proxy::start(another).await, Err(Error::Bind { .. })));
    proxy.enable().await.unwrap();
    assert!(!is_refused(proxy.address()).await);
}

#[tokio::test]
async fn the_port_of_a_stopped_proxy_is_free_for_the_next() {
    let (echo, proxy) = echo_proxy().await;
    let address = proxy.address();
    let mut client = Client::connect(address).await;
    client.expect("hello", "hello").await;
    // The proxy closes first, so the connection lingers on its side (TIME_WAIT).
    with_timeout("the stop", proxy.stop()).await;
    client.read_to_end().await;
    drop(client);
    let next = Proxy::start(ProxyConfig::raw(echo.address).listen(address)).await.unwrap();
    Client::connect(next.address()).await.expect("hello", "hello").await;
}

// On several threads: on one thread the connections would always end before the task that waits for
// them.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn stopping_leaves_no_connection_and_no_listener() {
    let (echo, proxy) = echo_proxy().await;
    // Some connections are active, some are held and some are delayed: all must end.
    proxy.add("timeout timeout=0 toxicity=0.3 stream=upstream".parse().unwrap()).unwrap();
    proxy.add("latency latency=3600000 toxicity=0.3".parse().unwrap()).unwrap();
    let mut clients = Vec::new();
    for _ in 0..200 {
        let mut client = Client::connect(proxy.address()).await;
        client.send("hello").await;
        clients.push(client);
    }
    // The proxy counts a connection before it has connected to the server.
    eventually("all to be there", || (proxy.stats().open, echo.connection_count()) == (200, 200)).await;
    let address = proxy.address();
    let handle = proxy.handle();
    let report = with_timeout("the stop", proxy.stop()).await;
    assert_eq!((report.stats.connections, report.stats.open), (200, 0));
    assert!(is_refused(address).await);
    for mut client in clients {
        client.read_to_end().await;
    }
    eventually("the server to be left", || echo.connection_ends().len() == 200).await;
    assert!(matches!(handle.heal().await, Err(Error::Stopped)));
}

/// The real clock. After it is switched on, reading it takes 200 ms, as on a machine that is slow
/// at that point.
#[derive(Debug, Default)]
struct SlowClock(AtomicBool);

impl Clock for SlowClock {
    #[allow(clippy::disallowed_methods, reason = "it is slow on purpose, and on a thread of its own")]
    fn now(&self) -> Moment {
        if self.0.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(200));
        }
        BootClock.now()
    }

    fn sleep_until(&self, at: Moment) -> Sleep {
        BootClock.sleep_until(at)
    }

    fn wall(&self) -> SystemTime {
        BootClock.wall()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn disable_waits_for_the_slowest_connection() {
    let echo = EchoServer::start().await;
    let clock = Arc::new(SlowClock::default());
    let shared: SharedClock = Arc::<SlowClock>::clone(&clock);
    let proxy = Proxy::start(ProxyConfig::raw(echo.address).clock(shared)).await.unwrap();
    let mut client = Client::connect(proxy.address()).await;
    client.expect("hello", "hello").await;
    // From here on the clock is read only to record the fault, when the connection is closed.
    clock.0.store(true, Ordering::Relaxed);
    with_timeout("the proxy to go down", proxy.disable()).await.unwrap();
    assert_eq!(proxy.stats().open, 0);
}

#[tokio::test]
async fn dropping_the_owner_stops_the_proxy() {
    let (_echo, proxy) = echo_proxy().await;
    let mut client = Client::connect(proxy.address()).await;
    client.expect("hello", "hello").await;
    drop(proxy);
    assert!(client.read_to_end().await.0.is_empty());
}

#[tokio::test]
async fn an_unreachable_server_resets_the_connection() {
    let gone = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = gone.local_addr().unwrap();
    drop(gone);
    let proxy = Proxy::start(ProxyConfig::raw(address)).await.unwrap();
    let mut client = Client::connect(proxy.address()).await;
    assert_eq!(client.read_to_end().await, (vec![], Some(ErrorKind::ConnectionReset)));
    assert_eq!(proxy.stats().unreachable, 1);
}

#[tokio::test]
async fn buffered_data_is_bounded() {
    let echo = EchoServer::start().await;
    let proxy = Proxy::start(ProxyConfig::raw(echo.address).buffer(64 << 10)).await.unwrap();
    proxy.add("latency latency=3600000 stream=upstream".parse().unwrap()).unwrap();
    let mut client = Client::connect(proxy.address()).await;
    let (block, mut taken) = (vec![0; 64 << 10], 0usize);
    // Ends when the kernel's buffers are full as well. Without the limit it would never end.
    while let Some(wrote) =
        run_until(&BootClock, BootClock.now() + Duration::from_millis(500), client.0.write(&block)).await
    {
        taken += wrote.unwrap();
        assert!(taken < 256 << 20, "a proxy that reads on without end");
    }
    assert_eq!(proxy.stats().bytes_upstream, 0);
}

#[tokio::test]
async fn the_number_of_connections_is_bounded() {
    let echo = EchoServer::start().await;
    let proxy = Proxy::start(ProxyConfig::raw(echo.address).connections(1)).await.unwrap();
    let mut first = Client::connect(proxy.address()).await;
    first.expect("one", "one").await;
    let mut second = Client::connect(proxy.address()).await;
    second.send("two").await;
    second.expect_silence().await;
    drop(first);
    assert_eq!(second.receive(3).await, b"two");
}

#[tokio::test]
async fn only_the_loopback_interface_unless_exposed() {
    let (echo, proxy) = echo_proxy().await;
    let everywhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    for config in [
        ProxyConfig::raw(echo.address).listen(everywhere),
        ProxyConfig::raw(echo.address).control(everywhere),
    ] {
        assert!(matches!(Proxy::start(config).await, Err(Error::Exposed { .. })));
    }
    let told = ProxyConfig::raw(echo.address).listen(everywhere).expose();
    Proxy::start(told).await.unwrap();
    let taken = ProxyConfig::raw(echo.address).listen(proxy.address());
    assert!(matches!(Proxy::start(taken).await, Err(Error::Bind { .. })));
}

#[tokio::test]
async fn history_is_bounded_and_counts_the_rest() {
    let echo = EchoServer::start().await;
    let proxy = Proxy::start(ProxyConfig::raw(echo.address).history(2)).await.unwrap();
    proxy.add("reset_peer".parse().unwrap()).unwrap();
    for _ in 0..3 {
        Client::connect(proxy.address()).await.read_to_end().await;
    }
    assert_eq!((proxy.history().len(), proxy.stats().forgotten), (2, 1));
    assert_eq!(proxy.stats().faults.get("reset_peer"), Some(&3));
}

#[tokio::test]
async fn serve_runs_until_shutdown_and_reports() {
    let echo = EchoServer::start().await;
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = port.local_addr().unwrap();
    drop(port);
    let shutdown = async {
        Client::connect(address).await.expect("hello", "hello").await;
    };
    let report = serve(ProxyConfig::raw(echo.address).listen(address), shutdown).await.unwrap();
    assert_eq!((report.stats.connections, report.stats.open), (1, 0));
}

/// On a paused clock hours of latency pass at once: delays depend on the injected clock only.
#[tokio::test(start_paused = true)]
async fn delays_are_counted_on_the_injected_clock() {
    let echo = EchoServer::start().await;
    let clock = RuntimeClock::shared();
    let proxy = Proxy::start(ProxyConfig::raw(echo.address).clock(Arc::clone(&clock))).await.unwrap();
    proxy.add("latency latency=7200000".parse().unwrap()).unwrap();
    let before = clock.now();
    let mut client = TcpStream::connect(proxy.address()).await.unwrap();
    client.write_all(b"x").await.unwrap();
    let mut byte = [0];
    tokio::io::AsyncReadExt::read_exact(&mut client, &mut byte).await.unwrap();
    assert!(clock.now().since(before) >= Duration::from_secs(7200));
}
