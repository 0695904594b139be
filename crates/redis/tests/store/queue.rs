//! Waiting: in order, one woken per release, and no one dependent on being woken.

use std::time::Duration;

use futures_util::StreamExt;
use leasehold_core::clock::{BootClock, Clock, ClockExt, until};
use leasehold_core::store::{Answer, Given, Giving, Listener, Store};
use leasehold_core::word::Fence;

use crate::stage::{WITHIN, ask, busy, eventually, give, grant, name, open, queued, raw, run, server, token};

async fn rings(listener: &Listener) -> bool {
    let clock = BootClock;
    until(&clock, clock.now() + WITHIN, listener.woken())
        .await
        .is_some()
}

/// It has not rung by now; what is on its way is not waited for.
async fn silent(listener: &Listener) -> bool {
    let clock = BootClock;
    until(&clock, clock.now(), listener.woken()).await.is_none()
}

/// Listens and queues, once the subscription's own first ring is out of the way.
async fn line_up(store: &leasehold_redis::RedisStore, text: &str) -> (leasehold_core::Token, Listener) {
    let mine = token();
    let listener = store.listen(&name(text), &mine);
    assert!(busy(store, &queued(text, &mine)).await.queued);
    // Everyone is woken when the subscription comes up; that was before the ask was answered.
    silent(&listener).await;
    (mine, listener)
}

#[tokio::test]
async fn a_release_hands_over_in_order_and_wakes_only_the_next() {
    let server = server().await;
    let (here, there, mut cli) = (open(&server.url()), open(&server.url()), raw(&server).await);
    let holder = token();
    let first = grant(&here, &ask("a", &holder)).await;
    let (one, bell_one) = line_up(&there, "a").await;
    let (two, bell_two) = line_up(&here, "a").await;
    // Asking again keeps the place.
    assert!(busy(&there, &queued("a", &one)).await.queued);
    assert_eq!(
        here.inspect(&name("a"), WITHIN).await.unwrap().unwrap().waiters,
        Some(2)
    );

    assert_eq!(give(&here, "a", &holder).await, Given::Released);
    assert!(rings(&bell_one).await);
    assert!(silent(&bell_two).await);
    // Granted on the spot, with a fence of its own, for as long as a claim lasts.
    let value: Option<String> = run(&mut cli, "GET lock:a").await;
    if let Some(value) = value {
        assert!(value.starts_with(one.expose()));
        let left: i64 = run(&mut cli, "PTTL lock:a").await;
        assert!(left <= 500, "{left}");
    }
    let second = grant(&there, &queued("a", &one)).await;
    assert!(second.fence > first.fence);
    let left: i64 = run(&mut cli, "PTTL lock:a").await;
    assert!(left > 500, "confirming gives the whole time to live: {left}");

    assert_eq!(give(&there, "a", &one).await, Given::Released);
    assert!(rings(&bell_two).await);
    assert!(grant(&here, &queued("a", &two)).await.fence > second.fence);
    assert_eq!(give(&here, "a", &two).await, Given::Released);
    let left: Vec<String> = run(&mut cli, "KEYS *").await;
    assert!(left.iter().all(|key| key.starts_with("lh1:fence:")), "{left:?}");
}

#[tokio::test]
async fn a_waiter_that_gave_up_is_forgotten() {
    let server = server().await;
    let store = open(&server.url());
    let holder = token();
    grant(&store, &ask("a", &holder)).await;
    let (one, bell_one) = line_up(&store, "a").await;
    let (_two, bell_two) = line_up(&store, "a").await;
    let undo = Giving::undo(name("a"), one.clone());
    assert_eq!(store.release(&undo, WITHIN).await.unwrap(), Given::NotOwned);
    let places: u64 = run(&mut raw(&server).await, "HLEN lh1:place:{lock:a}").await;
    assert_eq!(places, 1);
    assert_eq!(
        store.inspect(&name("a"), WITHIN).await.unwrap().unwrap().waiters,
        Some(1)
    );
    assert_eq!(give(&store, "a", &holder).await, Given::Released);
    assert!(rings(&bell_two).await);
    assert!(silent(&bell_one).await);
    assert_eq!(
        store.acquire(&queued("a", &one), WITHIN).await.unwrap(),
        Answer::Void
    );
}

