//! The way to the server breaks: nothing is reported that is not known, nothing is sent twice.

use std::time::Duration;

use leasehold_core::clock::{BootClock, Clock, until};
use leasehold_core::store::{Answer, Cause, Given, Giving, Renewed, Store};
use leasehold_redis::testkit::{Fault, Proxy};

use crate::stage::{
    WITHIN, ask, eventually, give, grant, name, open, raw, renew, renewal, run, server, token,
};

/// For calls that must run into their limit.
const SHORT: Duration = Duration::from_millis(200);

async fn evals(cli: &mut redis::aio::MultiplexedConnection) -> u64 {
    let info: String = run(cli, "INFO commandstats").await;
    let counts = info.lines().filter(|line| line.starts_with("cmdstat_eval"));
    counts
        .filter_map(|line| {
            line.split_once("calls=")?
                .1
                .split(',')
                .next()?
                .parse::<u64>()
                .ok()
        })
        .sum()
}

/// Connects and loads the scripts: what is cut below is then a script's answer, not `NOSCRIPT`.
async fn warm(store: &leasehold_redis::RedisStore) {
    let mine = token();
    let granted = grant(store, &ask("warm", &mine)).await;
    renew(store, renewal("warm", &mine, granted)).await;
    give(store, "warm", &mine).await;
}

#[tokio::test]
async fn r03_an_acquire_that_was_applied_but_not_answered_is_unknown_and_asking_again_finds_it() {
    let server = server().await;
    let proxy = Proxy::start(server.port()).await.unwrap();
    let (store, mut cli) = (open(&proxy.url()), raw(&server).await);
    warm(&store).await;
    for (fault, cause) in [
        (Fault::CutAfterForward, Cause::Unreachable),
        (Fault::LoseAnswers, Cause::TimedOut),
    ] {
        let mine = token();
        proxy.set(fault);
        let within = if fault == Fault::LoseAnswers {
            SHORT
        } else {
            WITHIN
        };
        let failure = store.acquire(&ask("a", &mine), within).await.unwrap_err();
        assert!(failure.unknown && failure.cause == cause, "{failure}");
        // It was applied: the key is there, with our token.
        eventually("the request arrived", || {
            let mut cli = cli.clone();
            async move { run::<Option<String>>(&mut cli, "GET lock:a").await.is_some() }
        })
        .await;
        let value: String = run(&mut cli, "GET lock:a").await;
        proxy.set(Fault::None);
        // The same token finds the same grant; nobody else is told anything but busy.
        let granted = grant(&store, &ask("a", &mine)).await;
        assert_eq!(value, format!("{}|{}", mine.expose(), granted.fence));
        assert_eq!(give(&store, "a", &mine).await, Given::Released);
    }
}

#[tokio::test]
async fn r03_an_undone_acquire_leaves_nothing_and_is_refused_if_it_arrives_late() {
    let server = server().await;
    let (store, mut cli) = (open(&server.url()), raw(&server).await);
    // The undo overtakes the acquire.
    let mine = token();
    let undo = Giving::undo(name("a"), mine.clone());
    assert_eq!(store.release(&undo, WITHIN).await.unwrap(), Given::NotOwned);
    assert_eq!(
        store.acquire(&ask("a", &mine), WITHIN).await.unwrap(),
        Answer::Void
    );
    assert_eq!(run::<Option<String>>(&mut cli, "GET lock:a").await, None);
    // The undo follows the acquire, and a copy of the acquire follows the undo.
    let mine = token();
    grant(&store, &ask("a", &mine)).await;
    let undo = Giving::undo(name("a"), mine.clone());
    assert_eq!(store.release(&undo, WITHIN).await.unwrap(), Given::Released);
    assert_eq!(
        store.acquire(&ask("a", &mine), WITHIN).await.unwrap(),
        Answer::Void
    );
    assert_eq!(run::<Option<String>>(&mut cli, "GET lock:a").await, None);
    // Tombstones go by themselves.
    let graves: Vec<String> = run(&mut cli, "KEYS lh1:void:*").await;
    assert_eq!(graves.len(), 2);
    for grave in graves {
        let left: i64 = run(&mut cli, &format!("PTTL {grave}")).await;
        assert!((1..=60_000).contains(&left), "{left}");
    }
}

