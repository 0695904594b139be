//! `continue`: work goes on without proof; what that costs is measured, and the lease is won back when it can be.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use std::sync::{Arc, Mutex};

use crate::bed::{Bed, assert_at, ms, overlap, secs, settle};
use leasehold_core::adapter::Verb;
use leasehold_core::event::What;
use leasehold_core::policy::Class;
use leasehold_core::rng::SeededRandom;
use leasehold_core::{Fence, Heirs, Holder, Outcome, Request, Resumed, Standing, Token};

fn usable() -> std::time::Duration {
    secs(30) - Class::default_drift(secs(30))
}

#[tokio::test(start_paused = true)]
async fn unproven_from_the_deadline_on_then_proven_again_by_a_late_renewal() {
    let bed = Bed::new();
    // The store keeps the lease for longer than the holder counts, so that a late renewal still finds it.
    let a = bed.client_with("a", "[class.workflow]\nrelease = { lock_delay = \"60s\" }");
    let (hold, from) = (a.hold("workflow", "run:1").await, bed.now());
    let fence = hold.fence().unwrap();
    bed.chaos.renew().down(true);
    bed.pass(secs(50)).await;
    assert_at(a.only("unproven").at, from, usable());
    assert_eq!(hold.standing(), Standing::Unproven);
    hold.check().expect("the class lets it go on");
    assert!(!hold.cancellation().is_cancelled());
    bed.chaos.renew().down(false);
    bed.pass(secs(6)).await;
    assert_eq!(hold.standing(), Standing::Proven);
    assert_eq!(hold.fence().unwrap(), fence, "the same lease");
    let again = a.only("proven_again");
    assert!(matches!(again.what, What::ProvenAgain { retaken: false, .. }));
    let measured = overlap(&again);
    let truth = again.at.since(from + usable());
    assert!(measured.abs_diff(truth) <= ms(1), "{measured:?} {truth:?}");
    assert_eq!(a.total("overlap_seconds_total", ""), measured.as_secs_f64());
    assert_eq!((a.count("abandoned"), a.count("overlap_confirmed")), (0, 0));
    bed.pass(secs(100)).await;
    assert_eq!(hold.standing(), Standing::Proven);
    assert_eq!(hold.release().await, Outcome::Released);
}

/// Work may go on; how long it is alone is another question.
#[tokio::test(start_paused = true)]
async fn proven_for_as_long_as_the_lease_and_no_longer() {
    let bed = Bed::new();
    let a = bed.client("a");
    let hold = a.hold("workflow", "run:1").await;
    assert_eq!(hold.proven_for(), usable());
    assert!(hold.remaining() > secs(600), "{:?}", hold.remaining());
    bed.chaos.renew().down(true);
    bed.pass(secs(5)).await;
    assert_eq!(hold.proven_for(), usable() - secs(5));
    bed.pass(usable() - secs(5)).await;
    assert_eq!(
        (hold.standing(), hold.proven_for()),
        (Standing::Unproven, secs(0))
    );
    bed.chaos.renew().down(false);
    bed.pass(secs(40)).await;
    assert_eq!(hold.standing(), Standing::Proven);
    let left = hold.proven_for();
    assert!(left > secs(0) && left <= usable(), "{left:?}");
    // Where the class fences, it is the same.
    let strict = a.hold("scheduler", "job:1").await;
    assert_eq!(strict.proven_for(), strict.remaining());
}

/// `max_hold` ends the work and with it the proof, whatever the lease says.
#[tokio::test(start_paused = true)]
async fn nothing_is_proven_past_max_hold() {
    let bed = Bed::new();
    let a = bed.client_with("a", "[class.workflow]\nmax_hold = \"35s\"");
    let hold = a.hold("workflow", "run:1").await;
    // Renewed meanwhile: the lease itself lasts longer.
    bed.pass(secs(25)).await;
    assert_eq!((hold.proven_for(), hold.remaining()), (secs(10), secs(10)));
    bed.pass(secs(11)).await;
    assert_eq!(hold.proven_for(), secs(0));
}

