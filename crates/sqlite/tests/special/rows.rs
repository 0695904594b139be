//! What a statement speaks of: the rows of that name and that owner, and only while they last.

use std::time::Duration;

use leasehold_core::Fence;
use leasehold_core::store::{Answer, Ask, Giving, Grant, Store};

use crate::scene::{Scene, WITHIN, Who};

#[tokio::test]
async fn a_tombstone_is_for_one_name_and_runs_out() {
    let scene = Scene::new();
    let store = scene.open();
    let here = Who::new("a", "job:1");
    let there = Who {
        name: Who::new("a", "job:2").name,
        ..here.clone()
    };
    let undo = Giving::undo(here.name.clone(), here.token.clone());
    store.release(&undo, WITHIN).await.unwrap();
    there.gets(&store).await;
    let answer = here.put(&store, &here.ask(60_000)).await.unwrap();
    assert!(matches!(answer, Answer::Void), "{answer:?}");
    scene.clock.pass(Duration::from_secs(61));
    here.gets(&store).await;
}

#[tokio::test]
async fn a_token_that_is_undone_again_is_refused_for_longer() {
    let scene = Scene::new();
    let store = scene.open();
    let who = Who::new("a", "job:1");
    let undo = Giving::undo(who.name.clone(), who.token.clone());
    store.release(&undo, WITHIN).await.unwrap();
    scene.clock.pass(Duration::from_secs(40));
    store.release(&undo, WITHIN).await.unwrap();
    scene.clock.pass(Duration::from_secs(40));
    let answer = who.put(&store, &who.ask(60_000)).await.unwrap();
    assert!(matches!(answer, Answer::Void), "{answer:?}");
}

/// Late enough that its place has to be written anew, and with a floor that it did not have before.
#[tokio::test]
async fn a_waiter_that_asks_again_keeps_its_place_and_raises_its_floor() {
    let scene = Scene::new();
    let store = scene.open();
    let [holder, first, second] = ["h", "first", "second"].map(|holder| Who::new(holder, "job:1"));
    let held = holder.put(&store, &holder.ask(3_600_000)).await.unwrap();
    let Answer::Granted(Grant { fence, .. }) = held else {
        panic!("{held:?}");
    };
    first.queues(&store).await;
    second.queues(&store).await;
    scene.clock.pass(Duration::from_secs(400));
    let floor = Fence::new(fence.get() + 3_600_000_000).unwrap();
    let again = Ask {
        floor: Some(floor),
        ..first.queueing()
    };
    first.put(&store, &again).await.unwrap();
    holder.gives(&store).await;
    let lease = first.sees(&store).await.unwrap();
    assert_eq!(lease.holder, "first");
    assert!(lease.fence > Some(floor), "{lease:?}");
}

#[tokio::test]
async fn waiters_are_counted_by_name_and_while_they_wait() {
    let scene = Scene::new();
    let store = scene.open();
    let who = |holder: &str, name: &str| Who::new(holder, name);
    for name in ["job:1", "job:2"] {
        who("h", name).gets(&store).await;
        who("w", name).queues(&store).await;
    }
    let brief = who("b", "job:1");
    let ask = Ask {
        queue: Some(Duration::from_secs(1)),
        ..brief.ask(60_000)
    };
    brief.put(&store, &ask).await.unwrap();
    let waiters = async || brief.sees(&store).await.unwrap().waiters;
    assert_eq!(waiters().await, Some(2));
    scene.clock.pass(Duration::from_secs(2));
    assert_eq!(waiters().await, Some(1));
}

#[tokio::test]
async fn a_release_hands_over_to_whoever_waits_for_that_name() {
    let scene = Scene::new();
    let store = scene.open();
    let there = Who::new("h", "job:2");
    there.gets(&store).await;
    let early = Who::new("early", "job:2");
    early.queues(&store).await;
    let here = Who::new("h", "job:1");
    here.gets(&store).await;
    // Whoever waits for one name has no place in the line of another.
    let late = Who {
        name: here.name.clone(),
        ..early.clone()
    };
    late.queues(&store).await;
    assert_eq!(scene.count("waiters"), 2);
    Who::new("last", "job:1").queues(&store).await;
    assert_eq!(scene.count("waiters"), 3);
    here.gives(&store).await;
    assert_eq!(here.sees(&store).await.unwrap().holder, "early");
    assert_eq!(there.sees(&store).await.unwrap().waiters, Some(1));
}

#[tokio::test]
async fn another_names_waiter_is_not_handed_this_name() {
    let scene = Scene::new();
    let store = scene.open();
    let [here, there] = ["job:1", "job:2"].map(|name| Who::new("h", name));
    here.gets(&store).await;
    there.gets(&store).await;
    Who::new("early", "job:2").queues(&store).await;
    Who::new("late", "job:1").queues(&store).await;
    here.gives(&store).await;
    assert_eq!(here.sees(&store).await.unwrap().holder, "late");
}

/// What people read in the file follows what counts.
#[tokio::test]
async fn a_renewal_moves_the_time_that_people_read() {
    let scene = Scene::new();
    let store = scene.open();
    let who = Who::new("a", "job:1");
    let fence = who.gets(&store).await;
    let shown = || -> i64 {
        let sql = "SELECT expires_unix_ms FROM leases";
        scene.raw().query_row(sql, [], |row| row.get(0)).unwrap()
    };
    let before = shown();
    scene.clock.pass(Duration::from_secs(30));
    who.renews(&store, fence).await;
    assert_eq!(shown(), before + 30_000);
}

/// Hundreds of waiters that each wrote with every poll would keep the file from the one whose turn it is.
#[tokio::test]
async fn a_waiter_that_asks_again_soon_only_looks() {
    let scene = Scene::new();
    let store = scene.open();
    Who::new("h", "job:1").gets(&store).await;
    let waiter = Who::new("w", "job:1");
    waiter.queues(&store).await;
    let busy = scene.raw();
    busy.execute_batch("BEGIN IMMEDIATE").unwrap();
    waiter.queues(&store).await;
}

#[tokio::test]
async fn a_waiter_whose_place_ran_out_stands_behind_those_who_came_meanwhile() {
    let scene = Scene::new();
    let store = scene.open();
    let [holder, late, second] = ["h", "late", "second"].map(|holder| Who::new(holder, "job:1"));
    holder.put(&store, &holder.ask(3_600_000)).await.unwrap();
    late.queues(&store).await;
    scene.clock.pass(Duration::from_secs(601));
    second.queues(&store).await;
    late.queues(&store).await;
    holder.gives(&store).await;
    assert_eq!(holder.sees(&store).await.unwrap().holder, "second");
    second.gives(&store).await;
    assert_eq!(holder.sees(&store).await.unwrap().holder, "late");
}

#[tokio::test]
async fn whoever_leaves_one_line_stays_in_another() {
    let scene = Scene::new();
    let store = scene.open();
    let [here, there] = ["job:1", "job:2"].map(|name| Who::new("h", name));
    here.gets(&store).await;
    there.gets(&store).await;
    let waits_here = Who::new("w", "job:1");
    let waits_there = Who {
        name: there.name.clone(),
        ..waits_here.clone()
    };
    waits_here.queues(&store).await;
    waits_there.queues(&store).await;
    waits_here.gives(&store).await;
    assert_eq!(here.sees(&store).await.unwrap().waiters, Some(0));
    there.gives(&store).await;
    assert_eq!(there.sees(&store).await.unwrap().holder, "w");
}
