//! Fail-open: on an error, never on contention. The hold is exclusive in this process, has no
//! fence, is counted once, and heals.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::collections::HashMap;
use std::sync::Mutex;

use crate::fixture::{Fixture, ms, name, overlap, run_ready_tasks, secs};
use leasehold_core::adapter::StoreOp;
use leasehold_core::event::EventKind;
use leasehold_core::store::StoreErrorKind;
use leasehold_core::{Acquired, Error, Exclusivity, Fence, FenceError, HoldStatus, Loss, ReleaseOutcome};

#[tokio::test(start_paused = true)]
async fn an_acquire_error_increments_the_fallback_counter_once() {
    let fixture = Fixture::new();
    let a = fixture.client("a");
    fixture.faults.all().down(true);
    let hold = a.hold("workflow", "run:1").await;
    assert_eq!(hold.exclusivity(), Exclusivity::LocalOnly);
    assert_eq!((a.metric_total("fallback_total", ""), a.event_count("fell_back")), (1.0, 1));
    assert_eq!(a.metric_total("acquire_total", "fell_back"), 1.0);
    hold.check().unwrap();
    assert_eq!(hold.fence_if_any().unwrap(), None);
    assert!(matches!(hold.fence(), Err(FenceError::LocalOnly { .. })));
    // The work goes on however long the outage lasts, and is not counted again.
    assert_eq!(hold.run(async { fixture.advance(secs(300)).await }).await, Ok(()));
    assert_eq!(hold.release().await, ReleaseOutcome::Released);
    assert_eq!((a.metric_total("fallback_total", ""), a.local_name_count()), (1.0, 0));
    assert_eq!((a.event_count("acquired"), a.event_count("unavailable")), (0, 0));
}