#[tokio::test(start_paused = true)]
async fn gone_and_free_is_retaken_with_a_greater_fence() {
    let bed = Bed::new();
    let a = bed.client("a");
    let (hold, from) = (a.hold("workflow", "run:1").await, bed.now());
    let fence = hold.fence().unwrap();
    bed.chaos.renew().down(true);
    bed.pass(secs(60)).await;
    assert_eq!(bed.lease("run:1").await, None, "expired");
    bed.chaos.renew().down(false);
    bed.pass(secs(6)).await;
    assert_eq!(hold.standing(), Standing::Proven);
    assert!(hold.fence().unwrap() > fence);
    assert_eq!(bed.lease("run:1").await.unwrap().fence, hold.fence().ok());
    let again = a.only("proven_again");
    assert!(matches!(again.what, What::ProvenAgain { retaken: true, .. }));
    assert!(overlap(&again).abs_diff(again.at.since(from + usable())) <= ms(1));
    assert_eq!((a.count("not_owned"), a.count("abandoned")), (1, 0));
    // The new lease is kept like the old one, and given back.
    bed.pass(secs(100)).await;
    assert_eq!(hold.release().await, Outcome::Released);
    assert_eq!(bed.lease("run:1").await, None);
}

/// Someone who keeps what a later process needs to take the hold up.
#[derive(Debug, Default)]
struct Kept {
    made: Mutex<Vec<Token>>,
    taken: Mutex<Vec<(Token, Fence)>>,
}

impl Heirs for Kept {
    fn next(&self) -> Option<Token> {
        let mut made = self.made.lock().unwrap();
        let holder = Holder::new("worker-7").unwrap();
        let seed = 100 + u64::try_from(made.len()).unwrap();
        made.push(Token::fresh(&holder, "workflow", &*SeededRandom::shared(seed)));
        made.last().cloned()
    }