#[tokio::test]
async fn r04_a_release_that_was_applied_but_not_answered_is_unknown_then_not_owned() {
    let server = server().await;
    let proxy = Proxy::start(server.port()).await.unwrap();
    let store = open(&proxy.url());
    warm(&store).await;
    let mine = token();
    grant(&store, &ask("a", &mine)).await;
    proxy.set(Fault::CutAfterForward);
    let giving = Giving::owned(name("a"), mine.clone());
    assert!(store.release(&giving, WITHIN).await.unwrap_err().unknown);
    proxy.set(Fault::None);
    assert_eq!(give(&store, "a", &mine).await, Given::NotOwned);
}

#[tokio::test]
async fn r04_a_renewal_that_was_applied_but_not_answered_is_unknown_then_extended() {
    let server = server().await;
    let proxy = Proxy::start(server.port()).await.unwrap();
    let store = open(&proxy.url());
    let mine = token();
    let granted = grant(&store, &ask("a", &mine)).await;
    renew(&store, renewal("a", &mine, granted)).await;
    proxy.set(Fault::CutAfterForward);
    let batch = [renewal("a", &mine, granted), renewal("a", &token(), granted)];
    for answer in store.renew(&batch, WITHIN).await {
        assert!(answer.unwrap_err().unknown);
    }
    proxy.set(Fault::None);
    assert!(matches!(
        renew(&store, renewal("a", &mine, granted)).await,
        Renewed::Extended { .. }
    ));
}

#[tokio::test]
async fn r05_one_token_one_fence_and_never_the_same_fence_for_another() {
    let server = server().await;
    let store = open(&server.url());
    let mine = token();
    let first = grant(&store, &ask("a", &mine)).await;
    assert_eq!(grant(&store, &ask("a", &mine)).await, first);
    give(&store, "a", &mine).await;
    assert!(grant(&store, &ask("a", &token())).await.fence > first.fence);
}

#[tokio::test]
async fn r06_nothing_is_sent_twice_behind_our_back() {
    let server = server().await;
    let proxy = Proxy::start(server.port()).await.unwrap();
    let (store, mut cli) = (open(&proxy.url()), raw(&server).await);
    grant(&store, &ask("warm", &token())).await;
    let before = evals(&mut cli).await;
    // Once: whoever connects again and sends it again is served, and so is seen.
    proxy.set(Fault::CutOnce);
    store.acquire(&ask("a", &token()), WITHIN).await.unwrap_err();
    // A library that retries would have asked again by the time that this later call is answered.
    grant(&store, &ask("b", &token())).await;
    assert_eq!(evals(&mut cli).await, before + 2);
}

#[tokio::test]
async fn r06_a_network_that_duplicates_changes_nothing() {
    let server = server().await;
    let proxy = Proxy::start(server.port()).await.unwrap();
    let (store, mut cli) = (open(&proxy.url()), raw(&server).await);
    let first = token();
    let granted = grant(&store, &ask("a", &first)).await;
    renew(&store, renewal("a", &first, granted)).await;
    give(&store, "a", &first).await;
    proxy.set(Fault::Duplicate);
    let mine = token();
    let granted = grant(&store, &ask("a", &mine)).await;
    let value: String = run(&mut cli, "GET lock:a").await;
    assert_eq!(value, format!("{}|{}", mine.expose(), granted.fence));
    assert!(matches!(
        renew(&store, renewal("a", &mine, granted)).await,
        Renewed::Extended { .. }
    ));
    assert_eq!(give(&store, "a", &mine).await, Given::Released);
    assert_eq!(run::<Option<String>>(&mut cli, "GET lock:a").await, None);
}

#[tokio::test]
async fn a_black_hole_is_left_at_the_first_time_out() {
    let server = server().await;
    let proxy = Proxy::start(server.port()).await.unwrap();
    let store = open(&proxy.url());
    let mine = token();
    let granted = grant(&store, &ask("a", &mine)).await;
    renew(&store, renewal("a", &mine, granted)).await;
    let connections = proxy.accepted();

    proxy.set(Fault::BlackHole);
    let failure = store.acquire(&ask("b", &token()), SHORT).await.unwrap_err();
    assert!(failure.unknown && failure.cause == Cause::TimedOut, "{failure}");
    // A caller that enforces the limit itself, by dropping the call, must have the same effect.
    let (clock, batch) = (BootClock, [renewal("a", &mine, granted)]);
    let end = clock.now() + SHORT * 5;
    let dropped = until(&clock, end, store.renew(&batch, SHORT * 5 + SHORT / 2)).await;
    // On a machine that was too busy to drop it in time, it ran out by itself.
    for answer in dropped.into_iter().flatten() {
        assert!(answer.unwrap_err().unknown);
    }

    proxy.set(Fault::None);
    grant(&store, &ask("b", &token())).await;
    renew(&store, renewal("a", &mine, granted)).await;
    assert_eq!(proxy.accepted(), connections + 2);
}