/// Nobody handed it over: the lease ran out, and the waiter asked.
#[tokio::test]
async fn a_waiter_that_got_in_by_asking_waits_no_more() {
    let server = server().await;
    let (store, mut cli) = (open(&server.url()), raw(&server).await);
    grant(&store, &ask("a", &token())).await;
    let (one, _bell) = line_up(&store, "a").await;
    let (_two, _bell) = line_up(&store, "a").await;
    let _: u64 = run(&mut cli, "DEL lock:a").await;
    grant(&store, &queued("a", &one)).await;
    let queue: u64 = run(&mut cli, "ZCARD lh1:queue:{lock:a}").await;
    let places: u64 = run(&mut cli, "HLEN lh1:place:{lock:a}").await;
    assert_eq!((queue, places), (1, 1));
}

#[tokio::test]
async fn trap_19_dead_and_expired_waiters_are_skipped() {
    let server = server().await;
    let (store, mut cli) = (open(&server.url()), raw(&server).await);
    let holder = token();
    grant(&store, &ask("a", &holder)).await;
    // Dead: its process is gone.
    let dead = open(&server.url());
    line_up(&dead, "a").await;
    drop(dead);
    // Expired: it has not asked again for as long as it said.
    let expired = token();
    let mut brief = queued("a", &expired);
    brief.queue = Some(Duration::from_millis(50));
    assert!(busy(&store, &brief).await.queued);
    let (_live, bell) = line_up(&store, "a").await;

    let place: String = run(
        &mut cli,
        &format!("HGET lh1:place:{{lock:a}} {}", expired.expose()),
    )
    .await;
    let until_us: u64 = place.split('|').next().unwrap().parse().unwrap();
    eventually("both are past it", || {
        let mut cli = cli.clone();
        async move {
            let (secs, micros): (u64, u64) = run(&mut cli, "TIME").await;
            let channels: Vec<String> = run(&mut cli, "PUBSUB CHANNELS lh1:wake:*").await;
            secs * 1_000_000 + micros > until_us && channels.len() == 1
        }
    })
    .await;
    assert_eq!(give(&store, "a", &holder).await, Given::Released);
    assert!(rings(&bell).await);
}

#[tokio::test]
async fn expired_places_do_not_pile_up_under_a_lock_that_is_never_released() {
    let server = server().await;
    let (store, mut cli) = (open(&server.url()), raw(&server).await);
    grant(&store, &ask("a", &token())).await;
    // One that stays keeps the queue's own keys alive.
    let stays = token();
    busy(&store, &queued("a", &stays)).await;
    for _ in 0..20 {
        let mut brief = queued("a", &token());
        brief.queue = Some(Duration::from_millis(1));
        busy(&store, &brief).await;
        BootClock.sleep(Duration::from_millis(2)).await;
    }
    let waiting: u64 = run(&mut cli, "ZCARD lh1:queue:{lock:a}").await;
    let places: u64 = run(&mut cli, "HLEN lh1:place:{lock:a}").await;
    // The one that stays, and the last of the others: nobody has come since.
    assert_eq!((waiting, places), (2, 2));
    assert!(busy(&store, &queued("a", &stays)).await.queued);
    let left: i64 = run(&mut cli, "PTTL lh1:queue:{lock:a}").await;
    assert!(left > 0, "the queue itself expires");
}

/// Twice as long as who came last wants to wait: those who ask again renew them every other time.
#[tokio::test]
async fn all_that_is_kept_of_a_queue_runs_out() {
    let server = server().await;
    let (store, mut cli) = (open(&server.url()), raw(&server).await);
    grant(&store, &ask("a", &token())).await;
    assert!(busy(&store, &queued("a", &token())).await.queued);
    for key in ["waits", "queue", "place"] {
        let left: i64 = run(&mut cli, &format!("PTTL lh1:{key}:{{lock:a}}")).await;
        assert!((60_001..=120_000).contains(&left), "{key}: {left}");
    }
}