    fn taken(&self, token: &Token, fence: Fence) {
        self.taken.lock().unwrap().push((token.clone(), fence));
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_retaken_can_be_taken_up_by_another_process() {
    let bed = Bed::new();
    let (a, b, kept) = (bed.client("a"), bed.client("b"), Arc::new(Kept::default()));
    let request = || Request::new("workflow", "run:1").unwrap();
    let held = a.acquire(request().heirs(Arc::clone(&kept) as _)).await;
    let hold = held.unwrap().held().unwrap();
    let first = hold.fence().unwrap();
    assert!(kept.made.lock().unwrap().is_empty() && kept.taken.lock().unwrap().is_empty());
    bed.chaos.renew().down(true);
    // Every try of one heal is with one token, whatever became of those before.
    bed.chaos.acquire().lose_reply(1);
    bed.pass(secs(60)).await;
    bed.chaos.renew().down(false);
    bed.pass(secs(20)).await;
    let fence = hold.fence().unwrap();
    assert!(fence > first);
    let made = kept.made.lock().unwrap().clone();
    assert_eq!(made.len(), 1);
    assert_eq!(*kept.taken.lock().unwrap(), [(made[0].clone(), fence)]);
    // Its process is gone: the lease is left as it is.
    std::mem::forget(hold);
    let again = b.resume(request().token(made[0].clone()), fence, secs(80)).await;
    assert!(matches!(again, Ok(Resumed::Held(hold)) if hold.fence() == Ok(fence)));
}

#[tokio::test(start_paused = true)]
async fn gone_and_taken_confirms_the_overlap_once() {
    let bed = Bed::new();
    let (a, b) = (bed.client("a"), bed.client("b"));
    let (hold, from) = (a.hold("workflow", "run:1").await, bed.now());
    bed.chaos.renew().down(true);
    bed.pass(secs(31)).await;
    bed.chaos.renew().down(false);
    let other = b.hold("workflow-critical", "run:1").await;
    bed.pass(secs(120)).await;
    assert_eq!(
        (
            a.count("overlap_confirmed"),
            a.total("overlap_confirmed_total", "")
        ),
        (1, 1.0)
    );
    assert_eq!(hold.standing(), Standing::Unproven);
    hold.check().unwrap();
    other.check().expect("the new owner is not disturbed");
    assert_eq!(hold.release().await, Outcome::AlreadyLost);
    let ended = a.only("overlap_ended");
    assert!(overlap(&ended).abs_diff(ended.at.since(from + usable())) <= ms(1));
    assert_eq!(
        a.total("overlap_seconds_total", ""),
        overlap(&ended).as_secs_f64()
    );
    settle().await;
    assert_eq!(bed.lease("run:1").await.unwrap().holder, "b");
}

/// The other ends first: the hold gets its lease back and is proven again.
#[tokio::test(start_paused = true)]
async fn taken_and_then_free_again_is_won_back() {
    let bed = Bed::new();
    let (a, b) = (bed.client("a"), bed.client("b"));
    let hold = a.hold("workflow", "run:1").await;
    let fence = hold.fence().unwrap();
    bed.chaos.renew().down(true);
    bed.pass(secs(31)).await;
    bed.chaos.renew().down(false);
    let other = b.hold("workflow", "run:1").await;
    let between = other.fence().unwrap();
    bed.pass(secs(20)).await;
    other.release().await;
    bed.pass(secs(6)).await;
    assert_eq!(hold.standing(), Standing::Proven);
    assert!(fence < between && between < hold.fence().unwrap());
    assert_eq!((a.count("proven_again"), a.count("overlap_confirmed")), (1, 1));
}

/// The third strike is no reason to stop either: the keeper goes on asking.
#[tokio::test(start_paused = true)]
async fn repeated_failures_do_not_stop_the_work_nor_the_asking() {
    let bed = Bed::new();
    let a = bed.client("a");
    let hold = a.hold("workflow", "run:1").await;
    bed.chaos.renew().down(true);
    bed.pass(secs(300)).await;
    hold.check().unwrap();
    assert!(bed.calls(Verb::Renew) > 20);
    assert_eq!((a.count("unproven"), a.count("abandoned")), (1, 0));
    assert_eq!(a.count("renew_failed") as u64, bed.calls(Verb::Renew));
}

/// A release without proof still gives back what may be there.
#[tokio::test(start_paused = true)]
async fn an_unproven_hold_releases_what_the_store_still_keeps() {
    let bed = Bed::new();
    let a = bed.client_with("a", "[class.workflow]\nrelease = { lock_delay = \"60s\" }");
    let hold = a.hold("workflow", "run:1").await;
    bed.chaos.renew().down(true);
    bed.pass(secs(40)).await;
    assert_eq!(hold.standing(), Standing::Unproven);
    assert_eq!(hold.release().await, Outcome::Released);
    assert_eq!(bed.lease("run:1").await, None);
    assert_eq!(a.count("overlap_ended"), 1);
}

/// Every second without proof is measured once, over several outages.
#[tokio::test(start_paused = true)]
async fn overlap_adds_up_over_outages() {
    let bed = Bed::new();
    let a = bed.client("a");
    let hold = a.hold("workflow", "run:1").await;
    for _ in 0..5 {
        bed.chaos.renew().down(true);
        bed.pass(secs(70)).await;
        bed.chaos.renew().down(false);
        bed.pass(secs(30)).await;
        assert_eq!(hold.standing(), Standing::Proven);
    }
    let (mut open, mut truth) = (None, 0.0);
    for event in a.history.events() {
        match event.what {
            What::Unproven => open = Some(event.at),
            What::ProvenAgain { .. } => truth += event.at.since(open.take().unwrap()).as_secs_f64(),
            _ => {}
        }
    }
    assert_eq!((a.count("unproven"), a.count("proven_again")), (5, 5));
    assert!((a.total("overlap_seconds_total", "") - truth).abs() < 0.01);
    assert!(truth > 5.0 * 30.0);
}
