//! Policy changes while holds run: overrides, a file, escalation. Each takes effect at once and is reported.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use crate::fixture::{Client, Fixture, assert_at, ms, run_ready_tasks, secs};
use leasehold_core::event::EventKind;
use leasehold_core::observe::{Counters, History};
use leasehold_core::rng::SeededRandom;
use leasehold_core::{Acquired, Error, Exclusivity, HoldStatus, Holder, Locks, Loss};

fn policy_changes(client: &Client) -> Vec<String> {
    let told = client.events_of("policy_changed").into_iter().map(|event| match event.what {
        EventKind::PolicyChanged { change } => change,
        other => panic!("{other:?}"),
    });
    told.collect()
}

#[tokio::test(start_paused = true)]
async fn an_override_of_on_error_acts_at_once_and_reverts_by_itself() {
    let fixture = Fixture::new();
    let a = fixture.client("a");
    fixture.faults.acquire().down(true);
    let open = a.class("workflow").acquire("run:1").await.unwrap().held().unwrap();
    assert_eq!(open.exclusivity(), Exclusivity::LocalOnly);
    let from = fixture.now();
    a.set_policy("workflow", "acquire.on_error", "fail-closed", "duplicates seen", secs(1800)).unwrap();
    assert!(matches!(a.expect_error("workflow", "run:2").await, Error::Unavailable { .. }));
    open.check().expect("what runs already is not stopped by it");
    assert_eq!(policy_changes(&a).len(), 1);
    assert!(
        policy_changes(&a)[0].contains("fail-open -> fail-closed")
            && policy_changes(&a)[0].contains("duplicates seen")
    );
    // The override ends exactly on time.
    fixture.advance((from + secs(1800)).since(fixture.now()) - ms(10)).await;
    assert!(matches!(a.expect_error("workflow", "run:2").await, Error::Unavailable { .. }));
    fixture.advance(ms(20)).await;
    assert!(matches!(a.class("workflow").acquire("run:2").await, Ok(Acquired::Held(_))));
    run_ready_tasks().await;
    let told = policy_changes(&a);
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[1].contains("fail-closed -> fail-open") && told[1].contains("reverted"), "{told:?}");
    assert_at(a.events_of("policy_changed")[1].at, from, secs(1800));
    assert_eq!(a.metric_total("policy_changed_total", ""), 2.0);
}

#[tokio::test(start_paused = true)]
async fn an_override_of_on_failure_changes_running_holds_both_ways() {
    let fixture = Fixture::new();
    let a = fixture.client("a");
    // A hold that its class would stop goes on …
    let strict = a.hold("scheduler", "job:1").await;
    a.set_policy("scheduler", "renew.on_failure", "continue", "the release must finish", secs(100)).unwrap();
    fixture.faults.renew().down(true);
    fixture.advance(secs(80)).await;
    strict.check().unwrap();
    assert_eq!(strict.status(), HoldStatus::Unproven);
    // … until the override ends; then it stops at that moment.
    let lost = fixture.wait_for_loss(&strict).await;
    assert_eq!(lost.reason, Loss::Deadline);
    run_ready_tasks().await;
    assert_eq!(a.only_event("abandoned").at, a.events_of("policy_changed")[1].at);
    drop(strict);
    fixture.faults.renew().down(false);
    // The reverse: a hold that its class would continue is stopped.
    let lenient = a.hold("workflow", "run:1").await;
    fixture.faults.renew().down(true);
    fixture.advance(secs(40)).await;
    assert_eq!(lenient.status(), HoldStatus::Unproven);
    a.set_policy("workflow", "renew.on_failure", "fence", "two replicas wrote", secs(60)).unwrap();
    run_ready_tasks().await;
    assert_eq!(lenient.status(), HoldStatus::Lost(Loss::Deadline));
    assert!(lenient.cancellation().is_cancelled());
    // A fenced hold stays fenced when the override ends.
    fixture.advance(secs(120)).await;
    assert!(lenient.check().is_err());
    assert_eq!(a.event_count("policy_changed"), 4, "two set, two reverted");
}

