//! Policies that change while holds run: overrides, a file, escalation. Each takes force at once, and is told.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use std::sync::Arc;

use crate::bed::{Bed, Client, assert_at, ms, secs, settle};
use leasehold_core::event::What;
use leasehold_core::observe::{Counters, History};
use leasehold_core::rng::SeededRandom;
use leasehold_core::{Acquired, Error, Exclusivity, Holder, Locks, Loss, Standing};

fn changes(client: &Client) -> Vec<String> {
    let told = client
        .all("policy_changed")
        .into_iter()
        .map(|event| match event.what {
            What::PolicyChanged { change } => change,
            other => panic!("{other:?}"),
        });
    told.collect()
}

#[tokio::test(start_paused = true)]
async fn an_override_of_on_error_counts_at_once_and_reverts_by_itself() {
    let bed = Bed::new();
    let a = bed.client("a");
    bed.chaos.acquire().down(true);
    let open = a
        .class("workflow")
        .acquire("run:1")
        .await
        .unwrap()
        .held()
        .unwrap();
    assert_eq!(open.exclusivity(), Exclusivity::LocalOnly);
    let from = bed.now();
    a.set_policy(
        "workflow",
        "acquire.on_error",
        "fail-closed",
        "duplicates seen",
        secs(1800),
    )
    .unwrap();
    assert!(matches!(
        a.refused("workflow", "run:2").await,
        Error::Unavailable { .. }
    ));
    open.check().expect("what runs already is not stopped by it");
    assert_eq!(changes(&a).len(), 1);
    assert!(
        changes(&a)[0].contains("fail-open -> fail-closed") && changes(&a)[0].contains("duplicates seen")
    );
    // To the moment.
    bed.pass((from + secs(1800)).since(bed.now()) - ms(10)).await;
    assert!(matches!(
        a.refused("workflow", "run:2").await,
        Error::Unavailable { .. }
    ));
    bed.pass(ms(20)).await;
    assert!(matches!(
        a.class("workflow").acquire("run:2").await,
        Ok(Acquired::Held(_))
    ));
    settle().await;
    let told = changes(&a);
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(
        told[1].contains("fail-closed -> fail-open") && told[1].contains("reverted"),
        "{told:?}"
    );
    assert_at(a.all("policy_changed")[1].at, from, secs(1800));
    assert_eq!(a.total("policy_changed_total", ""), 2.0);
}

#[tokio::test(start_paused = true)]
async fn an_override_of_on_failure_flips_running_holds_both_ways() {
    let bed = Bed::new();
    let a = bed.client("a");
    // A hold that its class would stop goes on …
    let strict = a.hold("scheduler", "job:1").await;
    a.set_policy(
        "scheduler",
        "renew.on_failure",
        "continue",
        "the release must finish",
        secs(100),
    )
    .unwrap();
    bed.chaos.renew().down(true);
    bed.pass(secs(80)).await;
    strict.check().unwrap();
    assert_eq!(strict.standing(), Standing::Unproven);
    // … until the override ends, and then is stopped at that moment.
    let lost = bed.lost(&strict).await;
    assert_eq!(lost.reason, Loss::Deadline);
    settle().await;
    assert_eq!(a.only("abandoned").at, a.all("policy_changed")[1].at);
    drop(strict);
    bed.chaos.renew().down(false);
    // And one that its class would let go on is stopped.
    let lenient = a.hold("workflow", "run:1").await;
    bed.chaos.renew().down(true);
    bed.pass(secs(40)).await;
    assert_eq!(lenient.standing(), Standing::Unproven);
    a.set_policy(
        "workflow",
        "renew.on_failure",
        "fence",
        "two replicas wrote",
        secs(60),
    )
    .unwrap();
    settle().await;
    assert_eq!(lenient.standing(), Standing::Lost(Loss::Deadline));
    assert!(lenient.cancellation().is_cancelled());
    // What has been fenced stays so when the override ends.
    bed.pass(secs(120)).await;
    assert!(lenient.check().is_err());
    assert_eq!(a.count("policy_changed"), 4, "two set, two reverted");
}

