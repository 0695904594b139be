//! The cost of each call on the server, as counted by the server.

use std::collections::BTreeMap;

use leasehold_core::store::ReleaseResponse;
use leasehold_redis::testkit::RedisServer;
use redis::aio::MultiplexedConnection;

use crate::fixture::{
    TEST_TTL, acquire_request, expect_busy, expect_granted, name, open, queue_request, raw_connection,
    release, renew, renew_request, run_command, server, token,
};

/// Calls per command since the last reset, without those of the counting connection.
async fn count_calls(cli: &mut MultiplexedConnection) -> BTreeMap<String, u64> {
    let info: String = run_command(cli, "INFO commandstats").await;
    info.lines()
        .filter_map(|line| {
            let (command, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            let count = rest.split(',').next()?.parse().ok()?;
            let ours = !matches!(command, "info" | "config|resetstat");
            ours.then(|| (command.to_owned(), count))
        })
        .collect()
}

async fn reset(cli: &mut MultiplexedConnection) {
    let _: () = run_command(cli, "CONFIG RESETSTAT").await;
}

fn call_counts(pairs: &[(&str, u64)]) -> BTreeMap<String, u64> {
    pairs.iter().map(|(command, count)| ((*command).to_owned(), *count)).collect()
}

/// A store whose connections are open and whose scripts are loaded.
async fn warm_store(server: &RedisServer) -> std::sync::Arc<leasehold_redis::RedisStore> {
    let store = open(&server.url());
    let mine = token();
    let granted = expect_granted(&store, &acquire_request("a", &mine)).await;
    renew(&store, renew_request("a", &mine, granted)).await;
    release(&store, "a", &mine).await;
    store
}

#[tokio::test]
async fn an_uncontended_acquire_is_one_round_trip_and_three_calls() {
    let server = server().await;
    let (store, mut cli) = (warm_store(&server).await, raw_connection(&server).await);
    let mine = token();
    let last = expect_granted(&store, &acquire_request("a", &mine)).await.fence;
    release(&store, "a", &mine).await;
    reset(&mut cli).await;
    // With a floor, as sent by a client that has held this name before.
    let mut acquire = acquire_request("a", &token());
    acquire.floor = Some(last);
    expect_granted(&store, &acquire).await;
    assert_eq!(
        count_calls(&mut cli).await,
        call_counts(&[("evalsha", 1), ("incr", 1), ("mget", 1), ("set", 1)])
    );
}

#[tokio::test]
async fn an_uncontended_release_is_one_round_trip_and_two_calls() {
    let server = server().await;
    let (store, mut cli) = (warm_store(&server).await, raw_connection(&server).await);
    let mine = token();
    expect_granted(&store, &acquire_request("a", &mine)).await;
    reset(&mut cli).await;
    assert_eq!(release(&store, "a", &mine).await, ReleaseResponse::Released);
    assert_eq!(count_calls(&mut cli).await, call_counts(&[("evalsha", 1), ("mget", 1), ("del", 1)]));
}

#[tokio::test]
async fn the_clock_is_read_once_per_slot_and_floors_of_other_slots_are_kept_to() {
    let server = server().await;
    let (store, mut cli) = (open(&server.url()), raw_connection(&server).await);
    reset(&mut cli).await;
    let mut floor = None;
    for round in 0..10 {
        for text in ["a", "b"] {
            let mut request = acquire_request(text, &token());
            request.floor = floor;
            let granted = expect_granted(&store, &request).await;
            assert!(Some(granted.fence) > floor, "round {round}");
            floor = Some(granted.fence);
            release(&store, text, &request.token).await;
        }
    }
    let counted = count_calls(&mut cli).await;
    assert_eq!(counted.get("time"), Some(&2), "{counted:?}");
}

/// Only a new waiter checks the entries of others.
#[tokio::test]
async fn polling_waiter_does_not_read_other_entries() {
    let server = server().await;
    let (store, mut cli) = (warm_store(&server).await, raw_connection(&server).await);
    expect_granted(&store, &acquire_request("a", &token())).await;
    let mine = token();
    assert!(expect_busy(&store, &queue_request("a", &mine)).await.queued);
    reset(&mut cli).await;
    assert!(expect_busy(&store, &queue_request("a", &mine)).await.queued);
    let counted = count_calls(&mut cli).await;
    let looked = ["zrange", "pexpire", "zadd"].map(|call| counted.get(call));
    assert_eq!(looked, [None, None, Some(&1)], "{counted:?}");
}

#[tokio::test]
async fn a_hand_over_is_two_commands_whatever_the_length_of_the_queue() {
    let server = server().await;
    let mut cli = raw_connection(&server).await;
    let mut costs = Vec::new();
    for (text, others) in [("short", 1), ("long", 200)] {
        let store = warm_store(&server).await;
        let holder = token();
        expect_granted(&store, &acquire_request(text, &holder)).await;
        let waiters: Vec<_> = (0..others).map(|_| token()).collect();
        for waiter in &waiters {
            assert!(expect_busy(&store, &queue_request(text, waiter)).await.queued);
        }
        reset(&mut cli).await;
        assert_eq!(release(&store, text, &holder).await, ReleaseResponse::Released);
        expect_granted(&store, &acquire_request(text, &waiters[0])).await;
        let counted = count_calls(&mut cli).await;
        assert_eq!(counted.get("evalsha"), Some(&2), "{counted:?}");
        assert_eq!(counted.get("publish"), Some(&1), "{counted:?}");
        costs.push(counted);
    }
    // R16: the same number of steps with one waiter and with two hundred.
    assert_eq!(costs[0], costs[1]);
}

#[tokio::test]
async fn r16_a_queue_of_dead_waiters_costs_a_bounded_number_of_steps() {
    let server = server().await;
    let (store, mut cli) = (warm_store(&server).await, raw_connection(&server).await);
    let holder = token();
    expect_granted(&store, &acquire_request("a", &holder)).await;
    let dying = open(&server.url());
    for _ in 0..100 {
        assert!(expect_busy(&dying, &queue_request("a", &token())).await.queued);
    }
    drop(dying);
    crate::fixture::eventually("the dead client's subscription is gone", || {
        let mut cli = cli.clone();
        async move { run_command::<Vec<String>>(&mut cli, "PUBSUB CHANNELS lh1:wake:*").await.is_empty() }
    })
    .await;
    reset(&mut cli).await;
    assert_eq!(release(&store, "a", &holder).await, ReleaseResponse::Released);
    let counted = count_calls(&mut cli).await;
    assert_eq!(counted.get("zpopmin"), Some(&16), "{counted:?}");
    assert!(
        leasehold_core::store::Store::inspect(&*store, &name("a"), TEST_TTL).await.unwrap().leases.is_empty()
    );
}

#[tokio::test]
async fn renewals_go_out_in_batches() {
    let server = server().await;
    let (store, mut cli) = (warm_store(&server).await, raw_connection(&server).await);
    let mut batch = Vec::new();
    for index in 0..200 {
        let (mine, text) = (token(), format!("n:{index}"));
        let granted = expect_granted(&store, &acquire_request(&text, &mine)).await;
        batch.push(renew_request(&text, &mine, granted));
    }
    reset(&mut cli).await;
    leasehold_core::store::Store::renew(&*store, &batch, TEST_TTL).await;
    let counted = count_calls(&mut cli).await;
    assert_eq!(counted, call_counts(&[("evalsha", 200), ("mget", 200), ("pexpire", 200), ("pttl", 200)]));
}
