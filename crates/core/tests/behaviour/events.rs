//! The event stream: every transition once, counters that agree with it, and observers that cannot
//! harm the locks (I10).

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::fixture::{Client, Fixture, ms, run_ready_tasks, secs};
use leasehold_core::adapter::FaultOdds;
use leasehold_core::event::{Event, EventKind, LeaseOp, Observer};
use leasehold_core::observe::{Counters, Feed};
use leasehold_core::rng::{RandomExt, SeededRandom};
use leasehold_core::{Acquired, Holder, Locks};

/// Computes the important totals from the history alone.
fn totals_from_history(events: &[Event]) -> BTreeMap<(&'static str, &'static str), f64> {
    let mut totals: BTreeMap<_, f64> = BTreeMap::new();
    let mut add = |name, label, by: f64| *totals.entry((name, label)).or_default() += by;
    for event in events {
        match &event.what {
            EventKind::Acquired { took, .. } => {
                add("acquire_total", "acquired", 1.0);
                add("acquire_seconds", "", took.as_secs_f64());
            }
            EventKind::Busy { took, .. } => {
                add("acquire_total", "busy", 1.0);
                add("acquire_seconds", "", took.as_secs_f64());
            }
            EventKind::Unavailable { took, .. } => {
                add("acquire_total", "unavailable", 1.0);
                add("acquire_seconds", "", took.as_secs_f64());
            }
            EventKind::Cancelled { took } => {
                add("acquire_total", "cancelled", 1.0);
                add("acquire_seconds", "", took.as_secs_f64());
            }
            EventKind::FellBack { took, .. } => {
                add("acquire_total", "fell_back", 1.0);
                add("acquire_seconds", "", took.as_secs_f64());
                add("fallback_total", "", 1.0);
            }
            EventKind::Renewed { .. } => add("renew_total", "renewed", 1.0),
            EventKind::RenewFailed { unknown: true, .. } => add("renew_total", "unknown", 1.0),
            EventKind::RenewFailed { .. } => add("renew_total", "failed", 1.0),
            EventKind::NotOwned { op: LeaseOp::Renew } => add("not_owned_total", "renew", 1.0),
            EventKind::NotOwned { op: LeaseOp::Release } => add("not_owned_total", "release", 1.0),
            EventKind::Abandoned { reason, held } => {
                add("abandoned_total", reason.label(), 1.0);
                add("held_seconds", "", held.as_secs_f64());
            }
            EventKind::ProvenAgain { overlap, .. } | EventKind::OverlapEnded { overlap } => {
                add("overlap_seconds_total", "", overlap.as_secs_f64());
            }
            EventKind::OverlapConfirmed => add("overlap_confirmed_total", "", 1.0),
            EventKind::Released { held, .. } => {
                add("release_total", "released", 1.0);
                add("held_seconds", "", held.as_secs_f64());
            }
            EventKind::AlreadyLost { held } => {
                add("release_total", "already_lost", 1.0);
                add("held_seconds", "", held.as_secs_f64());
            }
            EventKind::Debt { held, .. } => {
                add("release_total", "debt", 1.0);
                add("held_seconds", "", held.as_secs_f64());
                add("debt_holds", "", 1.0);
            }
            EventKind::DebtCleared { after, .. } => {
                add("debt_holds", "", -1.0);
                add("debt_seconds_total", "", after.as_secs_f64());
            }
            _ => {}
        }
    }
    totals
}