#[tokio::test]
async fn a_call_that_its_caller_dropped_early_does_not_cost_the_connection() {
    let server = server().await;
    let proxy = Proxy::start(server.port()).await.unwrap();
    let store = open(&proxy.url());
    grant(&store, &ask("a", &token())).await;
    let connections = proxy.accepted();
    server.pause();
    let clock = BootClock;
    let (asked, end) = (ask("b", &token()), clock.now() + SHORT);
    assert!(until(&clock, end, store.acquire(&asked, WITHIN)).await.is_none());
    server.resume();
    grant(&store, &ask("c", &token())).await;
    assert_eq!(proxy.accepted(), connections);
}

#[tokio::test]
async fn a_server_that_is_down_is_definitely_not_asked_and_found_when_it_is_back() {
    let mut server = server().await;
    let store = open(&server.url());
    server.stop();
    let failure = store.acquire(&ask("a", &token()), WITHIN).await.unwrap_err();
    assert!(
        !failure.unknown && failure.cause == Cause::Unreachable,
        "{failure}"
    );
    server.restart().await.unwrap();
    grant(&store, &ask("a", &token())).await;

    // A connection that died while idle is noticed before anything is sent into it.
    server.restart().await.unwrap();
    eventually("the death is noticed", || async {
        !format!("{store:?}").contains("connected: true")
    })
    .await;
    grant(&store, &ask("b", &token())).await;
}

#[tokio::test]
async fn a_paused_server_makes_calls_unknown_within_their_limit() {
    let server = server().await;
    let store = open(&server.url());
    grant(&store, &ask("a", &token())).await;
    server.pause();
    let unknown = token();
    let failure = store.acquire(&ask("b", &unknown), SHORT).await.unwrap_err();
    assert!(failure.unknown && failure.cause == Cause::TimedOut, "{failure}");
    // The kernel still accepts connections, but nobody greets: nothing was asked.
    let failure = store.acquire(&ask("c", &token()), SHORT).await.unwrap_err();
    assert!(
        !failure.unknown && failure.cause == Cause::Unreachable,
        "{failure}"
    );
    server.resume();
    grant(&store, &ask("d", &token())).await;
    // R3: the unknown one may have been applied even so, from the server's receive buffer. Its undo ends that.
    let undo = Giving::undo(name("b"), unknown.clone());
    store.release(&undo, WITHIN).await.unwrap();
    assert_eq!(
        run::<Option<String>>(&mut raw(&server).await, "GET lock:b").await,
        None
    );
    assert_eq!(
        store.acquire(&ask("b", &unknown), WITHIN).await.unwrap(),
        Answer::Void
    );
}

#[tokio::test]
async fn a_blocked_asking_connection_does_not_hold_up_renewals_and_releases() {
    let server = server().await;
    let patient = open(&format!("{}?wait_replicas=1", server.url()));
    let (plain, mine) = (open(&server.url()), token());
    let granted = grant(&plain, &ask("a", &mine)).await;
    // Nobody will ever confirm, so this one keeps its connection blocked on the server.
    let (asked, asking) = (ask("b", &token()), std::sync::Arc::clone(&patient));
    let blocked = tokio::spawn(async move { asking.acquire(&asked, WITHIN * 10).await });
    let cli = raw(&server).await;
    eventually("the asking connection waits", || {
        let mut cli = cli.clone();
        async move { run::<String>(&mut cli, "CLIENT LIST").await.contains("cmd=wait") }
    })
    .await;
    assert!(matches!(
        renew(&patient, renewal("a", &mine, granted)).await,
        Renewed::Extended { .. }
    ));
    assert_eq!(give(&patient, "a", &mine).await, Given::Released);
    assert!(!blocked.is_finished());
    blocked.abort();
}
