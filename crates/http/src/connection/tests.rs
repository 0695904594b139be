//! Tests of the connection pool against a daemon at the other end of pipes, whose connections die
//! silently.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use leasehold_core::clock::{ClockExt, RuntimeClock, SharedClock, run_until};
use leasehold_core::rng::OsRandom;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use super::*;
use crate::environment::Connector;

const OK_RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
const SECOND: Duration = Duration::from_secs(1);

/// Answers on every connection but the first `dead_connections`; a request for `/slow` takes a
/// minute.
struct FakeServer {
    clock: SharedClock,
    connections_opened: AtomicUsize,
    dead_connections: AtomicUsize,
}

impl FakeServer {
    async fn serve(self: Arc<Self>, number: usize, mut pipe: DuplexStream) {
        let mut question = [0; 1024];
        while let Ok(read @ 1..) = pipe.read(&mut question).await {
            if question[..read].starts_with(b"GET /slow") {
                self.clock.sleep(SECOND * 60).await;
            } else {
                // A request takes some time, so that two concurrent ones need two connections.
                self.clock.sleep(SECOND / 100).await;
            }
            if number < self.dead_connections.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
            let _ = pipe.write_all(OK_RESPONSE).await;
        }
    }
}

struct FakeNetwork(Arc<FakeServer>);

#[async_trait]
impl Connector for FakeNetwork {
    async fn connect(&self, _: &str, _: u16) -> io::Result<Pin<Box<dyn Stream>>> {
        let (near, far) = duplex(4096);
        let number = self.0.connections_opened.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(Arc::clone(&self.0).serve(number, far));
        Ok(Box::pin(near))
    }
}

/// A daemon and a pool with two idle connections to it.
async fn pool_with_two_idle() -> (Arc<FakeServer>, Arc<Connections>) {
    let clock = RuntimeClock::shared();
    let server = Arc::new(FakeServer {
        clock: Arc::clone(&clock),
        connections_opened: AtomicUsize::new(0),
        dead_connections: AtomicUsize::new(0),
    });
    let dial = Arc::new(FakeNetwork(Arc::clone(&server)));
    let parts = Environment::new(clock, OsRandom::shared(), dial);
    let options = HttpOptions::parse("http://daemon:7070").unwrap();
    let connections = Arc::new(Connections::new(options, parts).unwrap());
    let (one, two) = tokio::join!(connections.get("/one"), connections.get("/two"));
    assert_eq!((one.unwrap().status, two.unwrap().status), (200, 200));
    assert_eq!(server.connections_opened.load(Ordering::Relaxed), 2);
    server.clock.sleep(SECOND).await;
    (server, connections)
}

/// Dead connections cannot be told apart, but those silent since one died are not tried one by one.
#[tokio::test(start_paused = true)]
async fn a_vanished_machine_costs_one_request() {
    let (server, connections) = pool_with_two_idle().await;
    server.dead_connections.store(2, Ordering::Relaxed);
    let soon = || server.clock.now() + SECOND;
    let lost = run_until(&*server.clock, soon(), connections.get("/lost")).await;
    assert!(lost.is_none(), "nothing can be known of it yet");
    let next = run_until(&*server.clock, soon(), connections.get("/next")).await;
    assert_eq!(next.expect("not on a dead one again").unwrap().status, 200);
    assert_eq!(server.connections_opened.load(Ordering::Relaxed), 3);
}

/// A cancelled request says nothing about connections that were used successfully in the meantime.
#[tokio::test(start_paused = true)]
async fn connections_used_since_are_kept() {
    let (server, connections) = pool_with_two_idle().await;
    let slow = tokio::spawn({
        let connections = Arc::clone(&connections);
        async move { connections.get("/slow").await.map(|_| ()) }
    });
    server.clock.sleep(SECOND).await;
    assert_eq!(connections.get("/quick").await.unwrap().status, 200);
    slow.abort();
    assert!(slow.await.unwrap_err().is_cancelled());
    assert_eq!(connections.get("/quick").await.unwrap().status, 200);
    assert_eq!(server.connections_opened.load(Ordering::Relaxed), 2, "on the one that answered");
}