/// An acquire may wait for longer than an override lasts. What counts is what is in force when it gets in.
#[tokio::test(start_paused = true)]
async fn a_hold_that_waited_through_a_change_lives_by_the_class_in_force() {
    let bed = Bed::new();
    let (a, b) = (bed.client("a"), bed.client("b"));
    let held = b.hold("scheduler", "job:1").await;
    let why = "the release must finish";
    a.set_policy("scheduler", "renew.on_failure", "continue", why, secs(100))
        .unwrap();
    let waits = tokio::spawn(a.class("scheduler").wait(secs(600)).acquire("job:1"));
    bed.pass(secs(110)).await;
    held.release().await;
    let hold = waits.await.unwrap().unwrap().held().unwrap();
    let from = bed.now();
    bed.chaos.renew().down(true);
    assert!(matches!(
        bed.lost(&hold).await.reason,
        Loss::Deadline | Loss::MaxFailures
    ));
    assert!(bed.now().since(from) <= secs(60), "{:?}", bed.now().since(from));
    settle().await;
    assert_eq!((a.count("abandoned"), a.count("unproven")), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_waiter_fails_as_its_class_says_when_it_fails() {
    for (before, after, falls_back) in [
        ("fail-open", "fail-closed", false),
        ("fail-closed", "fail-open", true),
    ] {
        let bed = Bed::new();
        let policy = format!("[class.workflow]\nacquire = {{ on_error = \"{before}\" }}");
        let (a, b) = (bed.client_with("a", &policy), bed.client("b"));
        let _hold = b.hold("workflow", "run:1").await;
        bed.chaos.renew().down(true);
        let waits = tokio::spawn(a.class("workflow").wait(secs(600)).acquire("run:1"));
        bed.pass(secs(10)).await;
        a.set_policy(
            "workflow",
            "acquire.on_error",
            after,
            "duplicates seen",
            secs(600),
        )
        .unwrap();
        // The lease that it waits for is over before it gives up: no contention is left to answer with.
        bed.pass(ms(19_900)).await;
        bed.chaos.all().down(true);
        match waits.await.unwrap() {
            Ok(Acquired::Held(hold)) => assert_eq!(hold.exclusivity(), Exclusivity::LocalOnly),
            Err(Error::Unavailable { .. }) => assert!(!falls_back, "{before} to {after}"),
            other => panic!("{other:?}"),
        }
        let told = (a.count("fell_back"), a.count("unavailable"));
        assert_eq!(
            told,
            if falls_back { (1, 0) } else { (0, 1) },
            "{before} to {after}"
        );
        assert_eq!(a.count("would_refuse"), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_bad_override_changes_nothing_and_is_no_event() {
    let bed = Bed::new();
    let a = bed.client("a");
    for (class, field, value, reason, lasting) in [
        ("nobody", "ttl", "60s", "why", secs(60)),
        ("scheduler", "acquire.on_eror", "fail-open", "why", secs(60)),
        ("scheduler", "acquire.on_error", "perhaps", "why", secs(60)),
        ("scheduler", "acquire.on_error", "fail-open", " ", secs(60)),
        ("scheduler", "acquire.on_error", "fail-open", "why", ms(0)),
        ("scheduler", "renew.every", "59s", "why", secs(60)),
    ] {
        assert!(
            a.set_policy(class, field, value, reason, lasting).is_err(),
            "{class} {field} {value}"
        );
    }
    settle().await;
    assert_eq!(a.count("policy_changed"), 0);
}

/// A hold with a wait or TTL of its own keeps it through a change of its class.
#[tokio::test(start_paused = true)]
async fn a_change_keeps_what_the_request_asked_for() {
    let bed = Bed::new();
    let a = bed.client("a");
    let tweaked = a
        .class("workflow")
        .ttl(secs(12))
        .acquire("run:1")
        .await
        .unwrap()
        .held()
        .unwrap();
    a.set_policy("workflow", "renew.on_failure", "fence", "test", secs(600))
        .unwrap();
    settle().await;
    bed.chaos.renew().down(true);
    let from = bed.now();
    bed.lost(&tweaked).await;
    assert!(bed.now().since(from) < secs(12));
}

fn with_file(bed: &Bed, path: &std::path::Path) -> Client {
    let (history, counters) = (Arc::new(History::new(1000)), Arc::new(Counters::default()));
    let locks = Locks::builder(bed.tap.store())
        .policy_file(path)
        .clock(Arc::clone(&bed.clock))
        .random(SeededRandom::shared(1))
        .holder(Holder::new("a").unwrap())
        .observer(Arc::clone(&history) as _)
        .observer(Arc::clone(&counters) as _)
        .without_log()
        .build()
        .unwrap();
    Client {
        locks,
        history,
        counters,
    }
}

#[tokio::test(start_paused = true)]
async fn a_file_change_counts_without_a_restart_and_a_bad_file_changes_nothing() {
    let (bed, folder) = (Bed::new(), tempfile::tempdir().unwrap());
    let path = folder.path().join("leasehold.toml");
    std::fs::write(&path, "[class.workflow]\nttl = \"40s\"\n").unwrap();
    let a = with_file(&bed, &path);
    let hold = a.hold("workflow", "run:1").await;
    assert_eq!(bed.lease("run:1").await.unwrap().remaining, Some(secs(40)));
    bed.chaos.renew().down(true);
    bed.pass(secs(45)).await;
    assert_eq!(hold.standing(), Standing::Unproven);

    // Bad: refused once, with an event, and the old one stays.
    std::fs::write(
        &path,
        "[class.workflow]\nttl = \"40\"\nrenew = { on_failure = \"fence\" }\n",
    )
    .unwrap();
    bed.pass(secs(10)).await;
    let What::PolicyRefused { problem } = a.only("policy_refused").what else {
        panic!()
    };
    assert!(problem.contains("ttl"), "{problem}");
    hold.check().unwrap();
    assert_eq!(a.count("policy_changed"), 0);

    // Good: in force within seconds, for the hold that runs too.
    std::fs::write(
        &path,
        "[class.workflow]\nttl = \"40s\"\nrenew = { on_failure = \"fence\" }\n",
    )
    .unwrap();
    let from = bed.now();
    let lost = bed.lost(&hold).await;
    assert_eq!(lost.reason, Loss::Deadline);
    assert!(bed.now().since(from) <= secs(4));
    settle().await;
    let told = changes(&a);
    assert!(
        told.iter()
            .any(|change| change.contains("renew.on_failure: continue -> fence")),
        "{told:?}"
    );

    // Gone: the last good one stays in force.
    std::fs::remove_file(&path).unwrap();
    bed.pass(secs(10)).await;
    assert_eq!(a.count("policy_refused"), 2);
    bed.chaos.acquire().down(true);
    drop(hold);
    assert!(
        matches!(a.class("workflow").acquire("run:2").await, Ok(Acquired::Held(_))),
        "still fail-open"
    );
}

#[tokio::test(start_paused = true)]
async fn escalation_from_fall_backs_to_fail_closed_and_back() {
    const RULE: &str = r#"
[class.workflow]
escalate = ["fallback rate > 0.1/s for 1m and duplicates rising -> fail-closed"]
"#;
    let bed = Bed::new();
    let a = bed.client_with("a", RULE);
    bed.chaos.acquire().down(true);
    let (mut escalated, from) = (None, bed.now());
    for second in 0..300_u64 {
        match a.class("workflow").acquire(format!("run:{second}")).await {
            Ok(Acquired::Held(hold)) => {
                if second > 30 {
                    a.duplicate("workflow", hold.name());
                }
                hold.release().await;
            }
            Err(Error::Unavailable { .. }) => {
                escalated = Some(bed.now().since(from));
                break;
            }
            other => panic!("{other:?}"),
        }
        bed.pass(secs(1)).await;
    }
    let after = escalated.expect("escalated");
    assert!(
        after >= secs(60) && after <= secs(75),
        "after a minute of it: {after:?}"
    );
    let told = changes(&a);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].contains("fail-open -> fail-closed") && told[0].contains("escalated"),
        "{told:?}"
    );
    // The outage goes on: so does the rule. Then it is over, and the rule lets go by itself.
    for _ in 0..100 {
        assert!(matches!(
            a.refused("workflow", "run:x").await,
            Error::Unavailable { .. }
        ));
        bed.pass(secs(1)).await;
    }
    bed.chaos.acquire().down(false);
    bed.pass(secs(150)).await;
    let told = changes(&a);
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[1].contains("fail-closed -> fail-open"), "{told:?}");
    bed.chaos.acquire().down(true);
    assert!(matches!(
        a.class("workflow").acquire("run:y").await,
        Ok(Acquired::Held(_))
    ));
}
