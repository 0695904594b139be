//! Waiting: in order, one wake-up per release, and no waiter depends on its wake-up.

use std::time::Duration;

use futures_util::StreamExt;
use leasehold_core::clock::{BootClock, Clock, ClockExt, run_until};
use leasehold_core::store::{AcquireResponse, ReleaseRequest, ReleaseResponse, Store, WakeListener};
use leasehold_core::types::Fence;

use crate::fixture::{
    CALL_TIMEOUT, acquire_request, eventually, expect_busy, expect_granted, name, open, queue_request,
    raw_connection, release, run_command, server, token,
};

async fn is_woken(listener: &WakeListener) -> bool {
    let clock = BootClock;
    run_until(&clock, clock.now() + CALL_TIMEOUT, listener.notified()).await.is_some()
}

/// Whether no wake-up has arrived so far; does not wait for one in transit.
async fn is_not_woken_yet(listener: &WakeListener) -> bool {
    let clock = BootClock;
    run_until(&clock, clock.now(), listener.notified()).await.is_none()
}

/// Listens and queues, and consumes the wake-up that the subscription itself causes.
async fn listen_and_queue(
    store: &leasehold_redis::RedisStore,
    text: &str,
) -> (leasehold_core::Token, WakeListener) {
    let mine = token();
    let listener = store.listen(&name(text), &mine);
    assert!(expect_busy(store, &queue_request(text, &mine)).await.queued);
    // The new subscription wakes all listeners; that happened before the acquire was answered.
    is_not_woken_yet(&listener).await;
    (mine, listener)
}

#[tokio::test]
async fn a_release_hands_over_in_order_and_wakes_only_the_next() {
    let server = server().await;
    let (here, there, mut cli) = (open(&server.url()), open(&server.url()), raw_connection(&server).await);
    let holder = token();
    let first = expect_granted(&here, &acquire_request("a", &holder)).await;
    let (one, bell_one) = listen_and_queue(&there, "a").await;
    let (two, bell_two) = listen_and_queue(&here, "a").await;
    // A poll keeps the place in the queue.
    assert!(expect_busy(&there, &queue_request("a", &one)).await.queued);
    assert_eq!(here.inspect(&name("a"), CALL_TIMEOUT).await.unwrap().into_first().unwrap().waiters, Some(2));

    assert_eq!(release(&here, "a", &holder).await, ReleaseResponse::Released);
    assert!(is_woken(&bell_one).await);
    assert!(is_not_woken_yet(&bell_two).await);
    // Granted at once, with a new fence, for the time of a claim.
    let value: Option<String> = run_command(&mut cli, "GET lock:a").await;
    if let Some(value) = value {
        assert!(value.starts_with(one.expose()));
        let left: i64 = run_command(&mut cli, "PTTL lock:a").await;
        assert!(left <= 500, "{left}");
    }
    let second = expect_granted(&there, &queue_request("a", &one)).await;
    assert!(second.fence > first.fence);
    let left: i64 = run_command(&mut cli, "PTTL lock:a").await;
    assert!(left > 500, "confirming gives the whole time to live: {left}");

    assert_eq!(release(&there, "a", &one).await, ReleaseResponse::Released);
    assert!(is_woken(&bell_two).await);
    assert!(expect_granted(&here, &queue_request("a", &two)).await.fence > second.fence);
    assert_eq!(release(&here, "a", &two).await, ReleaseResponse::Released);
    let left: Vec<String> = run_command(&mut cli, "KEYS *").await;
    assert!(left.iter().all(|key| key.starts_with("lh1:fence:")), "{left:?}");
}

#[tokio::test]
async fn waiter_that_gave_up_is_removed() {
    let server = server().await;
    let store = open(&server.url());
    let holder = token();
    expect_granted(&store, &acquire_request("a", &holder)).await;
    let (one, bell_one) = listen_and_queue(&store, "a").await;
    let (_two, bell_two) = listen_and_queue(&store, "a").await;
    let undo = ReleaseRequest::undo(name("a"), one.clone());
    assert_eq!(store.release(&undo, CALL_TIMEOUT).await.unwrap(), ReleaseResponse::NotOwned);
    let places: u64 = run_command(&mut raw_connection(&server).await, "HLEN lh1:place:{lock:a}").await;
    assert_eq!(places, 1);
    assert_eq!(store.inspect(&name("a"), CALL_TIMEOUT).await.unwrap().into_first().unwrap().waiters, Some(1));
    assert_eq!(release(&store, "a", &holder).await, ReleaseResponse::Released);
    assert!(is_woken(&bell_two).await);
    assert!(is_not_woken_yet(&bell_one).await);
    assert_eq!(store.acquire(&queue_request("a", &one), CALL_TIMEOUT).await.unwrap(), AcquireResponse::Void);
}

