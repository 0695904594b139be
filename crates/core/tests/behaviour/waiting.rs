//! Waiting: woken by the release, in order, one at a time; and with every hint lost, within one poll.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::bed::{Bed, Client, assert_at, ms, name, secs, settle};
use leasehold_core::acquire::POLL;
use leasehold_core::adapter::Verb;
use leasehold_core::clock::Moment;
use leasehold_core::rng::OsRandom;
use leasehold_core::store::{Answer, Ask, CLAIM};
use leasehold_core::{Acquired, Hold, Holder, Token, Ttl};
use tokio::task::JoinHandle;

/// A waiter that notes when it got in.
fn waiter(bed: &Bed, client: &Client, wait: Duration) -> JoinHandle<(Moment, Hold)> {
    let clock = Arc::clone(&bed.clock);
    let asks = client.class("scheduler").wait(wait).acquire("job:1");
    tokio::spawn(async move {
        let hold = asks.await.unwrap().held().expect("held");
        (clock.now(), hold)
    })
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_to_the_millisecond() {
    let bed = Bed::new();
    let (a, b) = (bed.client("a"), bed.client("b"));
    let _hold = a.hold("scheduler", "job:1").await;
    for wait in [0, 1, 7, 250, 1999, 2000, 10_003] {
        let from = bed.now();
        let answer = b.class("scheduler").wait(ms(wait)).acquire("job:1").await;
        let Ok(Acquired::Busy(busy)) = answer else {
            panic!("{answer:?}")
        };
        assert_at(bed.now(), from, ms(wait));
        assert_eq!(busy.waited, bed.now().since(from));
    }
    // Also when the store stops answering in the middle of the wait.
    let from = bed.now();
    let late = tokio::spawn(b.class("scheduler").wait(ms(1500)).acquire("job:1"));
    bed.pass(ms(400)).await;
    bed.chaos.acquire().hang(true);
    let answer = late.await.unwrap();
    assert!(matches!(answer, Ok(Acquired::Busy(_))), "{answer:?}");
    assert_at(bed.now(), from, ms(1500));
}

#[tokio::test(start_paused = true)]
async fn a_waiter_is_woken_by_the_release_not_by_its_poll() {
    let bed = Bed::new();
    let (a, b) = (bed.client("a"), bed.client("b"));
    let hold = a.hold("scheduler", "job:1").await;
    let waits = waiter(&bed, &b, secs(60));
    // By now its polls are about a second apart.
    bed.pass(secs(11)).await;
    let released = bed.now();
    hold.release().await;
    let (at, hold) = waits.await.unwrap();
    assert_eq!(at, released, "at that very instant");
    assert_eq!(bed.lease("job:1").await.unwrap().fence, hold.fence().ok());
    assert_eq!(b.count("acquired"), 1);
}

/// L2: hints are hints.
#[tokio::test(start_paused = true)]
async fn with_every_hint_dropped_a_waiter_gets_in_within_one_poll() {
    for after in [100, 1000, 5000, 17_300] {
        let bed = Bed::new();
        bed.chaos.drop_hints(true);
        let (a, b) = (bed.client("a"), bed.client("b"));
        let hold = a.hold("scheduler", "job:1").await;
        let waits = waiter(&bed, &b, secs(60));
        bed.pass(ms(after)).await;
        let released = bed.now();
        hold.release().await;
        let (at, _) = waits.await.unwrap();
        assert!(
            at.since(released) <= POLL,
            "{:?} after {after} ms",
            at.since(released)
        );
    }
}

/// It sleeps no longer than the lease's remaining time: a holder that died is noticed at once.
#[tokio::test(start_paused = true)]
async fn a_waiter_gets_in_when_the_lease_runs_out() {
    for hints in [true, false] {
        let bed = Bed::new();
        bed.chaos.drop_hints(!hints);
        let (a, b) = (bed.client("a"), bed.client("b"));
        let (dies, from) = (a.hold("scheduler", "job:1").await, bed.now());
        bed.chaos.renew().down(true);
        let (at, hold) = waiter(&bed, &b, secs(90)).await.unwrap();
        // And a little at random, or all who wait for it would ask at once.
        assert!(
            at >= from + secs(60) && at <= from + secs(60) + ms(22),
            "{:?}",
            at.since(from)
        );
        assert!(dies.check().is_err(), "the old holder had stopped before");
        hold.check().unwrap();
        let took = b.total("takeover_seconds", "");
        assert!(took < 0.022 && b.total("takeover_total", "") == 1.0, "{took}");
    }
}

/// L6: clients are served in the order in which they came, and tasks of one client too.
#[tokio::test(start_paused = true)]
async fn waiters_are_served_in_order() {
    let bed = Bed::new();
    let clients: Vec<_> = (0..8).map(|n| bed.client(&format!("c{n}"))).collect();
    let order = Arc::new(Mutex::new(Vec::new()));
    let hold = clients[0].hold("scheduler", "job:1").await;
    let mut tasks = Vec::new();
    for (place, client) in clients.iter().enumerate().skip(1) {
        let (asks, order) = (
            client.class("scheduler").wait(secs(60)).acquire("job:1"),
            Arc::clone(&order),
        );
        tasks.push(tokio::spawn(async move {
            let hold = asks.await.unwrap().held().unwrap();
            order.lock().unwrap().push(place);
            hold.release().await;
        }));
        bed.pass(ms(3)).await;
    }
    hold.release().await;
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(*order.lock().unwrap(), [1, 2, 3, 4, 5, 6, 7]);
}

#[tokio::test(start_paused = true)]
async fn trap_18_five_hundred_waiters_and_each_release_wakes_one() {
    let bed = Bed::new();
    let holder = bed.client("holder");
    let clients: Vec<_> = (0..500).map(|n| bed.client(&format!("c{n}"))).collect();
    let mut hold = holder.hold("scheduler", "job:1").await;
    let inside = Arc::new(Mutex::new(Vec::new()));
    let tasks: Vec<_> = clients
        .iter()
        .map(|client| {
            let asks = client.class("scheduler").wait(secs(600)).acquire("job:1");
            let inside = Arc::clone(&inside);
            tokio::spawn(async move {
                let hold = asks.await.unwrap().held().unwrap();
                inside.lock().unwrap().push(hold);
            })
        })
        .collect();
    bed.pass(secs(3)).await;
    // No spin: about a poll a second each, after the first few.
    let calls = bed.calls(Verb::Acquire);
    bed.pass(secs(4)).await;
    assert!(
        bed.calls(Verb::Acquire) - calls < 500 * 9,
        "{}",
        bed.calls(Verb::Acquire) - calls
    );
    settle().await; // whose poll was due at this very instant
    for handed in 0..500 {
        let (calls, now) = (bed.calls(Verb::Acquire), bed.now());
        hold.release().await;
        settle().await;
        assert_eq!(bed.now(), now, "no time has passed");
        assert_eq!(bed.calls(Verb::Acquire) - calls, 1, "hand-over {handed} woke one");
        let mut inside = inside.lock().unwrap();
        assert_eq!(inside.len(), 1, "no lost wake-up at hand-over {handed}");
        hold = inside.remove(0);
    }
    hold.release().await;
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(bed.memory.listening(), 0);
}

/// The same inside one process: the store sees one waiter, whatever waits in the gate.
#[tokio::test(start_paused = true)]
async fn waiters_of_one_process_cost_the_store_one() {
    let bed = Bed::new();
    let (a, b) = (bed.client("a"), bed.client("b"));
    let hold = a.hold("scheduler", "job:1").await;
    let tasks: Vec<_> = (0..500).map(|_| waiter(&bed, &b, secs(600))).collect();
    settle().await;
    assert_eq!(bed.lease("job:1").await.unwrap().waiters, Some(1));
    hold.release().await;
    for task in tasks {
        task.await.unwrap().1.release().await;
    }
    assert_eq!((b.count("acquired"), b.names_here()), (500, 0));
}

#[tokio::test(start_paused = true)]
async fn trap_19_dead_waiters_do_not_delay_the_queue() {
    let bed = Bed::new();
    let (a, b) = (bed.client("a"), bed.client("b"));
    let hold = a.hold("scheduler", "job:1").await;
    // Twenty processes that queue and die: nobody asks with their tokens again.
    for n in 0..20 {
        let dead = Token::fresh(&Holder::new(&format!("dead{n}")).unwrap(), "scheduler", &OsRandom);
        let mut ask = Ask::new(name("job:1"), dead, Ttl::new(secs(60)).unwrap());
        ask.queue = Some(secs(4));
        let answer = bed.memory_store().acquire(&ask, secs(1)).await.unwrap();
        assert!(matches!(answer, Answer::Busy(_)));
    }
    let waits = waiter(&bed, &b, secs(60));
    bed.pass(ms(500)).await;
    let released = bed.now();
    hold.release().await;
    let (at, _hold) = waits.await.unwrap();
    assert!(
        at.since(released) <= CLAIM + ms(22),
        "one claim at most: {:?}",
        at.since(released)
    );
}

/// What was granted after waiting is a live lease, however late the confirmation gets to the store.
#[tokio::test(start_paused = true)]
async fn trap_17_granted_after_waiting_implies_a_live_lease() {
    for delay in [0, 400, 499, 500, 501, 900, 1500] {
        let bed = Bed::new();
        let (a, b) = (bed.client("a"), bed.client("b"));
        let hold = a.hold("scheduler", "job:1").await;
        let waits = waiter(&bed, &b, secs(60));
        bed.pass(secs(5)).await;
        bed.chaos
            .acquire()
            .delay(ms(delay / 2))
            .delay_reply(ms(delay / 2));
        hold.release().await;
        let (at, hold) = waits.await.unwrap();
        let lease = bed.lease("job:1").await.expect("alive");
        assert_eq!(
            (lease.holder.as_str(), lease.fence),
            ("b", hold.fence().ok()),
            "{delay}"
        );
        let left = lease.remaining.unwrap();
        assert!(
            left >= hold.remaining() && at == bed.now(),
            "I5: the deadline lies before the expiry"
        );
        assert!(left > secs(58), "a whole lease, not the rest of a claim");
    }
}

/// Fixed intervals make contention waves: the delays grow, and no two contenders march in step.
#[tokio::test(start_paused = true)]
async fn asks_of_contenders_grow_apart_and_are_not_in_step() {
    let bed = Bed::new();
    bed.chaos.drop_hints(true);
    let (a, b, c) = (bed.client("a"), bed.client("b"), bed.client("c"));
    let _hold = a.hold("scheduler", "job:1").await;
    let (first, second) = (
        b.class("scheduler").wait(secs(30)).acquire("job:1"),
        c.class("scheduler").wait(secs(30)).acquire("job:1"),
    );
    let _ = tokio::join!(first, second);
    let times = |holder: &str| -> Vec<Moment> {
        let asked = bed.tap.asked();
        asked
            .iter()
            .filter(|ask| ask.token.holder() == holder)
            .map(|ask| ask.at)
            .collect()
    };
    let gaps =
        |times: &[Moment]| -> Vec<Duration> { times.windows(2).map(|pair| pair[1].since(pair[0])).collect() };
    let (b, c) = (times("b"), times("c"));
    for times in [&b, &c] {
        let gaps = gaps(times);
        assert!(gaps[0] <= ms(39), "25 ms, jittered: {:?}", gaps[0]);
        let mean = |part: &[Duration]| part.iter().sum::<Duration>() / u32::try_from(part.len()).unwrap();
        assert!(mean(&gaps[gaps.len() - 10..]) > 5 * mean(&gaps[..4]), "{gaps:?}");
        assert!(gaps.iter().all(|gap| *gap <= POLL + ms(2)), "{gaps:?}");
        let late: std::collections::HashSet<_> = gaps[gaps.len() - 10..].iter().collect();
        assert!(late.len() >= 8, "they vary even at their longest: {gaps:?}");
    }
    let together = b.iter().skip(1).filter(|at| c.contains(at)).count();
    assert!(
        together < b.len() / 4,
        "{together} of {} at the same instant",
        b.len()
    );
}

/// A long wait does not outlive the way to the store: nobody could grant it anything, and its caller must know.
#[tokio::test(start_paused = true)]
async fn trap_16_a_waiter_that_cannot_reach_the_store_stops_waiting() {
    let bed = Bed::new();
    let (a, b) = (bed.client("a"), bed.client("b"));
    let _hold = a.hold("scheduler", "job:1").await;
    let waits = tokio::spawn(b.class("scheduler").wait(secs(600)).acquire("job:1"));
    bed.pass(secs(30)).await;
    bed.chaos.acquire().down(true);
    let from = bed.now();
    let answer = waits.await.unwrap();
    assert!(
        matches!(answer, Err(leasehold_core::Error::Unavailable { .. })),
        "{answer:?}"
    );
    // One pause between two asks, and the class's time-out.
    assert!(
        bed.now().since(from) <= POLL * 3 / 2 + secs(2),
        "{:?}",
        bed.now().since(from)
    );
}
