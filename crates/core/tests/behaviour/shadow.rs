//! Shadow mode: counts what the policy would have stopped, and stops nothing.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use crate::fixture::{Fixture, run_ready_tasks, secs};
use leasehold_core::adapter::StoreOp;
use leasehold_core::{Exclusivity, HoldStatus, ReleaseOutcome};

const SHADOW_POLICY: &str = r#"
[class.scheduler]
mode = "shadow"
max_hold = "5m"
"#;

#[tokio::test(start_paused = true)]
async fn shadow_mode_counts_the_refusal_and_lets_the_work_run() {
    let fixture = Fixture::new();
    let a = fixture.client_with("a", SHADOW_POLICY);
    fixture.faults.all().down(true);
    let hold = a.hold("scheduler", "job:1").await;
    assert_eq!(hold.exclusivity(), Exclusivity::LocalOnly);
    assert_eq!((a.metric_total("would_refuse_total", ""), a.metric_total("fallback_total", "")), (1.0, 1.0));
    assert_eq!(a.event_count("unavailable"), 0);
    hold.check().unwrap();
}

#[tokio::test(start_paused = true)]
async fn shadow_mode_counts_the_stop_once_and_lets_the_work_continue() {
    let fixture = Fixture::new();
    let a = fixture.client_with("a", SHADOW_POLICY);
    let hold = a.hold("scheduler", "job:1").await;
    fixture.faults.renew().down(true);
    fixture.advance(secs(200)).await;
    hold.check().unwrap();
    assert_eq!(hold.status(), HoldStatus::Unproven);
    assert!(!hold.cancellation().is_cancelled());
    assert_eq!((a.event_count("would_stop"), a.metric_total("would_stop_total", "max_failures")), (1, 1.0));
    assert_eq!(a.event_count("abandoned"), 0);
    // The overlap is measured as with `continue`.
    fixture.faults.renew().down(false);
    fixture.advance(secs(10)).await;
    assert_eq!((hold.status(), a.event_count("proven_again")), (HoldStatus::Proven, 1));
    assert!(a.metric_total("overlap_seconds_total", "") > 100.0);
    assert_eq!(hold.release().await, ReleaseOutcome::Released);
}

#[tokio::test(start_paused = true)]
async fn shadow_mode_counts_max_hold_and_not_owned_without_acting() {
    let fixture = Fixture::new();
    let a = fixture.client_with("a", SHADOW_POLICY);
    let hold = a.hold("scheduler", "job:1").await;
    fixture.advance(secs(400)).await;
    hold.check().unwrap();
    assert_eq!((hold.status(), a.metric_total("would_stop_total", "max_hold")), (HoldStatus::Proven, 1.0));
    let renewed = fixture.call_count(StoreOp::Renew);
    fixture.advance(secs(100)).await;
    assert!(fixture.call_count(StoreOp::Renew) > renewed, "kept as before");

    let gone = a.hold("scheduler", "job:2").await;
    fixture.memory.table().clear_all_data();
    fixture.advance(secs(30)).await;
    gone.check().unwrap();
    assert_eq!(a.metric_total("would_stop_total", "not_owned"), 1.0);
    assert_eq!((gone.status(), a.event_count("abandoned")), (HoldStatus::Proven, 0), "taken again");
    drop((hold, gone));
    run_ready_tasks().await;
    a.wait_until_idle().await;
}

/// Once an override enforces the class, it acts.
#[tokio::test(start_paused = true)]
async fn an_enforced_shadow_class_acts() {
    let fixture = Fixture::new();
    let a = fixture.client_with("a", SHADOW_POLICY);
    let hold = a.hold("scheduler", "job:1").await;
    fixture.faults.renew().down(true);
    fixture.advance(secs(100)).await;
    hold.check().unwrap();
    a.set_policy("scheduler", "mode", "enforce", "the numbers are good", secs(600)).unwrap();
    run_ready_tasks().await;
    assert!(hold.check().is_err());
    assert_eq!((a.event_count("abandoned"), a.event_count("would_stop")), (1, 1));
}