/// Without a hand-over: the lease expired, and the waiter polled.
#[tokio::test]
async fn waiter_granted_by_polling_leaves_the_queue() {
    let server = server().await;
    let (store, mut cli) = (open(&server.url()), raw_connection(&server).await);
    expect_granted(&store, &acquire_request("a", &token())).await;
    let (one, _bell) = listen_and_queue(&store, "a").await;
    let (_two, _bell) = listen_and_queue(&store, "a").await;
    let _: u64 = run_command(&mut cli, "DEL lock:a").await;
    expect_granted(&store, &queue_request("a", &one)).await;
    let queue: u64 = run_command(&mut cli, "ZCARD lh1:queue:{lock:a}").await;
    let places: u64 = run_command(&mut cli, "HLEN lh1:place:{lock:a}").await;
    assert_eq!((queue, places), (1, 1));
}

#[tokio::test]
async fn trap_19_dead_and_expired_waiters_are_skipped() {
    let server = server().await;
    let (store, mut cli) = (open(&server.url()), raw_connection(&server).await);
    let holder = token();
    expect_granted(&store, &acquire_request("a", &holder)).await;
    // Dead: its process has ended.
    let dead = open(&server.url());
    listen_and_queue(&dead, "a").await;
    drop(dead);
    // Expired: it has not polled within the time it gave.
    let expired = token();
    let mut brief = queue_request("a", &expired);
    brief.queue = Some(Duration::from_millis(50));
    assert!(expect_busy(&store, &brief).await.queued);
    let (_live, notifier) = listen_and_queue(&store, "a").await;

    let place: String =
        run_command(&mut cli, &format!("HGET lh1:place:{{lock:a}} {}", expired.expose())).await;
    let until_us: u64 = place.split('|').next().unwrap().parse().unwrap();
    eventually("both are past it", || {
        let mut cli = cli.clone();
        async move {
            let (secs, micros): (u64, u64) = run_command(&mut cli, "TIME").await;
            let channels: Vec<String> = run_command(&mut cli, "PUBSUB CHANNELS lh1:wake:*").await;
            secs * 1_000_000 + micros > until_us && channels.len() == 1
        }
    })
    .await;
    assert_eq!(release(&store, "a", &holder).await, ReleaseResponse::Released);
    assert!(is_woken(&notifier).await);
}

#[tokio::test]
async fn expired_entries_of_an_unreleased_lock_are_bounded() {
    let server = server().await;
    let (store, mut cli) = (open(&server.url()), raw_connection(&server).await);
    expect_granted(&store, &acquire_request("a", &token())).await;
    // One waiter stays, which keeps the queue's own keys alive.
    let stays = token();
    expect_busy(&store, &queue_request("a", &stays)).await;
    for _ in 0..20 {
        let mut brief = queue_request("a", &token());
        brief.queue = Some(Duration::from_millis(1));
        expect_busy(&store, &brief).await;
        BootClock.sleep(Duration::from_millis(2)).await;
    }
    let waiting: u64 = run_command(&mut cli, "ZCARD lh1:queue:{lock:a}").await;
    let places: u64 = run_command(&mut cli, "HLEN lh1:place:{lock:a}").await;
    // The waiter that stays, and the last of the others: no new waiter has arrived since.
    assert_eq!((waiting, places), (2, 2));
    assert!(expect_busy(&store, &queue_request("a", &stays)).await.queued);
    let left: i64 = run_command(&mut cli, "PTTL lh1:queue:{lock:a}").await;
    assert!(left > 0, "the queue itself expires");
}