/// Runs many holds at random through faults of every kind.
async fn run_random_holds(fixture: &Fixture, client: &Arc<Client>, seed: u64) {
    let mut tasks = Vec::new();
    for worker in 0..8 {
        let (client, clock) = (Arc::clone(client), Arc::clone(&fixture.clock));
        let random = SeededRandom::new(seed * 100 + worker);
        tasks.push(tokio::spawn(async move {
            for _ in 0..25 {
                let class = ["scheduler", "workflow", "approval"][random.below(3) as usize];
                let requests = client.class(class).acquire(format!("n:{}", random.below(4)));
                let rest = leasehold_core::clock::ClockExt::sleep(&*clock, ms(random.below(3000)));
                let answer = tokio::select! { answer = requests => Some(answer), () = rest => None };
                if let Some(Ok(Acquired::Held(hold))) = answer {
                    let work = leasehold_core::clock::ClockExt::sleep(&*clock, ms(random.below(90_000)));
                    let _ = hold.run(work).await;
                    if random.below(2) == 0 {
                        hold.release().await;
                    }
                }
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn counters_agree_with_the_history_through_faults() {
    for seed in 1..=6 {
        let fixture = Fixture::new();
        let (a, b) = (Arc::new(fixture.client("a")), Arc::new(fixture.client("b")));
        let odds = FaultOdds { refuse: 150, vanish: 80, lose_reply: 100, hang: 50 };
        fixture.faults.all().seeded(seed, odds);
        tokio::join!(run_random_holds(&fixture, &a, seed), run_random_holds(&fixture, &b, seed + 50));
        fixture.faults.all().clear();
        for client in [&a, &b] {
            client.wait_until_idle().await;
            let events = client.history.events();
            assert!(events.len() > 200, "{}", events.len());
            for ((name, label), value) in totals_from_history(&events) {
                let counted = client.metric_total(name, label);
                assert!((counted - value).abs() < 1e-6, "{name} {label}: {counted} {value}");
            }
            assert_eq!(client.metric_total("debt_holds", ""), 0.0, "L5: every debt is over");
            assert_complete_lifecycles(&events);
        }
    }
}

/// Asserts that every acquire ends once, every hold ends once, and no event falls outside its hold's lifetime.
fn assert_complete_lifecycles(events: &[Event]) {
    let mut lives: BTreeMap<u64, Vec<&'static str>> = BTreeMap::new();
    for event in events.iter().filter(|event| event.name.is_some() && event.hold != 0) {
        lives.entry(event.hold).or_default().push(event.what.label());
    }
    for (hold, story) in &lives {
        let count = |labels: &[&str]| story.iter().filter(|label| labels.contains(label)).count();
        if count(&["undone"]) > 0 {
            assert_eq!(story.len(), 1, "{hold}: {story:?}");
            continue;
        }
        let begun = count(&["acquired", "fell_back"]);
        let refused = count(&["busy", "unavailable", "cancelled"]);
        assert_eq!(begun + refused, 1, "{hold}: {story:?}");
        let ended = count(&["released", "already_lost", "kept", "debt", "abandoned"]);
        assert_eq!(ended, begun, "{hold}: {story:?}");
        assert_eq!(count(&["debt_cleared"]), count(&["debt"]), "{hold}: {story:?}");
        assert!(count(&["abandoned"]) + count(&["released"]) <= 1, "{hold}: {story:?}");
        let unproven = count(&["unproven"]) + count(&["fell_back"]);
        let settled = count(&["proven_again", "healed", "overlap_ended"]);
        assert_eq!(settled, unproven, "{hold}: every overlap ends: {story:?}");
    }
}

/// One hold, event by event.
#[tokio::test(start_paused = true)]
async fn each_transition_is_one_event() {
    let fixture = Fixture::new();
    let (a, b) = (fixture.client("a"), fixture.client("b"));
    let hold = a.hold("workflow", "run:1").await;
    fixture.advance(secs(11)).await;
    fixture.faults.renew().down(true);
    fixture.advance(secs(50)).await;
    fixture.faults.renew().down(false);
    fixture.advance(secs(6)).await;
    b.expect_busy("workflow", "run:1").await;
    hold.release().await;
    let mut story = a.event_labels();
    story.dedup();
    assert_eq!(
        story,
        [
            "acquired",
            "renewed",
            "renew_failed",
            "unproven",
            "renew_failed",
            "not_owned",
            "proven_again",
            "released"
        ]
    );
    assert_eq!(b.event_labels(), ["busy"]);
    let events = a.history.events();
    assert!(events.windows(2).all(|pair| pair[0].seq < pair[1].seq && pair[0].at <= pair[1].at));
    assert!(events.iter().all(|event| event.hold == events[0].hold && event.holder.as_str() == "a"));
    assert!(events.iter().all(|event| &*event.class == "workflow" && event.namespace() == "run"));
    let fences: Vec<_> = events.iter().filter_map(|event| event.fence).collect();
    assert!(fences.is_sorted() && fences.len() == events.len());
}

/// An unbounded set of names cannot make the counters grow without bound (O2).
#[tokio::test(start_paused = true)]
async fn counters_are_bounded_in_namespaces() {
    let fixture = Fixture::new();
    let a = fixture.client("a");
    for n in 0..400 {
        a.hold("scheduler", &format!("space{n}:job")).await.release().await;
    }
    let snapshot = a.counters.snapshot();
    let spaces: std::collections::BTreeSet<_> =
        snapshot.iter().map(|(_, labels, _)| &labels.namespace).collect();
    assert!(spaces.len() <= 101 && spaces.contains(&"other".to_owned()), "{}", spaces.len());
    assert_eq!(a.metric_total("acquire_total", "acquired"), 400.0);
}

#[derive(Debug)]
struct PanickingObserver;

impl Observer for PanickingObserver {
    fn on_event(&self, _: &Event) {
        panic!("a reader's own defect");
    }
}

/// A panicking observer does no harm: holds are renewed and released, and other observers get their events.
#[tokio::test(start_paused = true)]
async fn a_panicking_observer_does_not_cost_a_lock() {
    let fixture = Fixture::new();
    let counters = Arc::new(Counters::default());
    let locks = Locks::builder(fixture.recorder.store())
        .clock(Arc::clone(&fixture.clock))
        .holder(Holder::new("a").unwrap())
        .without_log()
        .observer(Arc::new(PanickingObserver))
        .observer(Arc::clone(&counters) as _)
        .build()
        .unwrap();
    let hold = locks.class("scheduler").acquire("job:1").await.unwrap().held().unwrap();
    fixture.advance(secs(200)).await;
    hold.check().unwrap();
    assert!(counters.total("renew_total", "renewed") >= 10.0);
    assert_eq!(hold.release().await, leasehold_core::ReleaseOutcome::Released);
    assert_eq!(counters.total("release_total", "released"), 1.0);
}

#[tokio::test(start_paused = true)]
async fn an_unread_feed_slows_nothing_and_reports_missed_events() {
    let fixture = Fixture::new();
    let feed = Arc::new(Feed::new(16));
    let mut slow = feed.subscribe();
    let locks = Locks::builder(fixture.recorder.store())
        .clock(Arc::clone(&fixture.clock))
        .without_log()
        .observer(Arc::clone(&feed) as _)
        .build()
        .unwrap();
    for n in 0..50 {
        let hold = locks.class("scheduler").acquire(format!("n:{n}")).await.unwrap().held().unwrap();
        hold.release().await;
    }
    run_ready_tasks().await;
    let missed = slow.recv().await.unwrap_err();
    assert!(matches!(missed, tokio::sync::broadcast::error::RecvError::Lagged(84)), "{missed:?}");
    assert_eq!(slow.recv().await.unwrap().what.label(), "acquired");
}