/// A grant that came too late to be used is an error of the store, so a fail-open class works on without a lease.
#[tokio::test(start_paused = true)]
async fn a_grant_that_arrives_too_late_falls_back() {
    const SHORT_TTL_POLICY: &str = r#"
[class.short]
ttl = "1s"
acquire = { timeout = "5s", wait = "0s", on_error = "fail-open" }
renew = { every = "200ms", timeout = "100ms", on_failure = "continue" }
"#;
    let fixture = Fixture::new();
    let a = fixture.client_with("a", SHORT_TTL_POLICY);
    fixture.faults.acquire().delay_reply(ms(980));
    let hold = a.hold("short", "job:1").await;
    assert_eq!(hold.exclusivity(), Exclusivity::LocalOnly);
    assert_eq!((a.event_count("too_late"), a.event_count("fell_back")), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn contention_never_falls_back() {
    let fixture = Fixture::new();
    let (a, b) = (fixture.client("a"), fixture.client("b"));
    let _hold = a.hold("workflow", "run:1").await;
    assert_eq!(b.expect_busy("workflow", "run:1").await.holder, "a");
    assert_eq!(b.metric_total("fallback_total", ""), 0.0);
}

/// An outage during a wait does not fall back either while the lease seen before is valid: the
/// overlap would be certain.
#[tokio::test(start_paused = true)]
async fn an_outage_while_waiting_for_a_live_lease_stays_contention() {
    let fixture = Fixture::new();
    let (a, b) = (fixture.client("a"), fixture.client("b"));
    let _hold = a.hold("workflow", "run:1").await;
    let waits = tokio::spawn(b.class("workflow").wait(secs(600)).acquire("run:1"));
    fixture.advance(secs(2)).await;
    fixture.faults.all().down(true);
    let Ok(Acquired::Busy(busy)) = waits.await.unwrap() else { panic!("a known overlap") };
    assert_eq!(busy.holder, "a");
    assert_eq!(b.metric_total("fallback_total", ""), 0.0);
}

#[tokio::test(start_paused = true)]
async fn a_local_hold_still_excludes_inside_the_process() {
    let fixture = Fixture::new();
    let a = fixture.client("a");
    fixture.faults.all().down(true);
    let hold = a.hold("workflow", "run:1").await;
    let busy = a.expect_busy("workflow", "run:1").await;
    assert!(busy.held_here && busy.held_at.is_some());
    hold.release().await;
    a.hold("workflow", "run:1").await.check().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_local_only_hold_heals_and_gets_a_fence() {
    let fixture = Fixture::new();
    let (a, b) = (fixture.client("a"), fixture.client("b"));
    fixture.faults.all().down(true);
    let (hold, from) = (a.hold("workflow", "run:1").await, fixture.now());
    fixture.advance(secs(20)).await;
    fixture.faults.all().down(false);
    fixture.advance(secs(6)).await;
    assert_eq!(hold.exclusivity(), Exclusivity::Distributed);
    let fence = hold.fence().unwrap();
    let lease = fixture.live_lease("run:1").await.unwrap();
    assert_eq!((lease.holder.as_str(), lease.fence), ("a", Some(fence)));
    let healed = a.only_event("healed");
    let EventKind::Healed { after } = healed.what else { panic!() };
    assert_eq!(after, healed.at.since(from));
    assert_eq!(a.metric_total("healed_total", ""), 1.0);
    // From here on it is an ordinary hold: renewed, exclusive, released.
    fixture.advance(secs(100)).await;
    assert_eq!(b.expect_busy("workflow", "run:1").await.holder, "a");
    assert_eq!(hold.release().await, ReleaseOutcome::Released);
    assert_eq!(fixture.live_lease("run:1").await, None);
}

#[tokio::test(start_paused = true)]
async fn a_heal_conflict_is_confirmed_once_and_the_class_decides() {
    for (decides, lost) in [("continue", false), ("fence", true)] {
        let fixture = Fixture::new();
        let policy = format!("[class.workflow]\nacquire = {{ on_heal_conflict = \"{decides}\" }}");
        let (a, b) = (fixture.client_with("a", &policy), fixture.client("b"));
        fixture.faults.all().down(true);
        let hold = a.hold("workflow", "run:1").await;
        let from = fixture.now();
        fixture.faults.all().down(false);
        let other = b.hold("workflow", "run:1").await;
        fixture.advance(secs(30)).await;
        assert_eq!(a.event_count("overlap_confirmed"), 1, "{decides}");
        assert_eq!(a.metric_total("overlap_confirmed_total", ""), 1.0);
        other.check().unwrap();
        if lost {
            assert_eq!(hold.status(), HoldStatus::Lost(Loss::HealConflict));
            assert_eq!(a.metric_total("abandoned_total", "heal_conflict"), 1.0);
            assert_eq!(a.only_event("overlap_ended").at, a.only_event("abandoned").at);
            assert_eq!(hold.release().await, ReleaseOutcome::Skipped);
        } else {
            assert_eq!(hold.status(), HoldStatus::LocalOnly);
            assert_eq!(a.event_count("abandoned"), 0);
            assert_eq!(hold.release().await, ReleaseOutcome::Released);
            assert_eq!(overlap(&a.only_event("overlap_ended")), fixture.now().since(from));
        }
        run_ready_tasks().await;
        assert_eq!(fixture.live_lease("run:1").await.unwrap().holder, "b", "the other's lease is left alone");
    }
}

/// A target as the articles require it: it remembers the newest fence and the keys it has applied.
#[derive(Default)]
struct FencedTarget {
    newest: Mutex<Option<Fence>>,
    effects: Mutex<HashMap<String, u32>>,
}

impl FencedTarget {
    /// Returns true if the key was applied, false if it is a duplicate.
    fn apply_once(&self, key: &str) -> bool {
        let mut effects = self.effects.lock().unwrap();
        let seen = effects.entry(key.to_owned()).or_default();
        *seen += 1;
        *seen == 1
    }

    /// Applies a write, or refuses it with the newest fence.
    fn apply_fenced(&self, fence: Fence) -> Result<(), Fence> {
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
    let fixture = Fixture::new();
    let (a, b) = (fixture.client("a"), fixture.client("b"));
    let target = FencedTarget::default();
    fixture.faults.all().down(true);
    let (mut ran, mut applied) = (0, 0);
    for replica in [&a, &b] {
        let hold = replica.hold("workflow", "run:1").await;
        hold.fence_if_any().unwrap();
        ran += 1;
        if target.apply_once("run:1/step:1") {
            applied += 1;
        } else {
            replica.report_duplicate("workflow", hold.name());
        }
        hold.release().await;
    }
    assert_eq!((ran, applied), (2, 1), "both ran, one effect");
    assert_eq!(a.metric_total("fallback_total", "") + b.metric_total("fallback_total", ""), 2.0);
    assert_eq!(b.metric_total("duplicate_terminal_total", ""), 1.0, "and the duplicate is counted");
}

#[tokio::test(start_paused = true)]
async fn duplicates_across_replicas_are_bounded_by_the_fence() {
    let fixture = Fixture::new();
    let (a, b) = (fixture.client("a"), fixture.client("b"));
    let target = FencedTarget::default();
    let old = a.hold("workflow", "run:1").await;
    let stale = old.fence().unwrap();
    target.apply_fenced(stale).unwrap();
    // The replica is cut off for longer than its lease; its class lets it continue.
    fixture.faults.renew().hang(true);
    fixture.advance(secs(31)).await;
    let new = b.hold("workflow", "run:1").await;
    target.apply_fenced(new.fence().unwrap()).unwrap();
    old.check().unwrap();
    let newest = target.apply_fenced(stale).unwrap_err();
    a.report_fence_refused("workflow", &name("run:1"), stale, newest);
    assert_eq!(newest, new.fence().unwrap());
    assert_eq!(a.metric_total("fence_refused_total", ""), 1.0);
    assert_eq!(a.only_event("fence_refused").what, EventKind::FenceRefused { newest });
}

/// The reply to the grant was lost, then the store failed. The lease found on healing is the
/// client's own, not a conflict.
#[tokio::test(start_paused = true)]
async fn a_clients_own_lost_grant_is_not_a_heal_conflict() {
    let fixture = Fixture::new();
    let a = fixture.client_with("a", "[class.workflow]\nacquire = { on_heal_conflict = \"fence\" }");
    fixture.faults.acquire().lose_reply(2);
    fixture.faults.release().down(true);
    let hold = a.hold("workflow", "run:1").await;
    assert_eq!(hold.exclusivity(), Exclusivity::LocalOnly);
    assert!(fixture.live_lease("run:1").await.is_some(), "it was granted after all");
    fixture.advance(secs(20)).await;
    assert_eq!(a.event_count("overlap_confirmed"), 0);
    assert_eq!(hold.status(), HoldStatus::Proven);
    assert_eq!(fixture.live_lease("run:1").await.unwrap().fence, hold.fence().ok());
    fixture.faults.release().down(false);
    assert_eq!(hold.release().await, ReleaseOutcome::Released);
    a.wait_until_idle().await;
    assert_eq!(fixture.live_lease("run:1").await, None);
}

/// The same, but the work ends before it heals: the lost grant is released.
#[tokio::test(start_paused = true)]
async fn a_lost_grant_is_released_when_the_local_work_ends() {
    let fixture = Fixture::new();
    let a = fixture.client("a");
    fixture.faults.acquire().lose_reply(2);
    let hold = a.hold("workflow", "run:1").await;
    assert!(fixture.live_lease("run:1").await.is_some());
    hold.release().await;
    a.wait_until_idle().await;
    assert_eq!((fixture.live_lease("run:1").await, a.local_name_count()), (None, 0));
}

/// A heal that was granted with a lost reply is undone when the work ends.
#[tokio::test(start_paused = true)]
async fn a_heal_whose_reply_is_lost_leaves_no_orphan() {
    let fixture = Fixture::new();
    let a = fixture.client("a");
    fixture.faults.acquire().fail_next(1).script(1, leasehold_core::adapter::Fault::HangAfter);
    let hold = a.hold("workflow", "run:1").await;
    fixture.wait_for_calls(StoreOp::Acquire, 2).await;
    fixture.advance(ms(500)).await;
    assert!(fixture.live_lease("run:1").await.is_some());
    assert_eq!(hold.exclusivity(), Exclusivity::LocalOnly);
    hold.release().await;
    a.wait_until_idle().await;
    assert_eq!(fixture.live_lease("run:1").await, None);
}

#[tokio::test(start_paused = true)]
async fn trap_20_error_contention_timeout_and_cancellation_are_distinct() {
    let fixture = Fixture::new();
    let (a, b) = (fixture.client("a"), fixture.client("b"));
    let _other = b.hold("scheduler", "taken").await;
    assert!(matches!(a.class("approval").acquire("taken").await, Ok(Acquired::Busy(_))));
    fixture.faults.acquire().down(true);
    assert!(matches!(
        a.expect_error("workflow-critical", "down").await,
        Error::Unavailable { cause: StoreErrorKind::Unreachable, .. }
    ));
    fixture.faults.acquire().clear().hang(true);
    assert!(matches!(
        a.expect_error("workflow-critical", "hangs").await,
        Error::Unavailable { cause: StoreErrorKind::TimedOut, .. }
    ));
    let dropped = tokio::spawn(a.class("scheduler").acquire("dropped"));
    run_ready_tasks().await;
    dropped.abort();
    assert!(dropped.await.unwrap_err().is_cancelled());
    assert!(matches!(a.expect_error("nobody", "x").await, Error::Invalid(_)));
    assert!(matches!(a.expect_error("scheduler", "no spaces").await, Error::Invalid(_)));
    let outcomes = ["busy", "unavailable", "cancelled", "acquired", "fell_back"];
    let counts = outcomes.map(|outcome| a.metric_total("acquire_total", outcome));
    assert_eq!(counts, [1.0, 2.0, 1.0, 0.0, 0.0]);
}

/// The gauge rises once per local-only hold and falls once, however the hold ends.
#[tokio::test(start_paused = true)]
async fn local_only_holds_are_counted_while_they_last() {
    let fixture = Fixture::new();
    let a = fixture.client("a");
    fixture.faults.all().down(true);
    let heals = a.hold("workflow", "run:1").await;
    let ends = a.hold("workflow", "run:2").await;
    assert_eq!(a.metric_total("local_only_holds", ""), 2.0);
    ends.release().await;
    assert_eq!(a.metric_total("local_only_holds", ""), 1.0);
    fixture.faults.all().down(false);
    fixture.advance(secs(20)).await;
    assert_eq!(heals.exclusivity(), Exclusivity::Distributed);
    assert_eq!(a.metric_total("local_only_holds", ""), 0.0);
    heals.release().await;
    assert_eq!(a.metric_total("local_only_holds", ""), 0.0);
}

/// An unreleased lease of finished work is not a conflict.
#[tokio::test(start_paused = true)]
async fn a_clients_own_debt_is_no_heal_conflict() {
    let fixture = Fixture::new();
    let policy = "[class.workflow]\nacquire = { on_heal_conflict = \"fence\" }";
    let a = fixture.client_with("a", policy);
    let first = a.hold("workflow", "run:1").await;
    fixture.faults.all().down(true);
    assert!(matches!(first.release().await, ReleaseOutcome::Debt { .. }));
    let hold = a.hold("workflow", "run:1").await;
    fixture.faults.acquire().down(false);
    fixture.advance(secs(10)).await;
    assert_eq!(a.event_count("overlap_confirmed"), 0);
    assert_eq!(hold.status(), HoldStatus::LocalOnly);
    fixture.faults.all().down(false);
    fixture.advance(secs(11)).await;
    assert_eq!(hold.status(), HoldStatus::Proven);
    assert_eq!((a.event_count("debt_cleared"), a.event_count("healed")), (1, 1));
}

/// Another client's lease is a conflict, even while this client still owes a release on the same name.
#[tokio::test(start_paused = true)]
async fn a_debt_does_not_hide_another_clients_lease() {
    let fixture = Fixture::new();
    let policy = "[class.workflow]\nacquire = { on_heal_conflict = \"fence\" }";
    let (a, b) = (fixture.client_with("a", policy), fixture.client("b"));
    let first = a.hold("workflow", "run:1").await;
    let fence = first.fence().unwrap();
    fixture.faults.release().down(true);
    assert!(matches!(first.release().await, ReleaseOutcome::Debt { .. }));
    fixture.faults.acquire().down(true);
    let hold = a.hold("workflow", "run:1").await;
    // No time passes here, so the client's own releases do not get through meanwhile.
    fixture.faults.release().down(false);
    b.break_lease(&name("run:1"), fence, "host is gone").await.unwrap();
    fixture.faults.release().down(true);
    fixture.faults.acquire().down(false);
    let _other = b.hold("workflow", "run:1").await;
    fixture.advance(secs(10)).await;
    assert_eq!(a.pending().await.debts, 1, "it still owes");
    assert_eq!(a.event_count("overlap_confirmed"), 1);
    assert_eq!(hold.status(), HoldStatus::Lost(Loss::HealConflict));
}

/// A lease that a cancelled acquire may have left is no conflict either.
#[tokio::test(start_paused = true)]
async fn a_clients_own_pending_undo_is_no_heal_conflict() {
    let fixture = Fixture::new();
    let policy = "[class.workflow]\nacquire = { on_heal_conflict = \"fence\" }";
    let a = fixture.client_with("a", policy);
    // The acquire is granted, cancelled before the response, and its undo does not get through.
    fixture.faults.release().down(true);
    fixture.faults.acquire().delay_reply(secs(1));
    let requests = tokio::spawn(a.class("workflow").acquire("run:1"));
    fixture.wait_for_calls(StoreOp::Acquire, 1).await;
    run_ready_tasks().await;
    requests.abort();
    run_ready_tasks().await;
    assert_eq!((a.pending().await.undos, fixture.live_lease("run:1").await.is_some()), (1, true));
    fixture.faults.acquire().clear();
    fixture.faults.acquire().down(true);
    let hold = a.hold("workflow", "run:1").await;
    fixture.faults.acquire().down(false);
    fixture.advance(secs(10)).await;
    assert_eq!(a.event_count("overlap_confirmed"), 0);
    assert_eq!(hold.status(), HoldStatus::LocalOnly);
    fixture.faults.release().down(false);
    fixture.advance(secs(11)).await;
    assert_eq!(hold.status(), HoldStatus::Proven);
    assert_eq!((a.event_count("undone"), a.event_count("healed")), (1, 1));
}