/// Twice the waiting time of the last waiter: polling waiters extend the keys every other time.
#[tokio::test]
async fn all_keys_of_a_queue_expire() {
    let server = server().await;
    let (store, mut cli) = (open(&server.url()), raw_connection(&server).await);
    expect_granted(&store, &acquire_request("a", &token())).await;
    assert!(expect_busy(&store, &queue_request("a", &token())).await.queued);
    for key in ["waits", "queue", "place"] {
        let left: i64 = run_command(&mut cli, &format!("PTTL lh1:{key}:{{lock:a}}")).await;
        assert!((60_001..=120_000).contains(&left), "{key}: {left}");
    }
}

#[tokio::test]
async fn trap_18_five_hundred_waiters_one_release_wakes_one() {
    let server = server().await;
    let (store, mut cli) = (open(&server.url()), raw_connection(&server).await);
    let mut holder = token();
    expect_granted(&store, &acquire_request("a", &holder)).await;
    let mut waiters = Vec::new();
    for _ in 0..500 {
        waiters.push(listen_and_queue(&store, "a").await);
    }
    let _: () = run_command(&mut cli, "CONFIG RESETSTAT").await;
    for index in 0..waiters.len() {
        assert_eq!(release(&store, "a", &holder).await, ReleaseResponse::Released);
        let (mine, notifier) = &waiters[index];
        assert!(is_woken(notifier).await, "a lost wake-up at {index}");
        if let Some((_, next)) = waiters.get(index + 1) {
            assert!(is_not_woken_yet(next).await, "two were woken at {index}");
        }
        expect_granted(&store, &queue_request("a", mine)).await;
        holder = mine.clone();
    }
    // No busy loop: one release, one confirmation and one message each.
    let info: String = run_command(&mut cli, "INFO commandstats").await;
    let calls = |command: &str| {
        let line = info.lines().find(|line| line.starts_with(&format!("cmdstat_{command}:"))).unwrap();
        line.split_once("calls=").unwrap().1.split(',').next().unwrap().parse::<u64>().unwrap()
    };
    assert_eq!((calls("evalsha"), calls("publish")), (1000, 500));
}

#[tokio::test]
async fn r14_a_waiter_that_is_not_woken_is_granted_by_polling() {
    let server = server().await;
    let (store, mut cli) = (open(&server.url()), raw_connection(&server).await);
    let holder = token();
    expect_granted(&store, &acquire_request("a", &holder)).await;
    let (mine, _bell) = listen_and_queue(&store, "a").await;
    // A foreign client deletes the key: no script of ours runs, and no message is sent.
    let _: i64 = run_command(&mut cli, "DEL lock:a").await;
    expect_granted(&store, &queue_request("a", &mine)).await;
    // And the store never enables the server's keyspace notifications.
    let events: Vec<String> = run_command(&mut cli, "CONFIG GET notify-keyspace-events").await;
    assert_eq!(events[1], "");
}

#[tokio::test]
async fn r15_everyone_is_woken_after_the_subscription_was_cut() {
    let server = server().await;
    let (store, mut cli) = (open(&server.url()), raw_connection(&server).await);
    let holder = token();
    expect_granted(&store, &acquire_request("a", &holder)).await;
    let (one, bell_one) = listen_and_queue(&store, "a").await;
    let (_two, bell_two) = listen_and_queue(&store, "a").await;
    let _: i64 = run_command(&mut cli, "CLIENT KILL TYPE pubsub").await;
    // Whether or not the release fell into the gap: both waiters poll, and none is stuck.
    release(&store, "a", &holder).await;
    assert!(is_woken(&bell_one).await && is_woken(&bell_two).await);
    eventually("the first gets in", || async {
        matches!(
            store.acquire(&queue_request("a", &one), CALL_TIMEOUT).await.unwrap(),
            AcquireResponse::Granted(_)
        )
    })
    .await;
}

#[tokio::test]
async fn messages_contain_no_secret() {
    let server = server().await;
    let store = open(&server.url());
    let mut spy = redis::Client::open(server.url()).unwrap().get_async_pubsub().await.unwrap();
    spy.psubscribe("*").await.unwrap();
    let holder = token();
    expect_granted(&store, &acquire_request("a", &holder)).await;
    let (mine, _bell) = listen_and_queue(&store, "a").await;
    release(&store, "a", &holder).await;
    let message = spy.on_message().next().await.unwrap();
    let text: String = message.get_payload().unwrap();
    assert!(message.get_channel_name().starts_with("lh1:wake:"));
    assert!(!text.contains(mine.random()) && !text.contains(holder.random()), "{text}");
    assert!(!format!("{store:?}").contains(mine.random()));
}

