//! What a call costs the server, counted by the server.

use std::collections::BTreeMap;

use leasehold_core::store::Given;
use leasehold_redis::testkit::RedisServer;
use redis::aio::MultiplexedConnection;

use crate::stage::{
    TTL, ask, busy, give, grant, name, open, queued, raw, renew, renewal, run, server, token,
};

/// Calls by command since the last reset, without those of the connection that counts.
async fn calls(cli: &mut MultiplexedConnection) -> BTreeMap<String, u64> {
    let info: String = run(cli, "INFO commandstats").await;
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
    let _: () = run(cli, "CONFIG RESETSTAT").await;
}

fn of(pairs: &[(&str, u64)]) -> BTreeMap<String, u64> {
    pairs
        .iter()
        .map(|(command, count)| ((*command).to_owned(), *count))
        .collect()
}

/// A store whose connections are made and whose scripts are loaded.
async fn warm(server: &RedisServer) -> std::sync::Arc<leasehold_redis::RedisStore> {
    let store = open(&server.url());
    let mine = token();
    let granted = grant(&store, &ask("a", &mine)).await;
    renew(&store, renewal("a", &mine, granted)).await;
    give(&store, "a", &mine).await;
    store
}

#[tokio::test]
async fn an_uncontended_acquire_is_one_round_trip_and_three_calls() {
    let server = server().await;
    let (store, mut cli) = (warm(&server).await, raw(&server).await);
    let mine = token();
    let last = grant(&store, &ask("a", &mine)).await.fence;
    give(&store, "a", &mine).await;
    reset(&mut cli).await;
    // As a client asks that has held this name before.
    let mut asking = ask("a", &token());
    asking.floor = Some(last);
    grant(&store, &asking).await;
    assert_eq!(
        calls(&mut cli).await,
        of(&[("evalsha", 1), ("incr", 1), ("mget", 1), ("set", 1)])
    );
}

#[tokio::test]
async fn an_uncontended_release_is_one_round_trip_and_two_calls() {
    let server = server().await;
    let (store, mut cli) = (warm(&server).await, raw(&server).await);
    let mine = token();
    grant(&store, &ask("a", &mine)).await;
    reset(&mut cli).await;
    assert_eq!(give(&store, "a", &mine).await, Given::Released);
    assert_eq!(
        calls(&mut cli).await,
        of(&[("evalsha", 1), ("mget", 1), ("del", 1)])
    );
}

#[tokio::test]
async fn the_clock_is_read_once_per_slot_and_floors_of_other_slots_are_kept_to() {
    let server = server().await;
    let (store, mut cli) = (open(&server.url()), raw(&server).await);
    reset(&mut cli).await;
    let mut floor = None;
    for round in 0..10 {
        for text in ["a", "b"] {
            let mut ask = ask(text, &token());
            ask.floor = floor;
            let granted = grant(&store, &ask).await;
            assert!(Some(granted.fence) > floor, "round {round}");
            floor = Some(granted.fence);
            give(&store, text, &ask.token).await;
        }
    }
    let counted = calls(&mut cli).await;
    assert_eq!(counted.get("time"), Some(&2), "{counted:?}");
}

/// Only who joins looks at the others' places.
#[tokio::test]
async fn a_waiter_that_asks_again_looks_at_nobody_elses_place() {
    let server = server().await;
    let (store, mut cli) = (warm(&server).await, raw(&server).await);
    grant(&store, &ask("a", &token())).await;
    let mine = token();
    assert!(busy(&store, &queued("a", &mine)).await.queued);
    reset(&mut cli).await;
    assert!(busy(&store, &queued("a", &mine)).await.queued);
    let counted = calls(&mut cli).await;
    let looked = ["zrange", "pexpire", "zadd"].map(|call| counted.get(call));
    assert_eq!(looked, [None, None, Some(&1)], "{counted:?}");
}

#[tokio::test]
async fn a_hand_over_is_two_commands_whatever_the_length_of_the_queue() {
    let server = server().await;
    let mut cli = raw(&server).await;
    let mut costs = Vec::new();
    for (text, others) in [("short", 1), ("long", 200)] {
        let store = warm(&server).await;
        let holder = token();
        grant(&store, &ask(text, &holder)).await;
        let waiters: Vec<_> = (0..others).map(|_| token()).collect();
        for waiter in &waiters {
            assert!(busy(&store, &queued(text, waiter)).await.queued);
        }
        reset(&mut cli).await;
        assert_eq!(give(&store, text, &holder).await, Given::Released);
        grant(&store, &ask(text, &waiters[0])).await;
        let counted = calls(&mut cli).await;
        assert_eq!(counted.get("evalsha"), Some(&2), "{counted:?}");
        assert_eq!(counted.get("publish"), Some(&1), "{counted:?}");
        costs.push(counted);
    }
    // R16: the same steps with one waiter and with two hundred.
    assert_eq!(costs[0], costs[1]);
}

#[tokio::test]
async fn r16_a_queue_of_dead_waiters_costs_a_bounded_number_of_steps() {
    let server = server().await;
    let (store, mut cli) = (warm(&server).await, raw(&server).await);
    let holder = token();
    grant(&store, &ask("a", &holder)).await;
    let dying = open(&server.url());
    for _ in 0..100 {
        assert!(busy(&dying, &queued("a", &token())).await.queued);
    }
    drop(dying);
    crate::stage::eventually("the dead client's subscription is gone", || {
        let mut cli = cli.clone();
        async move {
            run::<Vec<String>>(&mut cli, "PUBSUB CHANNELS lh1:wake:*")
                .await
                .is_empty()
        }
    })
    .await;
    reset(&mut cli).await;
    assert_eq!(give(&store, "a", &holder).await, Given::Released);
    let counted = calls(&mut cli).await;
    assert_eq!(counted.get("zpopmin"), Some(&16), "{counted:?}");
    assert!(
        leasehold_core::store::Store::inspect(&*store, &name("a"), TTL)
            .await
            .unwrap()
            .is_none()
    );
}

#[tokio::test]
async fn renewals_go_out_in_batches() {
    let server = server().await;
    let (store, mut cli) = (warm(&server).await, raw(&server).await);
    let mut batch = Vec::new();
    for index in 0..200 {
        let (mine, text) = (token(), format!("n:{index}"));
        let granted = grant(&store, &ask(&text, &mine)).await;
        batch.push(renewal(&text, &mine, granted));
    }
    reset(&mut cli).await;
    leasehold_core::store::Store::renew(&*store, &batch, TTL).await;
    let counted = calls(&mut cli).await;
    assert_eq!(
        counted,
        of(&[("evalsha", 200), ("mget", 200), ("pexpire", 200), ("pttl", 200)])
    );
}
