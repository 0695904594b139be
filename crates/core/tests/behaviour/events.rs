//! The one stream: every transition once, counters that agree with it, and readers that cannot hurt the locks (I10).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::bed::{Bed, Client, ms, secs, settle};
use leasehold_core::adapter::Odds;
use leasehold_core::event::{Event, Observer, Op, What};
use leasehold_core::observe::{Counters, Feed};
use leasehold_core::rng::{RandomExt, SeededRandom};
use leasehold_core::{Acquired, Holder, Locks};

/// The totals that matter, counted from the history alone.
fn recount(events: &[Event]) -> BTreeMap<(&'static str, &'static str), f64> {
    let mut totals: BTreeMap<_, f64> = BTreeMap::new();
    let mut add = |name, label, by: f64| *totals.entry((name, label)).or_default() += by;
    for event in events {
        match &event.what {
            What::Acquired { took, .. } => {
                add("acquire_total", "acquired", 1.0);
                add("acquire_seconds", "", took.as_secs_f64());
            }
            What::Busy { took, .. } => {
                add("acquire_total", "busy", 1.0);
                add("acquire_seconds", "", took.as_secs_f64());
            }
            What::Unavailable { took, .. } => {
                add("acquire_total", "unavailable", 1.0);
                add("acquire_seconds", "", took.as_secs_f64());
            }
            What::Cancelled { took } => {
                add("acquire_total", "cancelled", 1.0);
                add("acquire_seconds", "", took.as_secs_f64());
            }
            What::FellBack { took, .. } => {
                add("acquire_total", "fell_back", 1.0);
                add("acquire_seconds", "", took.as_secs_f64());
                add("fallback_total", "", 1.0);
            }
            What::Renewed { .. } => add("renew_total", "renewed", 1.0),
            What::RenewFailed { unknown: true, .. } => add("renew_total", "unknown", 1.0),
            What::RenewFailed { .. } => add("renew_total", "failed", 1.0),
            What::NotOwned { op: Op::Renew } => add("not_owned_total", "renew", 1.0),
            What::NotOwned { op: Op::Release } => add("not_owned_total", "release", 1.0),
            What::Abandoned { reason, held } => {
                add("abandoned_total", reason.label(), 1.0);
                add("held_seconds", "", held.as_secs_f64());
            }
            What::ProvenAgain { overlap, .. } | What::OverlapEnded { overlap } => {
                add("overlap_seconds_total", "", overlap.as_secs_f64());
            }
            What::OverlapConfirmed => add("overlap_confirmed_total", "", 1.0),
            What::Released { held, .. } => {
                add("release_total", "released", 1.0);
                add("held_seconds", "", held.as_secs_f64());
            }
            What::AlreadyLost { held } => {
                add("release_total", "already_lost", 1.0);
                add("held_seconds", "", held.as_secs_f64());
            }
            What::Debt { held, .. } => {
                add("release_total", "debt", 1.0);
                add("held_seconds", "", held.as_secs_f64());
                add("debt_holds", "", 1.0);
            }
            What::DebtCleared { after, .. } => {
                add("debt_holds", "", -1.0);
                add("debt_seconds_total", "", after.as_secs_f64());
            }
            _ => {}
        }
    }
    totals
}