#[tokio::test]
async fn a_release_without_waiters_publishes_nothing() {
    let server = server().await;
    let (store, mut cli) = (open(&server.url()), raw_connection(&server).await);
    let holder = token();
    expect_granted(&store, &acquire_request("a", &holder)).await;
    release(&store, "a", &holder).await;
    let info: String = run_command(&mut cli, "INFO commandstats").await;
    assert!(!info.contains("cmdstat_publish"));
}

/// The greater of clock and counter wins, as for every other grant (I2): the counter may be lost,
/// or the server's clock set back.
#[tokio::test]
async fn hand_over_fence_is_above_clock_and_counter() {
    let server = server().await;
    let (store, mut cli) = (open(&server.url()), raw_connection(&server).await);
    let holder = token();
    let first = expect_granted(&store, &acquire_request("a", &holder)).await.fence;
    let (one, _bell) = listen_and_queue(&store, "a").await;
    let (two, _bell) = listen_and_queue(&store, "a").await;
    let counters: Vec<String> = run_command(&mut cli, "KEYS lh1:fence:*").await;
    let counter = &counters[0];
    let _: u64 = run_command(&mut cli, &format!("DEL {counter}")).await;
    assert_eq!(release(&store, "a", &holder).await, ReleaseResponse::Released);
    let second = expect_granted(&store, &queue_request("a", &one)).await.fence;
    assert!(second > first, "{second:?}");
    let ahead = second.get() + 3_600_000_000;
    let _: () = run_command(&mut cli, &format!("SET {counter} {ahead}")).await;
    assert_eq!(release(&store, "a", &one).await, ReleaseResponse::Released);
    let third = expect_granted(&store, &queue_request("a", &two)).await.fence;
    assert!(third.get() > ahead, "{third:?}");
}

#[tokio::test]
async fn a_handed_over_lease_is_above_its_waiters_floor() {
    let server = server().await;
    let store = open(&server.url());
    let holder = token();
    let first = expect_granted(&store, &acquire_request("a", &holder)).await.fence;
    let mut waiting = queue_request("a", &token());
    waiting.floor = Fence::new(first.get() + 3_600_000_000);
    assert!(expect_busy(&store, &waiting).await.queued);
    release(&store, "a", &holder).await;
    let handed = store.inspect(&name("a"), CALL_TIMEOUT).await.unwrap().into_first();
    // On a machine that stalled, the claim may have expired: then the waiter acquires anew.
    if let Some(lease) = handed {
        assert!(lease.fence > waiting.floor, "{lease:?}");
    }
    assert!(Some(expect_granted(&store, &waiting).await.fence) > waiting.floor);
}

/// The grant removes the queue entry. It would otherwise stay for as long as others wait.
#[tokio::test]
async fn hand_over_removes_the_queue_entry() {
    let server = server().await;
    let (store, mut cli) = (open(&server.url()), raw_connection(&server).await);
    let holder = token();
    expect_granted(&store, &acquire_request("a", &holder)).await;
    let (_one, _bell) = listen_and_queue(&store, "a").await;
    let (_two, _bell) = listen_and_queue(&store, "a").await;
    release(&store, "a", &holder).await;
    let waiting: u64 = run_command(&mut cli, "ZCARD lh1:queue:{lock:a}").await;
    let places: u64 = run_command(&mut cli, "HLEN lh1:place:{lock:a}").await;
    assert_eq!((waiting, places), (1, 1));
}

/// The fence is ahead of the counter, and the next grant does not read the clock (I2).
#[tokio::test]
async fn the_next_grant_is_above_a_lease_that_was_handed_over() {
    let server = server().await;
    let store = open(&server.url());
    let holder = token();
    expect_granted(&store, &acquire_request("a", &holder)).await;
    let (one, _bell) = listen_and_queue(&store, "a").await;
    assert_eq!(release(&store, "a", &holder).await, ReleaseResponse::Released);
    let handed = expect_granted(&store, &queue_request("a", &one)).await.fence;
    assert_eq!(release(&store, "a", &one).await, ReleaseResponse::Released);
    let next = expect_granted(&store, &acquire_request("a", &token())).await.fence;
    assert!(next > handed, "{next:?} after {handed:?}");
}
