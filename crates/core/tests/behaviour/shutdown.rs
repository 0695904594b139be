//! The orderly end: closed, drained, the rest fenced, everything released, and what remains reported.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use crate::bed::{Bed, assert_at, ms, secs, settle};
use leasehold_core::adapter::Verb;
use leasehold_core::clock::{BootClock, until};
use leasehold_core::event::{Event, Observer};
use leasehold_core::memory::MemoryStore;
use leasehold_core::{Acquired, Error, Left, Locks, Loss, Outcome, Standing};

#[tokio::test(start_paused = true)]
async fn an_idle_client_shuts_down_at_once_and_takes_no_new_locks() {
    let bed = Bed::new();
    let a = bed.client("a");
    let from = bed.now();
    let report = a.shutdown(secs(10)).await;
    assert_eq!(
        (report.fenced, report.remains, bed.now()),
        (0, Left::default(), from)
    );
    assert!(matches!(a.refused("scheduler", "job:1").await, Error::Closed));
    assert!(
        matches!(a.refused("workflow", "job:1").await, Error::Closed),
        "fail-open or not"
    );
    assert_eq!(bed.calls(Verb::Acquire), 0);
}

#[tokio::test(start_paused = true)]
async fn holds_that_finish_in_time_are_waited_for() {
    let bed = Bed::new();
    let a = bed.client("a");
    let hold = a.hold("scheduler", "job:1").await;
    let clock = std::sync::Arc::clone(&bed.clock);
    let work = tokio::spawn(async move {
        leasehold_core::clock::ClockExt::sleep(&*clock, secs(3)).await;
        hold.check().expect("not disturbed");
        hold.release().await
    });
    let from = bed.now();
    let report = a.shutdown(secs(10)).await;
    let took = bed.now().since(from);
    assert!(took >= secs(3) && took < ms(3050), "{took:?}");
    assert_eq!((report.fenced, report.remains), (0, Left::default()));
    assert_eq!(work.await.unwrap(), Outcome::Released);
    assert_eq!((bed.lease("job:1").await, a.count("abandoned")), (None, 0));
}

#[tokio::test(start_paused = true)]
async fn holds_that_do_not_finish_are_fenced_and_given_back() {
    let bed = Bed::new();
    let a = bed.client("a");
    let tasks: Vec<_> = ["scheduler", "workflow"]
        .map(|class| {
            let run = a
                .class(class)
                .run(class, async |_| std::future::pending::<()>().await);
            tokio::spawn(run)
        })
        .into();
    settle().await;
    let from = bed.now();
    let report = a.shutdown(secs(5)).await;
    assert_eq!((report.fenced, report.remains), (2, Left::default()));
    assert!(bed.now().since(from) < ms(5050));
    for task in tasks {
        let error = task.await.unwrap().unwrap_err();
        assert!(matches!(
            error,
            leasehold_core::RunError::Lost { lost, .. } if lost.reason == Loss::Shutdown
        ));
    }
    // Ended by us and still ours: given back, so that the next one need not wait for the TTL.
    assert_eq!(
        (bed.lease("scheduler").await, bed.lease("workflow").await),
        (None, None)
    );
    assert_eq!(a.total("abandoned_total", "shutdown"), 2.0);
}

#[tokio::test(start_paused = true)]
async fn what_remains_is_reported() {
    let bed = Bed::new();
    let a = bed.client("a");
    bed.chaos.release().down(true);
    let stuck = a.hold("scheduler", "stuck").await;
    drop(a.hold("scheduler", "owed").await);
    let from = bed.now();
    let report = a.shutdown(secs(3)).await;
    assert_at(bed.now(), from, secs(6));
    assert_eq!(report.fenced, 1);
    assert_eq!((report.remains.holds, report.remains.debts), (1, 1));
    assert_eq!(stuck.standing(), Standing::Lost(Loss::Shutdown));
    // The collector goes on as long as the process lives.
    bed.chaos.release().down(false);
    drop(stuck);
    a.idle().await;
    assert_eq!((bed.lease("stuck").await, bed.lease("owed").await), (None, None));
}

