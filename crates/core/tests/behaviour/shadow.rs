//! Shadow mode: what a policy would have stopped is counted, and nothing is stopped.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use crate::bed::{Bed, secs, settle};
use leasehold_core::adapter::Verb;
use leasehold_core::{Exclusivity, Outcome, Standing};

const SHADOW: &str = r#"
[class.scheduler]
mode = "shadow"
max_hold = "5m"
"#;

#[tokio::test(start_paused = true)]
async fn a_shadow_counts_the_refusal_and_lets_the_work_run() {
    let bed = Bed::new();
    let a = bed.client_with("a", SHADOW);
    bed.chaos.all().down(true);
    let hold = a.hold("scheduler", "job:1").await;
    assert_eq!(hold.exclusivity(), Exclusivity::LocalOnly);
    assert_eq!(
        (a.total("would_refuse_total", ""), a.total("fallback_total", "")),
        (1.0, 1.0)
    );
    assert_eq!(a.count("unavailable"), 0);
    hold.check().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_shadow_counts_the_stop_once_and_lets_the_work_go_on() {
    let bed = Bed::new();
    let a = bed.client_with("a", SHADOW);
    let hold = a.hold("scheduler", "job:1").await;
    bed.chaos.renew().down(true);
    bed.pass(secs(200)).await;
    hold.check().unwrap();
    assert_eq!(hold.standing(), Standing::Unproven);
    assert!(!hold.cancellation().is_cancelled());
    assert_eq!(
        (a.count("would_stop"), a.total("would_stop_total", "max_failures")),
        (1, 1.0)
    );
    assert_eq!(a.count("abandoned"), 0);
    // The price of not acting is measured like that of `continue`.
    bed.chaos.renew().down(false);
    bed.pass(secs(10)).await;
    assert_eq!((hold.standing(), a.count("proven_again")), (Standing::Proven, 1));
    assert!(a.total("overlap_seconds_total", "") > 100.0);
    assert_eq!(hold.release().await, Outcome::Released);
}

#[tokio::test(start_paused = true)]
async fn a_shadow_counts_max_hold_and_not_owned_without_acting() {
    let bed = Bed::new();
    let a = bed.client_with("a", SHADOW);
    let hold = a.hold("scheduler", "job:1").await;
    bed.pass(secs(400)).await;
    hold.check().unwrap();
    assert_eq!(
        (hold.standing(), a.total("would_stop_total", "max_hold")),
        (Standing::Proven, 1.0)
    );
    let renewed = bed.calls(Verb::Renew);
    bed.pass(secs(100)).await;
    assert!(bed.calls(Verb::Renew) > renewed, "kept as before");

    let gone = a.hold("scheduler", "job:2").await;
    bed.memory.table().lose_everything();
    bed.pass(secs(30)).await;
    gone.check().unwrap();
    assert_eq!(a.total("would_stop_total", "not_owned"), 1.0);
    assert_eq!(
        (gone.standing(), a.count("abandoned")),
        (Standing::Proven, 0),
        "taken again"
    );
    drop((hold, gone));
    settle().await;
    a.idle().await;
}

/// Put in force by an override, it acts from then on.
#[tokio::test(start_paused = true)]
async fn a_shadow_that_is_enforced_acts() {
    let bed = Bed::new();
    let a = bed.client_with("a", SHADOW);
    let hold = a.hold("scheduler", "job:1").await;
    bed.chaos.renew().down(true);
    bed.pass(secs(100)).await;
    hold.check().unwrap();
    a.set_policy("scheduler", "mode", "enforce", "the numbers are good", secs(600))
        .unwrap();
    settle().await;
    assert!(hold.check().is_err());
    assert_eq!((a.count("abandoned"), a.count("would_stop")), (1, 1));
}