/// A random life of many holds, through faults of every kind.
async fn live(bed: &Bed, client: &Arc<Client>, seed: u64) {
    let mut tasks = Vec::new();
    for worker in 0..8 {
        let (client, clock) = (Arc::clone(client), Arc::clone(&bed.clock));
        let random = SeededRandom::new(seed * 100 + worker);
        tasks.push(tokio::spawn(async move {
            for _ in 0..25 {
                let class = ["scheduler", "workflow", "approval"][random.below(3) as usize];
                let asks = client.class(class).acquire(format!("n:{}", random.below(4)));
                let rest = leasehold_core::clock::ClockExt::sleep(&*clock, ms(random.below(3000)));
                let answer = tokio::select! { answer = asks => Some(answer), () = rest => None };
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
        let bed = Bed::new();
        let (a, b) = (Arc::new(bed.client("a")), Arc::new(bed.client("b")));
        let odds = Odds {
            refuse: 150,
            vanish: 80,
            lose_reply: 100,
            hang: 50,
        };
        bed.chaos.all().seeded(seed, odds);
        tokio::join!(live(&bed, &a, seed), live(&bed, &b, seed + 50));
        bed.chaos.all().calm();
        for client in [&a, &b] {
            client.idle().await;
            let events = client.history.events();
            assert!(events.len() > 200, "{}", events.len());
            for ((name, label), value) in recount(&events) {
                let counted = client.total(name, label);
                assert!(
                    (counted - value).abs() < 1e-6,
                    "{name} {label}: {counted} {value}"
                );
            }
            assert_eq!(client.total("debt_holds", ""), 0.0, "L5: every debt is over");
            lives_are_whole(&events);
        }
    }
}

/// Every acquire ends once; every hold that began ends once; nothing happens to a hold before or after.
fn lives_are_whole(events: &[Event]) {
    let mut lives: BTreeMap<u64, Vec<&'static str>> = BTreeMap::new();
    for event in events
        .iter()
        .filter(|event| event.name.is_some() && event.hold != 0)
    {
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
        assert!(
            count(&["abandoned"]) + count(&["released"]) <= 1,
            "{hold}: {story:?}"
        );
        let unproven = count(&["unproven"]) + count(&["fell_back"]);
        let settled = count(&["proven_again", "healed", "overlap_ended"]);
        assert_eq!(settled, unproven, "{hold}: every overlap ends: {story:?}");
    }
}

/// One life, event by event.
#[tokio::test(start_paused = true)]
async fn each_transition_is_one_event() {
    let bed = Bed::new();
    let (a, b) = (bed.client("a"), bed.client("b"));
    let hold = a.hold("workflow", "run:1").await;
    bed.pass(secs(11)).await;
    bed.chaos.renew().down(true);
    bed.pass(secs(50)).await;
    bed.chaos.renew().down(false);
    bed.pass(secs(6)).await;
    b.busy("workflow", "run:1").await;
    hold.release().await;
    let mut story = a.story();
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
    assert_eq!(b.story(), ["busy"]);
    let events = a.history.events();
    assert!(
        events
            .windows(2)
            .all(|pair| pair[0].seq < pair[1].seq && pair[0].at <= pair[1].at)
    );
    assert!(
        events
            .iter()
            .all(|event| event.hold == events[0].hold && event.holder.as_str() == "a")
    );
    assert!(
        events
            .iter()
            .all(|event| &*event.class == "workflow" && event.namespace() == "run")
    );
    let fences: Vec<_> = events.iter().filter_map(|event| event.fence).collect();
    assert!(fences.is_sorted() && fences.len() == events.len());
}

/// Names without an order cannot make the counters grow without bound (O2).
#[tokio::test(start_paused = true)]
async fn counters_are_bounded_in_namespaces() {
    let bed = Bed::new();
    let a = bed.client("a");
    for n in 0..400 {
        a.hold("scheduler", &format!("space{n}:job"))
            .await
            .release()
            .await;
    }
    let snapshot = a.counters.snapshot();
    let spaces: std::collections::BTreeSet<_> =
        snapshot.iter().map(|(_, labels, _)| &labels.namespace).collect();
    assert!(
        spaces.len() <= 101 && spaces.contains(&"other".to_owned()),
        "{}",
        spaces.len()
    );
    assert_eq!(a.total("acquire_total", "acquired"), 400.0);
}

#[derive(Debug)]
struct Broken;

impl Observer for Broken {
    fn on(&self, _: &Event) {
        panic!("a reader's own defect");
    }
}

/// A reader that panics is its own trouble: holds are kept, renewed and released, and the other readers read on.
#[tokio::test(start_paused = true)]
async fn a_reader_that_panics_does_not_cost_a_lock() {
    let bed = Bed::new();
    let counters = Arc::new(Counters::default());
    let locks = Locks::builder(bed.tap.store())
        .clock(Arc::clone(&bed.clock))
        .holder(Holder::new("a").unwrap())
        .without_log()
        .observer(Arc::new(Broken))
        .observer(Arc::clone(&counters) as _)
        .build()
        .unwrap();
    let hold = locks
        .class("scheduler")
        .acquire("job:1")
        .await
        .unwrap()
        .held()
        .unwrap();
    bed.pass(secs(200)).await;
    hold.check().unwrap();
    assert!(counters.total("renew_total", "renewed") >= 10.0);
    assert_eq!(hold.release().await, leasehold_core::Outcome::Released);
    assert_eq!(counters.total("release_total", "released"), 1.0);
}

#[tokio::test(start_paused = true)]
async fn a_feed_that_is_not_read_slows_nothing_and_says_what_was_missed() {
    let bed = Bed::new();
    let feed = Arc::new(Feed::new(16));
    let mut slow = feed.subscribe();
    let locks = Locks::builder(bed.tap.store())
        .clock(Arc::clone(&bed.clock))
        .without_log()
        .observer(Arc::clone(&feed) as _)
        .build()
        .unwrap();
    for n in 0..50 {
        let hold = locks
            .class("scheduler")
            .acquire(format!("n:{n}"))
            .await
            .unwrap()
            .held()
            .unwrap();
        hold.release().await;
    }
    settle().await;
    let missed = slow.recv().await.unwrap_err();
    assert!(
        matches!(missed, tokio::sync::broadcast::error::RecvError::Lagged(84)),
        "{missed:?}"
    );
    assert_eq!(slow.recv().await.unwrap().what.label(), "acquired");
}
