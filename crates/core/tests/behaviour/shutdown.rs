//! Shutdown: close, drain, fence the remaining holds, release everything, and report what is pending.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use crate::fixture::{Fixture, assert_at, ms, run_ready_tasks, secs};
use leasehold_core::adapter::StoreOp;
use leasehold_core::clock::{BootClock, run_until};
use leasehold_core::event::{Event, Observer};
use leasehold_core::memory::MemoryStore;
use leasehold_core::{Acquired, Error, HoldStatus, Locks, Loss, PendingWork, ReleaseOutcome};

#[tokio::test(start_paused = true)]
async fn an_idle_client_shuts_down_at_once_and_takes_no_new_locks() {
    let fixture = Fixture::new();
    let a = fixture.client("a");
    let from = fixture.now();
    let report = a.shutdown(secs(10)).await;
    assert_eq!((report.fenced, report.pending, fixture.now()), (0, PendingWork::default(), from));
    assert!(matches!(a.expect_error("scheduler", "job:1").await, Error::Closed));
    assert!(matches!(a.expect_error("workflow", "job:1").await, Error::Closed), "fail-open or not");
    assert_eq!(fixture.call_count(StoreOp::Acquire), 0);
}

#[tokio::test(start_paused = true)]
async fn holds_that_finish_in_time_are_waited_for() {
    let fixture = Fixture::new();
    let a = fixture.client("a");
    let hold = a.hold("scheduler", "job:1").await;
    let clock = std::sync::Arc::clone(&fixture.clock);
    let work = tokio::spawn(async move {
        leasehold_core::clock::ClockExt::sleep(&*clock, secs(3)).await;
        hold.check().expect("not disturbed");
        hold.release().await
    });
    let from = fixture.now();
    let report = a.shutdown(secs(10)).await;
    let took = fixture.now().since(from);
    assert!(took >= secs(3) && took < ms(3050), "{took:?}");
    assert_eq!((report.fenced, report.pending), (0, PendingWork::default()));
    assert_eq!(work.await.unwrap(), ReleaseOutcome::Released);
    assert_eq!((fixture.live_lease("job:1").await, a.event_count("abandoned")), (None, 0));
}

#[tokio::test(start_paused = true)]
async fn unfinished_holds_are_fenced_and_released() {
    let fixture = Fixture::new();
    let a = fixture.client("a");
    let tasks: Vec<_> = ["scheduler", "workflow"]
        .map(|class| {
            let run = a.class(class).run(class, async |_| std::future::pending::<()>().await);
            tokio::spawn(run)
        })
        .into();
    run_ready_tasks().await;
    let from = fixture.now();
    let report = a.shutdown(secs(5)).await;
    assert_eq!((report.fenced, report.pending), (2, PendingWork::default()));
    assert!(fixture.now().since(from) < ms(5050));
    for task in tasks {
        let error = task.await.unwrap().unwrap_err();
        assert!(matches!(
            error,
            leasehold_core::RunError::Lost { lost, .. } if lost.reason == Loss::Shutdown
        ));
    }
    // Ended by this client and still owned: released, so that the next holder need not wait for the TTL.
    assert_eq!((fixture.live_lease("scheduler").await, fixture.live_lease("workflow").await), (None, None));
    assert_eq!(a.metric_total("abandoned_total", "shutdown"), 2.0);
}

#[tokio::test(start_paused = true)]
async fn pending_work_is_reported() {
    let fixture = Fixture::new();
    let a = fixture.client("a");
    fixture.faults.release().down(true);
    let stuck = a.hold("scheduler", "stuck").await;
    drop(a.hold("scheduler", "owed").await);
    let from = fixture.now();
    let report = a.shutdown(secs(3)).await;
    assert_at(fixture.now(), from, secs(6));
    assert_eq!(report.fenced, 1);
    assert_eq!((report.pending.holds, report.pending.debts), (1, 1));
    assert_eq!(stuck.status(), HoldStatus::Lost(Loss::Shutdown));
    // The collector continues as long as the process lives.
    fixture.faults.release().down(false);
    drop(stuck);
    a.wait_until_idle().await;
    assert_eq!((fixture.live_lease("stuck").await, fixture.live_lease("owed").await), (None, None));
}