/// Whoever ends without an end of its holds, because another process takes them up, still undoes what else it has left.
#[tokio::test(start_paused = true)]
async fn what_is_given_back_or_undone_is_waited_for_and_holds_are_not() {
    let bed = Bed::new();
    let a = bed.client("a");
    let hold = a.hold("scheduler", "held").await;
    let from = bed.now();
    assert_eq!((a.settled(secs(3)).await.holds, bed.now()), (1, from));

    // Granted and never heard of.
    bed.chaos.acquire().delay_reply(secs(1));
    let asks = tokio::spawn(a.class("scheduler").acquire("asked"));
    bed.reached(Verb::Acquire, 2).await;
    settle().await;
    bed.chaos.release().down(true);
    asks.abort();
    drop(a.hold("scheduler", "owed").await);
    let from = bed.now();
    let left = a.settled(secs(3)).await;
    assert_at(bed.now(), from, secs(3));
    assert_eq!((left.holds, left.releasing + left.debts, left.undos), (1, 1, 1));

    bed.chaos.release().down(false);
    let left = a.settled(secs(60)).await;
    assert_eq!(
        left,
        Left {
            holds: 1,
            ..Left::default()
        }
    );
    assert!(bed.now().since(from) < secs(20), "not until the last moment");
    assert_eq!((bed.lease("asked").await, bed.lease("owed").await), (None, None));
    hold.check().expect("not disturbed");
}

/// Acquires that wait when it begins are new locks too: none of them gets in afterwards.
#[tokio::test(start_paused = true)]
async fn waiting_acquires_are_closed() {
    let bed = Bed::new();
    let (a, b) = (bed.client("a"), bed.client("b"));
    let other = b.hold("scheduler", "elsewhere").await;
    let here = a.hold("scheduler", "here").await;
    let at_store = tokio::spawn(a.class("scheduler").wait(secs(600)).acquire("elsewhere"));
    let at_gate = tokio::spawn(a.class("scheduler").wait(secs(600)).acquire("here"));
    bed.pass(secs(1)).await;
    let from = bed.now();
    let shutdown = {
        let locks = a.locks.clone();
        tokio::spawn(async move { locks.shutdown(secs(5)).await })
    };
    settle().await;
    for waits in [at_store, at_gate] {
        assert!(waits.is_finished(), "told at once");
        let answer = waits.await.unwrap();
        assert!(matches!(answer, Err(Error::Closed)), "{answer:?}");
    }
    assert_eq!(bed.now(), from);
    here.release().await;
    other.release().await;
    let report = shutdown.await.unwrap();
    assert_eq!((report.fenced, report.remains), (0, Left::default()));
    assert_eq!(
        bed.lease("elsewhere").await,
        None,
        "nothing was handed to one who left"
    );
    assert_eq!((bed.memory.listening(), a.names_here()), (0, 0));
    let next = b.class("scheduler").acquire("elsewhere").await;
    assert!(matches!(next, Ok(Acquired::Held(_))));
}

/// Stands still when this happens, on the thread on which it happens, until it may go on.
#[derive(Debug)]
struct Stop {
    reached: Sender<()>,
    go_on: Mutex<Receiver<()>>,
}

impl Observer for Stop {
    fn on(&self, event: &Event) {
        if event.what.label() == "acquired" {
            self.reached.send(()).unwrap();
            self.go_on.lock().unwrap().recv().unwrap();
        }
    }
}

/// The grant is there, and another thread shuts down before the keeper has heard of it: nobody would end that hold.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_hold_that_comes_after_the_end_is_ended() {
    let ((reached, stands), (go_on, waits)) = (channel(), channel());
    let stop = Stop {
        reached,
        go_on: Mutex::new(waits),
    };
    let locks = Locks::builder(Arc::new(MemoryStore::new(BootClock::shared())))
        .observer(Arc::new(stop))
        .without_log()
        .build()
        .unwrap();
    let acquiring = tokio::spawn(locks.class("scheduler").acquire("job:1"));
    stands.recv().unwrap();
    let report = locks.shutdown(secs(5)).await;
    assert_eq!((report.fenced, report.remains), (0, Left::default()));
    go_on.send(()).unwrap();
    let hold = acquiring.await.unwrap().unwrap().held().unwrap();
    let lost = until(&**locks.clock(), locks.clock().now() + secs(10), hold.lost()).await;
    assert_eq!(lost.unwrap().reason, Loss::Shutdown);
    assert_eq!(hold.release().await, Outcome::Released);
}
