//! Fail-open: on an error, never on contention; exclusive in this process, without a fence, counted once, and healing.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use std::collections::HashMap;
use std::sync::Mutex;

use crate::bed::{Bed, ms, name, overlap, secs, settle};
use leasehold_core::adapter::Verb;
use leasehold_core::event::What;
use leasehold_core::store::Cause;
use leasehold_core::{Acquired, Error, Exclusivity, Fence, Loss, NoFence, Outcome, Standing};

#[tokio::test(start_paused = true)]
async fn an_acquire_error_moves_the_fall_back_counter_exactly_once() {
    let bed = Bed::new();
    let a = bed.client("a");
    bed.chaos.all().down(true);
    let hold = a.hold("workflow", "run:1").await;
    assert_eq!(hold.exclusivity(), Exclusivity::LocalOnly);
    assert_eq!((a.total("fallback_total", ""), a.count("fell_back")), (1.0, 1));
    assert_eq!(a.total("acquire_total", "fell_back"), 1.0);
    hold.check().unwrap();
    assert_eq!(hold.unfenced().unwrap(), None);
    assert!(matches!(hold.fence(), Err(NoFence::LocalOnly { .. })));
    // The work goes on however long the outage lasts, and is not counted again.
    assert_eq!(hold.run(async { bed.pass(secs(300)).await }).await, Ok(()));
    assert_eq!(hold.release().await, Outcome::Released);
    assert_eq!((a.total("fallback_total", ""), a.names_here()), (1.0, 0));
    assert_eq!((a.count("acquired"), a.count("unavailable")), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn contention_never_falls_back() {
    let bed = Bed::new();
    let (a, b) = (bed.client("a"), bed.client("b"));
    let _hold = a.hold("workflow", "run:1").await;
    assert_eq!(b.busy("workflow", "run:1").await.holder, "a");
    assert_eq!(b.total("fallback_total", ""), 0.0);
}

/// Nor does an outage in the middle of a wait, as long as the lease that was seen lasts: that overlap would be known.
#[tokio::test(start_paused = true)]
async fn an_outage_while_waiting_for_a_live_lease_stays_contention() {
    let bed = Bed::new();
    let (a, b) = (bed.client("a"), bed.client("b"));
    let _hold = a.hold("workflow", "run:1").await;
    let waits = tokio::spawn(b.class("workflow").wait(secs(600)).acquire("run:1"));
    bed.pass(secs(2)).await;
    bed.chaos.all().down(true);
    let Ok(Acquired::Busy(busy)) = waits.await.unwrap() else {
        panic!("a known overlap")
    };
    assert_eq!(busy.holder, "a");
    assert_eq!(b.total("fallback_total", ""), 0.0);
}

#[tokio::test(start_paused = true)]
async fn a_local_hold_still_excludes_inside_the_process() {
    let bed = Bed::new();
    let a = bed.client("a");
    bed.chaos.all().down(true);
    let hold = a.hold("workflow", "run:1").await;
    let busy = a.busy("workflow", "run:1").await;
    assert!(busy.held_here && busy.held_at.is_some());
    hold.release().await;
    a.hold("workflow", "run:1").await.check().unwrap();
}

#[tokio::test(start_paused = true)]
async fn it_heals_and_gets_a_fence() {
    let bed = Bed::new();
    let (a, b) = (bed.client("a"), bed.client("b"));
    bed.chaos.all().down(true);
    let (hold, from) = (a.hold("workflow", "run:1").await, bed.now());
    bed.pass(secs(20)).await;
    bed.chaos.all().down(false);
    bed.pass(secs(6)).await;
    assert_eq!(hold.exclusivity(), Exclusivity::Distributed);
    let fence = hold.fence().unwrap();
    let lease = bed.lease("run:1").await.unwrap();
    assert_eq!((lease.holder.as_str(), lease.fence), ("a", Some(fence)));
    let healed = a.only("healed");
    let What::Healed { after } = healed.what else {
        panic!()
    };
    assert_eq!(after, healed.at.since(from));
    assert_eq!(a.total("healed_total", ""), 1.0);
    // From here on it is a hold like any other: renewed, exclusive, released.
    bed.pass(secs(100)).await;
    assert_eq!(b.busy("workflow", "run:1").await.holder, "a");
    assert_eq!(hold.release().await, Outcome::Released);
    assert_eq!(bed.lease("run:1").await, None);
}

#[tokio::test(start_paused = true)]
async fn a_heal_conflict_is_confirmed_once_and_the_class_decides() {
    for (decides, lost) in [("continue", false), ("fence", true)] {
        let bed = Bed::new();
        let policy = format!("[class.workflow]\nacquire = {{ on_heal_conflict = \"{decides}\" }}");
        let (a, b) = (bed.client_with("a", &policy), bed.client("b"));
        bed.chaos.all().down(true);
        let hold = a.hold("workflow", "run:1").await;
        let from = bed.now();
        bed.chaos.all().down(false);
        let other = b.hold("workflow", "run:1").await;
        bed.pass(secs(30)).await;
        assert_eq!(a.count("overlap_confirmed"), 1, "{decides}");
        assert_eq!(a.total("overlap_confirmed_total", ""), 1.0);
        other.check().unwrap();
        if lost {
            assert_eq!(hold.standing(), Standing::Lost(Loss::HealConflict));
            assert_eq!(a.total("abandoned_total", "heal_conflict"), 1.0);
            assert_eq!(a.only("overlap_ended").at, a.only("abandoned").at);
            assert_eq!(hold.release().await, Outcome::Skipped);
        } else {
            assert_eq!(hold.standing(), Standing::LocalOnly);
            assert_eq!(a.count("abandoned"), 0);
            assert_eq!(hold.release().await, Outcome::Released);
            assert_eq!(overlap(&a.only("overlap_ended")), bed.now().since(from));
        }
        settle().await;
        assert_eq!(
            bed.lease("run:1").await.unwrap().holder,
            "b",
            "the other's lease is left alone"
        );
    }
}

/// A target as the articles want it: it remembers the newest fence, and which keys it has already seen.
#[derive(Default)]
struct Target {
    newest: Mutex<Option<Fence>>,
    effects: Mutex<HashMap<String, u32>>,
}

impl Target {
    /// Applied, or refused as a duplicate.
    fn once(&self, key: &str) -> bool {
        let mut effects = self.effects.lock().unwrap();
        let seen = effects.entry(key.to_owned()).or_default();
        *seen += 1;
        *seen == 1
    }

    /// Applied, or refused with the newest fence.
    fn fenced(&self, fence: Fence) -> Result<(), Fence> {
        let mut newest = self.newest.lock().unwrap();
        match *newest {
            Some(newest) if fence < newest => Err(newest),
            _ => {
                *newest = Some(fence);
                Ok(())
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn duplicates_across_replicas_are_bounded_by_an_idempotent_target() {
    let bed = Bed::new();
    let (a, b) = (bed.client("a"), bed.client("b"));
    let target = Target::default();
    bed.chaos.all().down(true);
    let (mut ran, mut applied) = (0, 0);
    for replica in [&a, &b] {
        let hold = replica.hold("workflow", "run:1").await;
        hold.unfenced().unwrap();
        ran += 1;
        if target.once("run:1/step:1") {
            applied += 1;
        } else {
            replica.duplicate("workflow", hold.name());
        }
        hold.release().await;
    }
    assert_eq!((ran, applied), (2, 1), "both ran, one effect");
    assert_eq!(a.total("fallback_total", "") + b.total("fallback_total", ""), 2.0);
    assert_eq!(
        b.total("duplicate_terminal_total", ""),
        1.0,
        "and the duplicate is counted"
    );
}

#[tokio::test(start_paused = true)]
async fn duplicates_across_replicas_are_bounded_by_the_fence() {
    let bed = Bed::new();
    let (a, b) = (bed.client("a"), bed.client("b"));
    let target = Target::default();
    let old = a.hold("workflow", "run:1").await;
    let stale = old.fence().unwrap();
    target.fenced(stale).unwrap();
    // The replica is cut off for longer than its lease; its class lets it go on.
    bed.chaos.renew().hang(true);
    bed.pass(secs(31)).await;
    let new = b.hold("workflow", "run:1").await;
    target.fenced(new.fence().unwrap()).unwrap();
    old.check().unwrap();
    let newest = target.fenced(stale).unwrap_err();
    a.fence_refused("workflow", &name("run:1"), stale, newest);
    assert_eq!(newest, new.fence().unwrap());
    assert_eq!(a.total("fence_refused_total", ""), 1.0);
    assert_eq!(a.only("fence_refused").what, What::FenceRefused { newest });
}

/// The grant's reply was lost and then the store: what is found there on healing is our own, not someone else.
#[tokio::test(start_paused = true)]
async fn ones_own_lost_grant_is_not_a_heal_conflict() {
    let bed = Bed::new();
    let a = bed.client_with(
        "a",
        "[class.workflow]\nacquire = { on_heal_conflict = \"fence\" }",
    );
    bed.chaos.acquire().lose_reply(2);
    bed.chaos.release().down(true);
    let hold = a.hold("workflow", "run:1").await;
    assert_eq!(hold.exclusivity(), Exclusivity::LocalOnly);
    assert!(bed.lease("run:1").await.is_some(), "it was granted after all");
    bed.pass(secs(20)).await;
    assert_eq!(a.count("overlap_confirmed"), 0);
    assert_eq!(hold.standing(), Standing::Proven);
    assert_eq!(bed.lease("run:1").await.unwrap().fence, hold.fence().ok());
    bed.chaos.release().down(false);
    assert_eq!(hold.release().await, Outcome::Released);
    a.idle().await;
    assert_eq!(bed.lease("run:1").await, None);
}

/// The same, but the work is done before it heals: the lost grant is given back.
#[tokio::test(start_paused = true)]
async fn a_lost_grant_is_given_back_when_the_local_work_is_done() {
    let bed = Bed::new();
    let a = bed.client("a");
    bed.chaos.acquire().lose_reply(2);
    let hold = a.hold("workflow", "run:1").await;
    assert!(bed.lease("run:1").await.is_some());
    hold.release().await;
    a.idle().await;
    assert_eq!((bed.lease("run:1").await, a.names_here()), (None, 0));
}

/// A heal that was granted but not heard of is undone when the work ends.
#[tokio::test(start_paused = true)]
async fn a_heal_whose_reply_is_lost_leaves_no_orphan() {
    let bed = Bed::new();
    let a = bed.client("a");
    bed.chaos
        .acquire()
        .fail_next(1)
        .script(1, leasehold_core::adapter::Fault::HangAfter);
    let hold = a.hold("workflow", "run:1").await;
    bed.reached(Verb::Acquire, 2).await;
    bed.pass(ms(500)).await;
    assert!(bed.lease("run:1").await.is_some());
    assert_eq!(hold.exclusivity(), Exclusivity::LocalOnly);
    hold.release().await;
    a.idle().await;
    assert_eq!(bed.lease("run:1").await, None);
}

#[tokio::test(start_paused = true)]
async fn trap_20_error_contention_time_out_and_cancellation_are_four_results() {
    let bed = Bed::new();
    let (a, b) = (bed.client("a"), bed.client("b"));
    let _other = b.hold("scheduler", "taken").await;
    assert!(matches!(
        a.class("approval").acquire("taken").await,
        Ok(Acquired::Busy(_))
    ));
    bed.chaos.acquire().down(true);
    assert!(matches!(
        a.refused("workflow-critical", "down").await,
        Error::Unavailable {
            cause: Cause::Unreachable,
            ..
        }
    ));
    bed.chaos.acquire().calm().hang(true);
    assert!(matches!(
        a.refused("workflow-critical", "hangs").await,
        Error::Unavailable {
            cause: Cause::TimedOut,
            ..
        }
    ));
    let dropped = tokio::spawn(a.class("scheduler").acquire("dropped"));
    settle().await;
    dropped.abort();
    assert!(dropped.await.unwrap_err().is_cancelled());
    assert!(matches!(a.refused("nobody", "x").await, Error::Invalid(_)));
    assert!(matches!(
        a.refused("scheduler", "no spaces").await,
        Error::Invalid(_)
    ));
    let outcomes = ["busy", "unavailable", "cancelled", "acquired", "fell_back"];
    let counts = outcomes.map(|outcome| a.total("acquire_total", outcome));
    assert_eq!(counts, [1.0, 2.0, 1.0, 0.0, 0.0]);
}

/// The gauge goes up once per local-only hold and down once, however it ends.
#[tokio::test(start_paused = true)]
async fn local_only_holds_are_counted_while_they_last() {
    let bed = Bed::new();
    let a = bed.client("a");
    bed.chaos.all().down(true);
    let heals = a.hold("workflow", "run:1").await;
    let ends = a.hold("workflow", "run:2").await;
    assert_eq!(a.total("local_only_holds", ""), 2.0);
    ends.release().await;
    assert_eq!(a.total("local_only_holds", ""), 1.0);
    bed.chaos.all().down(false);
    bed.pass(secs(20)).await;
    assert_eq!(heals.exclusivity(), Exclusivity::Distributed);
    assert_eq!(a.total("local_only_holds", ""), 0.0);
    heals.release().await;
    assert_eq!(a.total("local_only_holds", ""), 0.0);
}

/// The lease of finished work that could not be given back is nobody's work.
#[tokio::test(start_paused = true)]
async fn a_debt_of_ones_own_is_no_conflict() {
    let bed = Bed::new();
    let policy = "[class.workflow]\nacquire = { on_heal_conflict = \"fence\" }";
    let a = bed.client_with("a", policy);
    let first = a.hold("workflow", "run:1").await;
    bed.chaos.all().down(true);
    assert!(matches!(first.release().await, Outcome::Debt { .. }));
    let hold = a.hold("workflow", "run:1").await;
    bed.chaos.acquire().down(false);
    bed.pass(secs(10)).await;
    assert_eq!(a.count("overlap_confirmed"), 0);
    assert_eq!(hold.standing(), Standing::LocalOnly);
    bed.chaos.all().down(false);
    bed.pass(secs(11)).await;
    assert_eq!(hold.standing(), Standing::Proven);
    assert_eq!((a.count("debt_cleared"), a.count("healed")), (1, 1));
}

/// Someone else's lease is one, also while a debt of one's own on the same name is not cleared yet.
#[tokio::test(start_paused = true)]
async fn a_debt_of_ones_own_hides_nobody_elses_work() {
    let bed = Bed::new();
    let policy = "[class.workflow]\nacquire = { on_heal_conflict = \"fence\" }";
    let (a, b) = (bed.client_with("a", policy), bed.client("b"));
    let first = a.hold("workflow", "run:1").await;
    let fence = first.fence().unwrap();
    bed.chaos.release().down(true);
    assert!(matches!(first.release().await, Outcome::Debt { .. }));
    bed.chaos.acquire().down(true);
    let hold = a.hold("workflow", "run:1").await;
    // No time passes: its own releases do not get through meanwhile.
    bed.chaos.release().down(false);
    b.break_lease(&name("run:1"), fence, "host is gone")
        .await
        .unwrap();
    bed.chaos.release().down(true);
    bed.chaos.acquire().down(false);
    let _other = b.hold("workflow", "run:1").await;
    bed.pass(secs(10)).await;
    assert_eq!(a.left().await.debts, 1, "it still owes");
    assert_eq!(a.count("overlap_confirmed"), 1);
    assert_eq!(hold.standing(), Standing::Lost(Loss::HealConflict));
}

/// Nor is what an acquire that was given up may have left.
#[tokio::test(start_paused = true)]
async fn an_undo_of_ones_own_is_no_conflict() {
    let bed = Bed::new();
    let policy = "[class.workflow]\nacquire = { on_heal_conflict = \"fence\" }";
    let a = bed.client_with("a", policy);
    // Granted, never heard of, and given up; its undo does not get through.
    bed.chaos.release().down(true);
    bed.chaos.acquire().delay_reply(secs(1));
    let asks = tokio::spawn(a.class("workflow").acquire("run:1"));
    bed.reached(Verb::Acquire, 1).await;
    settle().await;
    asks.abort();
    settle().await;
    assert_eq!(
        (a.left().await.undos, bed.lease("run:1").await.is_some()),
        (1, true)
    );
    bed.chaos.acquire().calm();
    bed.chaos.acquire().down(true);
    let hold = a.hold("workflow", "run:1").await;
    bed.chaos.acquire().down(false);
    bed.pass(secs(10)).await;
    assert_eq!(a.count("overlap_confirmed"), 0);
    assert_eq!(hold.standing(), Standing::LocalOnly);
    bed.chaos.release().down(false);
    bed.pass(secs(11)).await;
    assert_eq!(hold.standing(), Standing::Proven);
    assert_eq!((a.count("undone"), a.count("healed")), (1, 1));
}
