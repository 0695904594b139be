//! Waiting: woken by the release, in order, one at a time; without hints, within one poll interval.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::fixture::{Client, Fixture, assert_at, ms, name, run_ready_tasks, secs};
use leasehold_core::acquire::MAX_POLL_INTERVAL;
use leasehold_core::adapter::StoreOp;
use leasehold_core::clock::Moment;
use leasehold_core::rng::OsRandom;
use leasehold_core::store::{AcquireRequest, AcquireResponse, HANDOVER_CLAIM_TTL};
use leasehold_core::{Acquired, Hold, Holder, Token, Ttl};
use tokio::task::JoinHandle;

/// Spawns a waiter that records when it was granted.
fn spawn_waiter(fixture: &Fixture, client: &Client, wait: Duration) -> JoinHandle<(Moment, Hold)> {
    let clock = Arc::clone(&fixture.clock);
    let requests = client.class("scheduler").wait(wait).acquire("job:1");
    tokio::spawn(async move {
        let hold = requests.await.unwrap().held().expect("held");
        (clock.now(), hold)
    })
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_to_the_millisecond() {
    let fixture = Fixture::new();
    let (a, b) = (fixture.client("a"), fixture.client("b"));
    let _hold = a.hold("scheduler", "job:1").await;
    for wait in [0, 1, 7, 250, 1999, 2000, 10_003] {
        let from = fixture.now();
        let answer = b.class("scheduler").wait(ms(wait)).acquire("job:1").await;
        let Ok(Acquired::Busy(busy)) = answer else { panic!("{answer:?}") };
        assert_at(fixture.now(), from, ms(wait));
        assert_eq!(busy.waited, fixture.now().since(from));
    }
    // The same when the store stops answering during the wait.
    let from = fixture.now();
    let late = tokio::spawn(b.class("scheduler").wait(ms(1500)).acquire("job:1"));
    fixture.advance(ms(400)).await;
    fixture.faults.acquire().hang(true);
    let answer = late.await.unwrap();
    assert!(matches!(answer, Ok(Acquired::Busy(_))), "{answer:?}");
    assert_at(fixture.now(), from, ms(1500));
}

#[tokio::test(start_paused = true)]
async fn a_waiter_is_woken_by_the_release_not_by_its_poll() {
    let fixture = Fixture::new();
    let (a, b) = (fixture.client("a"), fixture.client("b"));
    let hold = a.hold("scheduler", "job:1").await;
    let waits = spawn_waiter(&fixture, &b, secs(60));
    // By now its polls are about a second apart.
    fixture.advance(secs(11)).await;
    let released = fixture.now();
    hold.release().await;
    let (at, hold) = waits.await.unwrap();
    assert_eq!(at, released, "at that very instant");
    assert_eq!(fixture.live_lease("job:1").await.unwrap().fence, hold.fence().ok());
    assert_eq!(b.event_count("acquired"), 1);
}

/// L2: waiters must not depend on hints.
#[tokio::test(start_paused = true)]
async fn without_hints_a_waiter_is_granted_within_one_poll() {
    for after in [100, 1000, 5000, 17_300] {
        let fixture = Fixture::new();
        fixture.faults.drop_hints(true);
        let (a, b) = (fixture.client("a"), fixture.client("b"));
        let hold = a.hold("scheduler", "job:1").await;
        let waits = spawn_waiter(&fixture, &b, secs(60));
        fixture.advance(ms(after)).await;
        let released = fixture.now();
        hold.release().await;
        let (at, _) = waits.await.unwrap();
        assert!(at.since(released) <= MAX_POLL_INTERVAL, "{:?} after {after} ms", at.since(released));
    }
}

/// A waiter sleeps no longer than the remaining time of the lease, so it notices at once that a
/// dead holder's lease expired.
#[tokio::test(start_paused = true)]
async fn a_waiter_is_granted_when_the_lease_expires() {
    for hints in [true, false] {
        let fixture = Fixture::new();
        fixture.faults.drop_hints(!hints);
        let (a, b) = (fixture.client("a"), fixture.client("b"));
        let (dies, from) = (a.hold("scheduler", "job:1").await, fixture.now());
        fixture.faults.renew().down(true);
        let (at, hold) = spawn_waiter(&fixture, &b, secs(90)).await.unwrap();
        // A random part is added, or all waiters would send a request at once.
        assert!(at >= from + secs(60) && at <= from + secs(60) + ms(22), "{:?}", at.since(from));
        assert!(dies.check().is_err(), "the old holder had stopped before");
        hold.check().unwrap();
        let took = b.metric_total("takeover_seconds", "");
        assert!(took < 0.022 && b.metric_total("takeover_total", "") == 1.0, "{took}");
    }
}

/// L6: clients are served in order of arrival, and so are the tasks of one client.
#[tokio::test(start_paused = true)]
async fn waiters_are_served_in_order() {
    let fixture = Fixture::new();
    let clients: Vec<_> = (0..8).map(|n| fixture.client(&format!("c{n}"))).collect();
    let order = Arc::new(Mutex::new(Vec::new()));
    let hold = clients[0].hold("scheduler", "job:1").await;
    let mut tasks = Vec::new();
    for (place, client) in clients.iter().enumerate().skip(1) {
        let (requests, order) =
            (client.class("scheduler").wait(secs(60)).acquire("job:1"), Arc::clone(&order));
        tasks.push(tokio::spawn(async move {
            let hold = requests.await.unwrap().held().unwrap();
            order.lock().unwrap().push(place);
            hold.release().await;
        }));
        fixture.advance(ms(3)).await;
    }
    hold.release().await;
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(*order.lock().unwrap(), [1, 2, 3, 4, 5, 6, 7]);
}

#[tokio::test(start_paused = true)]
async fn trap_18_each_release_wakes_one_of_five_hundred_waiters() {
    let fixture = Fixture::new();
    let holder = fixture.client("holder");
    let clients: Vec<_> = (0..500).map(|n| fixture.client(&format!("c{n}"))).collect();
    let mut hold = holder.hold("scheduler", "job:1").await;
    let inside = Arc::new(Mutex::new(Vec::new()));
    let tasks: Vec<_> = clients
        .iter()
        .map(|client| {
            let requests = client.class("scheduler").wait(secs(600)).acquire("job:1");
            let inside = Arc::clone(&inside);
            tokio::spawn(async move {
                let hold = requests.await.unwrap().held().unwrap();
                inside.lock().unwrap().push(hold);
            })
        })
        .collect();
    fixture.advance(secs(3)).await;
    // No busy loop: about one poll per second each, after the first few.
    let calls = fixture.call_count(StoreOp::Acquire);
    fixture.advance(secs(4)).await;
    assert!(
        fixture.call_count(StoreOp::Acquire) - calls < 500 * 9,
        "{}",
        fixture.call_count(StoreOp::Acquire) - calls
    );
    run_ready_tasks().await; // lets polls run that are due at this very instant
    for handed in 0..500 {
        let (calls, now) = (fixture.call_count(StoreOp::Acquire), fixture.now());
        hold.release().await;
        run_ready_tasks().await;
        assert_eq!(fixture.now(), now, "no time has passed");
        assert_eq!(fixture.call_count(StoreOp::Acquire) - calls, 1, "hand-over {handed} woke one");
        let mut inside = inside.lock().unwrap();
        assert_eq!(inside.len(), 1, "no lost wake-up at hand-over {handed}");
        hold = inside.remove(0);
    }
    hold.release().await;
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(fixture.memory.listener_count(), 0);
}

/// The same inside one process: the store sees one waiter, however many wait in the gate.
#[tokio::test(start_paused = true)]
async fn waiters_of_one_process_are_one_waiter_in_the_store() {
    let fixture = Fixture::new();
    let (a, b) = (fixture.client("a"), fixture.client("b"));
    let hold = a.hold("scheduler", "job:1").await;
    let tasks: Vec<_> = (0..500).map(|_| spawn_waiter(&fixture, &b, secs(600))).collect();
    run_ready_tasks().await;
    assert_eq!(fixture.live_lease("job:1").await.unwrap().waiters, Some(1));
    hold.release().await;
    for task in tasks {
        task.await.unwrap().1.release().await;
    }
    assert_eq!((b.event_count("acquired"), b.local_name_count()), (500, 0));
}

#[tokio::test(start_paused = true)]
async fn trap_19_dead_waiters_do_not_delay_the_queue() {
    let fixture = Fixture::new();
    let (a, b) = (fixture.client("a"), fixture.client("b"));
    let hold = a.hold("scheduler", "job:1").await;
    // Twenty processes queue and die: no request uses their tokens again.
    for n in 0..20 {
        let dead = Token::fresh(&Holder::new(&format!("dead{n}")).unwrap(), "scheduler", &OsRandom);
        let mut request = AcquireRequest::new(name("job:1"), dead, Ttl::new(secs(60)).unwrap());
        request.queue = Some(secs(4));
        let answer = fixture.memory_store().acquire(&request, secs(1)).await.unwrap();
        assert!(matches!(answer, AcquireResponse::Busy(_)));
    }
    let waits = spawn_waiter(&fixture, &b, secs(60));
    fixture.advance(ms(500)).await;
    let released = fixture.now();
    hold.release().await;
    let (at, _hold) = waits.await.unwrap();
    assert!(at.since(released) <= HANDOVER_CLAIM_TTL + ms(22), "one claim at most: {:?}", at.since(released));
}

/// A grant after waiting is a live lease, however late the confirmation reaches the store.
#[tokio::test(start_paused = true)]
async fn trap_17_granted_after_waiting_implies_a_live_lease() {
    for delay in [0, 400, 499, 500, 501, 900, 1500] {
        let fixture = Fixture::new();
        let (a, b) = (fixture.client("a"), fixture.client("b"));
        let hold = a.hold("scheduler", "job:1").await;
        let waits = spawn_waiter(&fixture, &b, secs(60));
        fixture.advance(secs(5)).await;
        fixture.faults.acquire().delay(ms(delay / 2)).delay_reply(ms(delay / 2));
        hold.release().await;
        let (at, hold) = waits.await.unwrap();
        let lease = fixture.live_lease("job:1").await.expect("alive");
        assert_eq!((lease.holder.as_str(), lease.fence), ("b", hold.fence().ok()), "{delay}");
        let left = lease.remaining.unwrap();
        assert!(left >= hold.remaining() && at == fixture.now(), "I5: the deadline lies before the expiry");
        assert!(left > secs(58), "a whole lease, not the rest of a claim");
    }
}

/// Fixed intervals cause contention waves: delays must grow, and no two clients may stay in step.
#[tokio::test(start_paused = true)]
async fn requests_of_contenders_back_off_and_are_not_in_step() {
    let fixture = Fixture::new();
    fixture.faults.drop_hints(true);
    let (a, b, c) = (fixture.client("a"), fixture.client("b"), fixture.client("c"));
    let _hold = a.hold("scheduler", "job:1").await;
    let (first, second) = (
        b.class("scheduler").wait(secs(30)).acquire("job:1"),
        c.class("scheduler").wait(secs(30)).acquire("job:1"),
    );
    let _ = tokio::join!(first, second);
    let times = |holder: &str| -> Vec<Moment> {
        let asked = fixture.recorder.acquires();
        asked.iter().filter(|request| request.token.holder() == holder).map(|request| request.at).collect()
    };
    let gaps =
        |times: &[Moment]| -> Vec<Duration> { times.windows(2).map(|pair| pair[1].since(pair[0])).collect() };
    let (b, c) = (times("b"), times("c"));
    for times in [&b, &c] {
        let gaps = gaps(times);
        assert!(gaps[0] <= ms(39), "25 ms, jittered: {:?}", gaps[0]);
        let mean = |part: &[Duration]| part.iter().sum::<Duration>() / u32::try_from(part.len()).unwrap();
        assert!(mean(&gaps[gaps.len() - 10..]) > 5 * mean(&gaps[..4]), "{gaps:?}");
        assert!(gaps.iter().all(|gap| *gap <= MAX_POLL_INTERVAL + ms(2)), "{gaps:?}");
        let late: std::collections::HashSet<_> = gaps[gaps.len() - 10..].iter().collect();
        assert!(late.len() >= 8, "they vary even at their longest: {gaps:?}");
    }
    let together = b.iter().skip(1).filter(|at| c.contains(at)).count();
    assert!(together < b.len() / 4, "{together} of {} at the same instant", b.len());
}

/// A long wait ends when the store is unreachable: no grant is possible, and the caller must know.
#[tokio::test(start_paused = true)]
async fn trap_16_a_waiter_that_cannot_reach_the_store_stops_waiting() {
    let fixture = Fixture::new();
    let (a, b) = (fixture.client("a"), fixture.client("b"));
    let _hold = a.hold("scheduler", "job:1").await;
    let waits = tokio::spawn(b.class("scheduler").wait(secs(600)).acquire("job:1"));
    fixture.advance(secs(30)).await;
    fixture.faults.acquire().down(true);
    let from = fixture.now();
    let answer = waits.await.unwrap();
    assert!(matches!(answer, Err(leasehold_core::Error::Unavailable { .. })), "{answer:?}");
    // One pause between two requests, and the class's timeout.
    assert!(
        fixture.now().since(from) <= MAX_POLL_INTERVAL * 3 / 2 + secs(2),
        "{:?}",
        fixture.now().since(from)
    );
}