#[tokio::test]
async fn trap_18_five_hundred_waiters_one_release_wakes_one() {
    let server = server().await;
    let (store, mut cli) = (open(&server.url()), raw(&server).await);
    let mut holder = token();
    grant(&store, &ask("a", &holder)).await;
    let mut waiters = Vec::new();
    for _ in 0..500 {
        waiters.push(line_up(&store, "a").await);
    }
    let _: () = run(&mut cli, "CONFIG RESETSTAT").await;
    for index in 0..waiters.len() {
        assert_eq!(give(&store, "a", &holder).await, Given::Released);
        let (mine, bell) = &waiters[index];
        assert!(rings(bell).await, "a lost wake-up at {index}");
        if let Some((_, next)) = waiters.get(index + 1) {
            assert!(silent(next).await, "two were woken at {index}");
        }
        grant(&store, &queued("a", mine)).await;
        holder = mine.clone();
    }
    // No spin: a release and a confirmation each, one message each.
    let info: String = run(&mut cli, "INFO commandstats").await;
    let calls = |command: &str| {
        let line = info
            .lines()
            .find(|line| line.starts_with(&format!("cmdstat_{command}:")))
            .unwrap();
        line.split_once("calls=")
            .unwrap()
            .1
            .split(',')
            .next()
            .unwrap()
            .parse::<u64>()
            .unwrap()
    };
    assert_eq!((calls("evalsha"), calls("publish")), (1000, 500));
}

#[tokio::test]
async fn r14_a_waiter_that_nobody_wakes_gets_in_by_asking() {
    let server = server().await;
    let (store, mut cli) = (open(&server.url()), raw(&server).await);
    let holder = token();
    grant(&store, &ask("a", &holder)).await;
    let (mine, _bell) = line_up(&store, "a").await;
    // A foreign client deletes the key: no script of ours runs, nobody is told.
    let _: i64 = run(&mut cli, "DEL lock:a").await;
    grant(&store, &queued("a", &mine)).await;
    // And we never turn the server's own notifications on.
    let events: Vec<String> = run(&mut cli, "CONFIG GET notify-keyspace-events").await;
    assert_eq!(events[1], "");
}

#[tokio::test]
async fn r15_everyone_is_woken_after_the_subscription_was_cut() {
    let server = server().await;
    let (store, mut cli) = (open(&server.url()), raw(&server).await);
    let holder = token();
    grant(&store, &ask("a", &holder)).await;
    let (one, bell_one) = line_up(&store, "a").await;
    let (_two, bell_two) = line_up(&store, "a").await;
    let _: i64 = run(&mut cli, "CLIENT KILL TYPE pubsub").await;
    // Whether it was released in the gap or not: both ask again, nobody is stuck.
    give(&store, "a", &holder).await;
    assert!(rings(&bell_one).await && rings(&bell_two).await);
    eventually("the first gets in", || async {
        matches!(
            store.acquire(&queued("a", &one), WITHIN).await.unwrap(),
            Answer::Granted(_)
        )
    })
    .await;
}

#[tokio::test]
async fn messages_contain_no_secret() {
    let server = server().await;
    let store = open(&server.url());
    let mut spy = redis::Client::open(server.url())
        .unwrap()
        .get_async_pubsub()
        .await
        .unwrap();
    spy.psubscribe("*").await.unwrap();
    let holder = token();
    grant(&store, &ask("a", &holder)).await;
    let (mine, _bell) = line_up(&store, "a").await;
    give(&store, "a", &holder).await;
    let message = spy.on_message().next().await.unwrap();
    let text: String = message.get_payload().unwrap();
    assert!(message.get_channel_name().starts_with("lh1:wake:"));
    assert!(
        !text.contains(mine.random()) && !text.contains(holder.random()),
        "{text}"
    );
    assert!(!format!("{store:?}").contains(mine.random()));
}