/// A client that leaves its holds to another process still finishes its releases and undos.
#[tokio::test(start_paused = true)]
async fn drain_waits_for_releases_and_undos_but_not_for_holds() {
    let fixture = Fixture::new();
    let a = fixture.client("a");
    let hold = a.hold("scheduler", "held").await;
    let from = fixture.now();
    assert_eq!((a.drain(secs(3)).await.holds, fixture.now()), (1, from));

    // Granted, but the caller is aborted before the response.
    fixture.faults.acquire().delay_reply(secs(1));
    let requests = tokio::spawn(a.class("scheduler").acquire("asked"));
    fixture.wait_for_calls(StoreOp::Acquire, 2).await;
    run_ready_tasks().await;
    fixture.faults.release().down(true);
    requests.abort();
    drop(a.hold("scheduler", "owed").await);
    let from = fixture.now();
    let left = a.drain(secs(3)).await;
    assert_at(fixture.now(), from, secs(3));
    assert_eq!((left.holds, left.releasing + left.debts, left.undos), (1, 1, 1));

    fixture.faults.release().down(false);
    let left = a.drain(secs(60)).await;
    let mut expected = PendingWork::default();
    expected.holds = 1;
    assert_eq!(left, expected);
    assert!(fixture.now().since(from) < secs(20), "not until the last moment");
    assert_eq!((fixture.live_lease("asked").await, fixture.live_lease("owed").await), (None, None));
    hold.check().expect("not disturbed");
}

/// Acquires that wait when the shutdown begins are new locks too: none is granted afterwards.
#[tokio::test(start_paused = true)]
async fn waiting_acquires_end_with_closed() {
    let fixture = Fixture::new();
    let (a, b) = (fixture.client("a"), fixture.client("b"));
    let other = b.hold("scheduler", "elsewhere").await;
    let here = a.hold("scheduler", "here").await;
    let at_store = tokio::spawn(a.class("scheduler").wait(secs(600)).acquire("elsewhere"));
    let at_gate = tokio::spawn(a.class("scheduler").wait(secs(600)).acquire("here"));
    fixture.advance(secs(1)).await;
    let from = fixture.now();
    let shutdown = {
        let locks = a.locks.clone();
        tokio::spawn(async move { locks.shutdown(secs(5)).await })
    };
    run_ready_tasks().await;
    for waits in [at_store, at_gate] {
        assert!(waits.is_finished(), "told at once");
        let answer = waits.await.unwrap();
        assert!(matches!(answer, Err(Error::Closed)), "{answer:?}");
    }
    assert_eq!(fixture.now(), from);
    here.release().await;
    other.release().await;
    let report = shutdown.await.unwrap();
    assert_eq!((report.fenced, report.pending), (0, PendingWork::default()));
    assert_eq!(fixture.live_lease("elsewhere").await, None, "nothing was handed to one who left");
    assert_eq!((fixture.memory.listener_count(), a.local_name_count()), (0, 0));
    let next = b.class("scheduler").acquire("elsewhere").await;
    assert!(matches!(next, Ok(Acquired::Held(_))));
}

/// Blocks the emitting thread at the `acquired` event until the test lets it continue.
#[derive(Debug)]
struct BlockingObserver {
    reached: Sender<()>,
    go_on: Mutex<Receiver<()>>,
}

impl Observer for BlockingObserver {
    fn on_event(&self, event: &Event) {
        if event.what.label() == "acquired" {
            self.reached.send(()).unwrap();
            self.go_on.lock().unwrap().recv().unwrap();
        }
    }
}

/// Another thread shuts down between the grant and its handover to the keeper: without care that
/// hold would never end.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_hold_granted_after_shutdown_is_ended() {
    let ((reached, stands), (go_on, waits)) = (channel(), channel());
    let stop = BlockingObserver { reached, go_on: Mutex::new(waits) };
    let locks = Locks::builder(Arc::new(MemoryStore::new(BootClock::shared())))
        .observer(Arc::new(stop))
        .without_log()
        .build()
        .unwrap();
    let acquiring = tokio::spawn(locks.class("scheduler").acquire("job:1"));
    stands.recv().unwrap();
    let report = locks.shutdown(secs(5)).await;
    assert_eq!((report.fenced, report.pending), (0, PendingWork::default()));
    go_on.send(()).unwrap();
    let hold = acquiring.await.unwrap().unwrap().held().unwrap();
    let lost = run_until(&**locks.clock(), locks.clock().now() + secs(10), hold.lost()).await;
    assert_eq!(lost.unwrap().reason, Loss::Shutdown);
    assert_eq!(hold.release().await, ReleaseOutcome::Released);
}
