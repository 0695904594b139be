//! Acquire: its answers, and what an unanswered ask leaves (nothing).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use crate::bed;
use std::time::Duration;

use crate::bed::{Bed, assert_at, ms, secs, settle};
use leasehold_core::adapter::{Fault, Verb};
use leasehold_core::store::Cause;
use leasehold_core::{Error, Outcome};

/// Text, a name, or a reference to one: all of them can be acquired.
#[tokio::test(start_paused = true)]
async fn a_name_can_be_given_in_every_form() {
    let bed = Bed::new();
    let a = bed.client("a");
    let name = bed::name("job:1");
    for form in 0..4 {
        let class = a.class("scheduler");
        let answer = match form {
            0 => class.acquire("job:1").await,
            1 => class.acquire("job:1".to_owned()).await,
            2 => class.acquire(&name).await,
            _ => class.acquire(name.clone()).await,
        };
        assert_eq!(answer.unwrap().held().unwrap().release().await, Outcome::Released);
    }
}

#[tokio::test(start_paused = true)]
async fn busy_says_who_for_how_long_and_what_was_waited() {
    let bed = Bed::new();
    let (a, b) = (bed.client("a"), bed.client("b"));
    let hold = a.hold("scheduler", "job:1").await;
    bed.pass(secs(10)).await;
    let busy = b.busy("approval", "job:1").await;
    assert_eq!(
        (busy.holder.as_str(), busy.class.as_deref()),
        ("a", Some("scheduler"))
    );
    assert_eq!(busy.fence, hold.fence().ok());
    let left = busy.remaining.unwrap();
    assert!(
        left > secs(47) && left <= secs(48),
        "60 s less 10 less 2 of waiting: {left:?}"
    );
    assert!(
        busy.waited >= secs(2) && busy.waited <= ms(2002),
        "{:?}",
        busy.waited
    );
    assert!(!busy.held_here && busy.held_at.is_none());
    assert!(
        busy.to_string().contains("job:1 is held by a (class scheduler)"),
        "{busy}"
    );
    // Two classes exclude each other on one name: the class is not part of it.
    assert_eq!(b.busy("workflow", "job:1").await.waited, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn trap_31_self_contention_is_told_with_its_place_and_runs_no_work() {
    let bed = Bed::new();
    let a = bed.client("a");
    let line = line!() + 1;
    let hold = a.hold("scheduler", "job:1").await;
    let from = bed.now();
    let busy = a.busy("scheduler", "job:1").await;
    assert_at(bed.now(), from, secs(2));
    assert!(busy.held_here);
    let at = busy.held_at.expect("where");
    assert!(at.file().ends_with("acquire.rs"), "{at}");
    assert_eq!(at.line(), line, "where it was asked for, not inside the library");
    assert!(busy.to_string().contains("in this process"), "{busy}");
    let mut ran = false;
    let out = a.class("workflow").run("job:1", async |_| ran = true).await;
    assert!(matches!(out, Err(leasehold_core::RunError::Busy(busy)) if busy.held_here));
    assert!(!ran, "no success without work");
    assert_eq!(bed.calls(Verb::Acquire), 1, "the store is not asked");
    // The way to call code that locks the same name.
    assert!(hold.cover(&bed::name("job:1")).is_ok());
    assert!(hold.cover(&bed::name("job:2")).is_err());
}

#[tokio::test(start_paused = true)]
async fn invalid_input_is_named_and_nothing_is_asked() {
    let bed = Bed::new();
    let a = bed.client("a");
    let long = "x".repeat(513);
    for bad in ["", "two words", "br{ce", long.as_str()] {
        assert!(
            matches!(a.refused("scheduler", bad).await, Error::Invalid(_)),
            "{bad:?}"
        );
    }
    let error = a.refused("schedule", "job:1").await.to_string();
    assert!(error.contains("scheduler"), "names the nearest class: {error}");
    let too_short = a.class("scheduler").ttl(ms(10)).acquire("job:1").await;
    assert!(matches!(too_short, Err(Error::Invalid(_))));
    let no_time = a.class("scheduler").stop_grace(secs(60)).acquire("job:1").await;
    assert!(matches!(no_time, Err(Error::Invalid(_))));
    assert_eq!((bed.calls(Verb::Acquire), a.names_here()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn an_acquire_applied_without_reply_is_asked_again_with_the_same_token() {
    for fault in [Fault::LoseReply, Fault::Vanish(Cause::TimedOut)] {
        let bed = Bed::new();
        let a = bed.client("a");
        bed.chaos.acquire().script(1, fault);
        let hold = a.hold("scheduler", "job:1").await;
        let asked = bed.tap.asked();
        assert_eq!((asked.len(), &asked[0].token), (2, &asked[1].token));
        assert_eq!(
            bed.lease("job:1").await.unwrap().fence,
            hold.fence().ok(),
            "one grant"
        );
        assert_eq!(hold.release().await, Outcome::Released);
        assert_eq!(bed.footprint().await, (0, 0, 0));
    }
}

/// No path ends with a lease that nobody knows (I6), however the asks and their undo fail.
#[tokio::test(start_paused = true)]
async fn an_acquire_that_gives_up_leaves_no_orphan() {
    for fault in [Fault::LoseReply, Fault::HangAfter, Fault::Hang] {
        let bed = Bed::new();
        let (a, b) = (bed.client("a"), bed.client("b"));
        bed.chaos.acquire().script(200, fault);
        bed.chaos.release().fail_next(1).lose_reply(1);
        let error = a.refused("workflow-critical", "job:1").await;
        assert!(
            matches!(
                error,
                Error::Unavailable {
                    cause: Cause::TimedOut,
                    ..
                }
            ),
            "{error:?}"
        );
        bed.chaos.acquire().calm();
        a.idle().await;
        assert_eq!(bed.lease("job:1").await, None, "{fault:?}");
        b.hold("workflow-critical", "job:1").await.release().await;
        assert_eq!(a.count("undone"), 1);
        assert_eq!(bed.footprint().await, (0, 0, 0), "{fault:?}");
    }
}

/// The undo leaves a tombstone: the ask, if it arrives after all, is refused.
#[tokio::test(start_paused = true)]
async fn an_ask_that_arrives_after_its_undo_is_void() {
    let bed = Bed::new();
    let a = bed.client("a");
    bed.chaos.acquire().hang_next(2);
    assert!(matches!(
        a.refused("workflow-critical", "job:1").await,
        Error::Unavailable { .. }
    ));
    a.idle().await;
    bed.chaos.acquire().calm();
    let late = bed.tap.asked().remove(0);
    let ask =
        leasehold_core::store::Ask::new(late.name, late.token, leasehold_core::Ttl::new(secs(30)).unwrap());
    let answer = bed.tap.store().acquire(&ask, secs(1)).await.unwrap();
    assert_eq!(answer, leasehold_core::store::Answer::Void);
    assert_eq!(bed.lease("job:1").await, None);
}

/// A grant whose deadline has passed when the answer arrives is given back, not used.
#[tokio::test(start_paused = true)]
async fn a_grant_that_comes_too_late_is_given_back() {
    const SHORT: &str = r#"
[class.short]
ttl = "1s"
acquire = { timeout = "5s", wait = "0s" }
renew = { every = "200ms", timeout = "100ms" }
"#;
    let bed = Bed::new();
    let a = bed.client_with("a", SHORT);
    bed.chaos.acquire().delay_reply(ms(980));
    let error = a.refused("short", "job:1").await;
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    assert_eq!((a.count("too_late"), a.count("acquired")), (1, 0));
    settle().await;
    assert_eq!(bed.lease("job:1").await, None, "given back before it ran out");
    a.idle().await;
    // A little earlier, and it is used.
    bed.chaos.acquire().calm().delay_reply(ms(950));
    a.hold("short", "job:1").await.check().unwrap();
}

/// Renewals have a budget of their own: asks that hang, ten thousand of them, do not cost a hold.
#[tokio::test(start_paused = true)]
async fn a_flood_of_acquires_does_not_starve_renewals_nor_waits_for_ever() {
    let bed = Bed::new();
    let a = bed.client("a");
    let hold = a.hold("scheduler", "held").await;
    bed.chaos.acquire().hang(true);
    let from = bed.now();
    let flood: Vec<_> = (0..10_000)
        .map(|job| tokio::spawn(a.class("scheduler").acquire(format!("flood:{job}"))))
        .collect();
    settle().await;
    assert!(
        bed.calls(Verb::Acquire) < 1_000,
        "most queue here, not in the store"
    );
    for asked in flood {
        assert!(matches!(asked.await.unwrap(), Err(Error::Unavailable { .. })));
    }
    // Each waits out its own time-out at the most, not that of everyone before it.
    assert!(bed.now().since(from) <= secs(5), "{:?}", bed.now().since(from));
    bed.pass(secs(120)).await;
    hold.check().unwrap();
    assert_eq!((a.count("renew_failed"), a.count("abandoned")), (0, 0));
    bed.chaos.acquire().calm();
    assert_eq!(hold.release().await, Outcome::Released);
    bed.pass(secs(10)).await;
    a.hold("scheduler", "after").await.check().unwrap();
}

/// A class that demands more than the store promises is refused; one that cannot be told is unavailable, and counted.
#[tokio::test(start_paused = true)]
async fn a_demand_the_store_cannot_meet_is_refused_and_an_unanswered_one_is_counted() {
    let bed = Bed::new();
    let a = bed.client_with("a", "[class.workflow]\nrequires = \"durable\"");
    let error = a.refused("workflow", "run:1").await;
    assert!(matches!(error, Error::Invalid(_)), "fail-open or not: {error:?}");
    assert_eq!(
        (bed.calls(Verb::Acquire), a.total("fallback_total", "")),
        (0, 0.0)
    );
    bed.chaos.on(&[Verb::Promise]).down(true);
    assert!(matches!(
        a.refused("workflow", "run:1").await,
        Error::Unavailable { .. }
    ));
    assert_eq!(a.total("acquire_total", "unavailable"), 1.0);
}