#[tokio::test]
async fn a_release_without_waiters_publishes_nothing() {
    let server = server().await;
    let (store, mut cli) = (open(&server.url()), raw(&server).await);
    let holder = token();
    grant(&store, &ask("a", &holder)).await;
    give(&store, "a", &holder).await;
    let info: String = run(&mut cli, "INFO commandstats").await;
    assert!(!info.contains("cmdstat_publish"));
}

/// The greater of the two counts, as for every other grant (I2): the counter may be lost, or the server's clock set back.
#[tokio::test]
async fn a_hand_over_goes_behind_neither_the_clock_nor_the_counter() {
    let server = server().await;
    let (store, mut cli) = (open(&server.url()), raw(&server).await);
    let holder = token();
    let first = grant(&store, &ask("a", &holder)).await.fence;
    let (one, _bell) = line_up(&store, "a").await;
    let (two, _bell) = line_up(&store, "a").await;
    let counters: Vec<String> = run(&mut cli, "KEYS lh1:fence:*").await;
    let counter = &counters[0];
    let _: u64 = run(&mut cli, &format!("DEL {counter}")).await;
    assert_eq!(give(&store, "a", &holder).await, Given::Released);
    let second = grant(&store, &queued("a", &one)).await.fence;
    assert!(second > first, "{second:?}");
    let ahead = second.get() + 3_600_000_000;
    let _: () = run(&mut cli, &format!("SET {counter} {ahead}")).await;
    assert_eq!(give(&store, "a", &one).await, Given::Released);
    let third = grant(&store, &queued("a", &two)).await.fence;
    assert!(third.get() > ahead, "{third:?}");
}

#[tokio::test]
async fn a_handed_over_lease_is_above_its_waiters_floor() {
    let server = server().await;
    let store = open(&server.url());
    let holder = token();
    let first = grant(&store, &ask("a", &holder)).await.fence;
    let mut waiting = queued("a", &token());
    waiting.floor = Fence::new(first.get() + 3_600_000_000);
    assert!(busy(&store, &waiting).await.queued);
    give(&store, "a", &holder).await;
    let handed = store.inspect(&name("a"), WITHIN).await.unwrap();
    // Unless the claim ran out on a machine that stood still for so long: then it is asked for anew.
    if let Some(lease) = handed {
        assert!(lease.fence > waiting.floor, "{lease:?}");
    }
    assert!(Some(grant(&store, &waiting).await.fence) > waiting.floor);
}

/// It has left the queue with its grant: its place would otherwise stay for as long as others wait.
#[tokio::test]
async fn whoever_is_handed_a_lease_leaves_no_place_behind() {
    let server = server().await;
    let (store, mut cli) = (open(&server.url()), raw(&server).await);
    let holder = token();
    grant(&store, &ask("a", &holder)).await;
    let (_one, _bell) = line_up(&store, "a").await;
    let (_two, _bell) = line_up(&store, "a").await;
    give(&store, "a", &holder).await;
    let waiting: u64 = run(&mut cli, "ZCARD lh1:queue:{lock:a}").await;
    let places: u64 = run(&mut cli, "HLEN lh1:place:{lock:a}").await;
    assert_eq!((waiting, places), (1, 1));
}

/// Its fence is ahead of the counter, which does not read the clock for the next one (I2).
#[tokio::test]
async fn the_next_grant_is_above_a_lease_that_was_handed_over() {
    let server = server().await;
    let store = open(&server.url());
    let holder = token();
    grant(&store, &ask("a", &holder)).await;
    let (one, _bell) = line_up(&store, "a").await;
    assert_eq!(give(&store, "a", &holder).await, Given::Released);
    let handed = grant(&store, &queued("a", &one)).await.fence;
    assert_eq!(give(&store, "a", &one).await, Given::Released);
    let next = grant(&store, &ask("a", &token())).await.fence;
    assert!(next > handed, "{next:?} after {handed:?}");
}
