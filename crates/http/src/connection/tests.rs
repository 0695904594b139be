//! A daemon at the other end of pipes, whose connections die without a word.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use leasehold_core::clock::{ClockExt, RuntimeClock, SharedClock, until};
use leasehold_core::rng::OsRandom;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use super::*;
use crate::parts::Dial;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
const SECOND: Duration = Duration::from_secs(1);

/// Answers on every connection but the first so many, and on each question for `/slow` after a minute.
struct House {
    clock: SharedClock,
    dialled: AtomicUsize,
    dead: AtomicUsize,
}

impl House {
    async fn serve(self: Arc<Self>, number: usize, mut pipe: DuplexStream) {
        let mut question = [0; 1024];
        while let Ok(read @ 1..) = pipe.read(&mut question).await {
            if question[..read].starts_with(b"GET /slow") {
                self.clock.sleep(SECOND * 60).await;
            } else {
                // As long as a question takes: two that are asked at once need two connections.
                self.clock.sleep(SECOND / 100).await;
            }
            if number < self.dead.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
            let _ = pipe.write_all(ANSWER).await;
        }
    }
}

struct Street(Arc<House>);

#[async_trait]
impl Dial for Street {
    async fn dial(&self, _: &str, _: u16) -> io::Result<Pin<Box<dyn Stream>>> {
        let (near, far) = duplex(4096);
        let number = self.0.dialled.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(Arc::clone(&self.0).serve(number, far));
        Ok(Box::pin(near))
    }
}

/// A daemon, and connections to it of which two are idle.
async fn two_idle() -> (Arc<House>, Arc<Connections>) {
    let clock = RuntimeClock::shared();
    let house = Arc::new(House {
        clock: Arc::clone(&clock),
        dialled: AtomicUsize::new(0),
        dead: AtomicUsize::new(0),
    });
    let dial = Arc::new(Street(Arc::clone(&house)));
    let parts = Parts::new(clock, OsRandom::shared(), dial);
    let options = HttpOptions::parse("http://daemon:7070").unwrap();
    let connections = Arc::new(Connections::new(options, parts).unwrap());
    let (one, two) = tokio::join!(connections.get("/one"), connections.get("/two"));
    assert_eq!((one.unwrap().status, two.unwrap().status), (200, 200));
    assert_eq!(house.dialled.load(Ordering::Relaxed), 2);
    house.clock.sleep(SECOND).await;
    (house, connections)
}

/// Which connections are dead cannot be seen from here, but those that were silent since one died are not tried one by one.
#[tokio::test(start_paused = true)]
async fn a_machine_that_vanished_costs_one_question() {
    let (house, connections) = two_idle().await;
    house.dead.store(2, Ordering::Relaxed);
    let soon = || house.clock.now() + SECOND;
    let lost = until(&*house.clock, soon(), connections.get("/lost")).await;
    assert!(lost.is_none(), "nothing can be known of it yet");
    let next = until(&*house.clock, soon(), connections.get("/next")).await;
    assert_eq!(next.expect("not on a dead one again").unwrap().status, 200);
    assert_eq!(house.dialled.load(Ordering::Relaxed), 3);
}

/// A question whose caller no longer wants the answer says nothing about connections that others were answered on meanwhile.
#[tokio::test(start_paused = true)]
async fn connections_that_were_heard_of_since_are_kept() {
    let (house, connections) = two_idle().await;
    let slow = tokio::spawn({
        let connections = Arc::clone(&connections);
        async move { connections.get("/slow").await.map(|_| ()) }
    });
    house.clock.sleep(SECOND).await;
    assert_eq!(connections.get("/quick").await.unwrap().status, 200);
    slow.abort();
    assert!(slow.await.unwrap_err().is_cancelled());
    assert_eq!(connections.get("/quick").await.unwrap().status, 200);
    assert_eq!(
        house.dialled.load(Ordering::Relaxed),
        2,
        "on the one that answered"
    );
}