/// An acquire may wait longer than an override lasts. The class in force at the grant counts.
#[tokio::test(start_paused = true)]
async fn a_hold_that_waited_through_a_change_uses_the_class_in_force() {
    let fixture = Fixture::new();
    let (a, b) = (fixture.client("a"), fixture.client("b"));
    let held = b.hold("scheduler", "job:1").await;
    let why = "the release must finish";
    a.set_policy("scheduler", "renew.on_failure", "continue", why, secs(100)).unwrap();
    let waits = tokio::spawn(a.class("scheduler").wait(secs(600)).acquire("job:1"));
    fixture.advance(secs(110)).await;
    held.release().await;
    let hold = waits.await.unwrap().unwrap().held().unwrap();
    let from = fixture.now();
    fixture.faults.renew().down(true);
    assert!(matches!(fixture.wait_for_loss(&hold).await.reason, Loss::Deadline | Loss::MaxFailures));
    assert!(fixture.now().since(from) <= secs(60), "{:?}", fixture.now().since(from));
    run_ready_tasks().await;
    assert_eq!((a.event_count("abandoned"), a.event_count("unproven")), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_waiter_fails_by_the_class_in_force_when_it_fails() {
    for (before, after, falls_back) in
        [("fail-open", "fail-closed", false), ("fail-closed", "fail-open", true)]
    {
        let fixture = Fixture::new();
        let policy = format!("[class.workflow]\nacquire = {{ on_error = \"{before}\" }}");
        let (a, b) = (fixture.client_with("a", &policy), fixture.client("b"));
        let _hold = b.hold("workflow", "run:1").await;
        fixture.faults.renew().down(true);
        let waits = tokio::spawn(a.class("workflow").wait(secs(600)).acquire("run:1"));
        fixture.advance(secs(10)).await;
        a.set_policy("workflow", "acquire.on_error", after, "duplicates seen", secs(600)).unwrap();
        // The awaited lease expires before the waiter gives up, so it cannot report contention.
        fixture.advance(ms(19_900)).await;
        fixture.faults.all().down(true);
        match waits.await.unwrap() {
            Ok(Acquired::Held(hold)) => assert_eq!(hold.exclusivity(), Exclusivity::LocalOnly),
            Err(Error::Unavailable { .. }) => assert!(!falls_back, "{before} to {after}"),
            other => panic!("{other:?}"),
        }
        let told = (a.event_count("fell_back"), a.event_count("unavailable"));
        assert_eq!(told, if falls_back { (1, 0) } else { (0, 1) }, "{before} to {after}");
        assert_eq!(a.event_count("would_refuse"), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_bad_override_changes_nothing_and_emits_no_event() {
    let fixture = Fixture::new();
    let a = fixture.client("a");
    for (class, field, value, reason, lasting) in [
        ("nobody", "ttl", "60s", "why", secs(60)),
        ("scheduler", "acquire.on_eror", "fail-open", "why", secs(60)),
        ("scheduler", "acquire.on_error", "perhaps", "why", secs(60)),
        ("scheduler", "acquire.on_error", "fail-open", " ", secs(60)),
        ("scheduler", "acquire.on_error", "fail-open", "why", ms(0)),
        ("scheduler", "renew.every", "59s", "why", secs(60)),
    ] {
        assert!(a.set_policy(class, field, value, reason, lasting).is_err(), "{class} {field} {value}");
    }
    run_ready_tasks().await;
    assert_eq!(a.event_count("policy_changed"), 0);
}

/// A hold with its own wait or TTL keeps it when its class changes.
#[tokio::test(start_paused = true)]
async fn a_policy_change_keeps_the_options_of_the_request() {
    let fixture = Fixture::new();
    let a = fixture.client("a");
    let tweaked = a.class("workflow").ttl(secs(12)).acquire("run:1").await.unwrap().held().unwrap();
    a.set_policy("workflow", "renew.on_failure", "fence", "test", secs(600)).unwrap();
    run_ready_tasks().await;
    fixture.faults.renew().down(true);
    let from = fixture.now();
    fixture.wait_for_loss(&tweaked).await;
    assert!(fixture.now().since(from) < secs(12));
}

fn client_with_policy_file(fixture: &Fixture, path: &std::path::Path) -> Client {
    let (history, counters) = (Arc::new(History::new(1000)), Arc::new(Counters::default()));
    let locks = Locks::builder(fixture.recorder.store())
        .policy_file(path)
        .clock(Arc::clone(&fixture.clock))
        .random(SeededRandom::shared(1))
        .holder(Holder::new("a").unwrap())
        .observer(Arc::clone(&history) as _)
        .observer(Arc::clone(&counters) as _)
        .without_log()
        .build()
        .unwrap();
    Client { locks, history, counters }
}

#[tokio::test(start_paused = true)]
async fn a_file_change_needs_no_restart_and_a_bad_file_changes_nothing() {
    let (fixture, folder) = (Fixture::new(), tempfile::tempdir().unwrap());
    let path = folder.path().join("leasehold.toml");
    std::fs::write(&path, "[class.workflow]\nttl = \"40s\"\n").unwrap();
    let a = client_with_policy_file(&fixture, &path);
    let hold = a.hold("workflow", "run:1").await;
    assert_eq!(fixture.live_lease("run:1").await.unwrap().remaining, Some(secs(40)));
    fixture.faults.renew().down(true);
    fixture.advance(secs(45)).await;
    assert_eq!(hold.status(), HoldStatus::Unproven);

    // Bad file: refused once with an event, and the old policy stays.
    std::fs::write(&path, "[class.workflow]\nttl = \"40\"\nrenew = { on_failure = \"fence\" }\n").unwrap();
    fixture.advance(secs(10)).await;
    let EventKind::PolicyRefused { problem } = a.only_event("policy_refused").what else { panic!() };
    assert!(problem.contains("ttl"), "{problem}");
    hold.check().unwrap();
    assert_eq!(a.event_count("policy_changed"), 0);

    // Good file: in force within seconds, also for the running hold.
    std::fs::write(&path, "[class.workflow]\nttl = \"40s\"\nrenew = { on_failure = \"fence\" }\n").unwrap();
    let from = fixture.now();
    let lost = fixture.wait_for_loss(&hold).await;
    assert_eq!(lost.reason, Loss::Deadline);
    assert!(fixture.now().since(from) <= secs(4));
    run_ready_tasks().await;
    let told = policy_changes(&a);
    assert!(told.iter().any(|change| change.contains("renew.on_failure: continue -> fence")), "{told:?}");

    // Missing file: the last good policy stays in force.
    std::fs::remove_file(&path).unwrap();
    fixture.advance(secs(10)).await;
    assert_eq!(a.event_count("policy_refused"), 2);
    fixture.faults.acquire().down(true);
    drop(hold);
    assert!(matches!(a.class("workflow").acquire("run:2").await, Ok(Acquired::Held(_))), "still fail-open");
}

#[tokio::test(start_paused = true)]
async fn fallbacks_escalate_to_fail_closed_and_back() {
    const ESCALATION_POLICY: &str = r#"
[class.workflow]
escalate = ["fallback rate > 0.1/s for 1m and duplicates rising -> fail-closed"]
"#;
    let fixture = Fixture::new();
    let a = fixture.client_with("a", ESCALATION_POLICY);
    fixture.faults.acquire().down(true);
    let (mut escalated, from) = (None, fixture.now());
    for second in 0..300_u64 {
        match a.class("workflow").acquire(format!("run:{second}")).await {
            Ok(Acquired::Held(hold)) => {
                if second > 30 {
                    a.report_duplicate("workflow", hold.name());
                }
                hold.release().await;
            }
            Err(Error::Unavailable { .. }) => {
                escalated = Some(fixture.now().since(from));
                break;
            }
            other => panic!("{other:?}"),
        }
        fixture.advance(secs(1)).await;
    }
    let after = escalated.expect("escalated");
    assert!(after >= secs(60) && after <= secs(75), "after a minute of it: {after:?}");
    let told = policy_changes(&a);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("fail-open -> fail-closed") && told[0].contains("escalated"), "{told:?}");
    // The rule stays active during the outage. After the outage it deactivates by itself.
    for _ in 0..100 {
        assert!(matches!(a.expect_error("workflow", "run:x").await, Error::Unavailable { .. }));
        fixture.advance(secs(1)).await;
    }
    fixture.faults.acquire().down(false);
    fixture.advance(secs(150)).await;
    let told = policy_changes(&a);
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[1].contains("fail-closed -> fail-open"), "{told:?}");
    fixture.faults.acquire().down(true);
    assert!(matches!(a.class("workflow").acquire("run:y").await, Ok(Acquired::Held(_))));
}
