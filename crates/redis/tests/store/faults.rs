//! Network faults: nothing is reported that is not known, and nothing is sent twice.

use std::time::Duration;

use leasehold_core::clock::{BootClock, Clock, run_until};
use leasehold_core::store::{
    AcquireResponse, ReleaseRequest, ReleaseResponse, RenewResponse, Store, StoreErrorKind,
};

use crate::fixture::{
    CALL_TIMEOUT, acquire_request, eventually, expect_granted, name, open, raw_connection, release, renew,
    renew_request, run_command, server, token,
};
use crate::proxy::{Fault, Proxy};

/// For calls that must time out.
const SHORT_TIMEOUT: Duration = Duration::from_millis(200);

async fn count_evals(cli: &mut redis::aio::MultiplexedConnection) -> u64 {
    let info: String = run_command(cli, "INFO commandstats").await;
    let counts = info.lines().filter(|line| line.starts_with("cmdstat_eval"));
    counts.filter_map(|line| line.split_once("calls=")?.1.split(',').next()?.parse::<u64>().ok()).sum()
}

/// Connects and loads the scripts, so that the fault below hits a script's
/// response and not `NOSCRIPT`.
async fn load_scripts(store: &leasehold_redis::RedisStore) {
    let mine = token();
    let granted = expect_granted(store, &acquire_request("warm", &mine)).await;
    renew(store, renew_request("warm", &mine, granted)).await;
    release(store, "warm", &mine).await;
}

#[tokio::test]
async fn r03_an_acquire_without_a_reply_is_unknown_and_a_repeat_finds_its_lease() {
    let server = server().await;
    let proxy = Proxy::start(server.port()).await.unwrap();
    let (store, mut cli) = (open(&proxy.url()), raw_connection(&server).await);
    load_scripts(&store).await;
    for (fault, cause) in [
        (Fault::CutAfterForward, StoreErrorKind::Unreachable),
        (Fault::LoseResponses, StoreErrorKind::TimedOut),
    ] {
        let mine = token();
        proxy.set_fault(fault);
        let within = if fault == Fault::LoseResponses { SHORT_TIMEOUT } else { CALL_TIMEOUT };
        let failure = store.acquire(&acquire_request("a", &mine), within).await.unwrap_err();
        assert!(failure.unknown && failure.kind == cause, "{failure}");
        // It was applied: the key is there, with our token.
        eventually("the request arrived", || {
            let mut cli = cli.clone();
            async move { run_command::<Option<String>>(&mut cli, "GET lock:a").await.is_some() }
        })
        .await;
        let value: String = run_command(&mut cli, "GET lock:a").await;
        proxy.set_fault(Fault::None);
        // The same token gets the same grant; every other token gets *busy*.
        let granted = expect_granted(&store, &acquire_request("a", &mine)).await;
        assert_eq!(value, format!("{}|{}", mine.expose(), granted.fence));
        assert_eq!(release(&store, "a", &mine).await, ReleaseResponse::Released);
    }
}

#[tokio::test]
async fn r03_an_undone_acquire_leaves_nothing_and_is_refused_if_it_arrives_late() {
    let server = server().await;
    let (store, mut cli) = (open(&server.url()), raw_connection(&server).await);
    // The undo overtakes the acquire.
    let mine = token();
    let undo = ReleaseRequest::undo(name("a"), mine.clone());
    assert_eq!(store.release(&undo, CALL_TIMEOUT).await.unwrap(), ReleaseResponse::NotOwned);
    assert_eq!(
        store.acquire(&acquire_request("a", &mine), CALL_TIMEOUT).await.unwrap(),
        AcquireResponse::Void
    );
    assert_eq!(run_command::<Option<String>>(&mut cli, "GET lock:a").await, None);
    // The undo follows the acquire, and a copy of the acquire follows the undo.
    let mine = token();
    expect_granted(&store, &acquire_request("a", &mine)).await;
    let undo = ReleaseRequest::undo(name("a"), mine.clone());
    assert_eq!(store.release(&undo, CALL_TIMEOUT).await.unwrap(), ReleaseResponse::Released);
    assert_eq!(
        store.acquire(&acquire_request("a", &mine), CALL_TIMEOUT).await.unwrap(),
        AcquireResponse::Void
    );
    assert_eq!(run_command::<Option<String>>(&mut cli, "GET lock:a").await, None);
    // Tombstones expire by themselves.
    let graves: Vec<String> = run_command(&mut cli, "KEYS lh1:void:*").await;
    assert_eq!(graves.len(), 2);
    for grave in graves {
        let left: i64 = run_command(&mut cli, &format!("PTTL {grave}")).await;
        assert!((1..=60_000).contains(&left), "{left}");
    }
}

#[tokio::test]
async fn r04_a_release_that_was_applied_but_not_answered_is_unknown_then_not_owned() {
    let server = server().await;
    let proxy = Proxy::start(server.port()).await.unwrap();
    let store = open(&proxy.url());
    load_scripts(&store).await;
    let mine = token();
    expect_granted(&store, &acquire_request("a", &mine)).await;
    proxy.set_fault(Fault::CutAfterForward);
    let request = ReleaseRequest::by_owner(name("a"), mine.clone());
    assert!(store.release(&request, CALL_TIMEOUT).await.unwrap_err().unknown);
    proxy.set_fault(Fault::None);
    assert_eq!(release(&store, "a", &mine).await, ReleaseResponse::NotOwned);
}

#[tokio::test]
async fn r04_a_renewal_that_was_applied_but_not_answered_is_unknown_then_extended() {
    let server = server().await;
    let proxy = Proxy::start(server.port()).await.unwrap();
    let store = open(&proxy.url());
    let mine = token();
    let granted = expect_granted(&store, &acquire_request("a", &mine)).await;
    renew(&store, renew_request("a", &mine, granted)).await;
    proxy.set_fault(Fault::CutAfterForward);
    let batch = [renew_request("a", &mine, granted), renew_request("a", &token(), granted)];
    for answer in store.renew(&batch, CALL_TIMEOUT).await {
        assert!(answer.unwrap_err().unknown);
    }
    proxy.set_fault(Fault::None);
    assert!(matches!(
        renew(&store, renew_request("a", &mine, granted)).await,
        RenewResponse::Extended { .. }
    ));
}

#[tokio::test]
async fn r05_one_token_one_fence_and_never_the_same_fence_for_another() {
    let server = server().await;
    let store = open(&server.url());
    let mine = token();
    let first = expect_granted(&store, &acquire_request("a", &mine)).await;
    assert_eq!(expect_granted(&store, &acquire_request("a", &mine)).await, first);
    release(&store, "a", &mine).await;
    assert!(expect_granted(&store, &acquire_request("a", &token())).await.fence > first.fence);
}

#[tokio::test]
async fn r06_nothing_is_sent_twice_behind_our_back() {
    let server = server().await;
    let proxy = Proxy::start(server.port()).await.unwrap();
    let (store, mut cli) = (open(&proxy.url()), raw_connection(&server).await);
    expect_granted(&store, &acquire_request("warm", &token())).await;
    let before = count_evals(&mut cli).await;
    // Only once: a client that reconnects and repeats the command would be served, and
    // the count below would show it.
    proxy.set_fault(Fault::CutOnce);
    store.acquire(&acquire_request("a", &token()), CALL_TIMEOUT).await.unwrap_err();
    // A library that retries would have repeated it before this later call is answered.
    expect_granted(&store, &acquire_request("b", &token())).await;
    assert_eq!(count_evals(&mut cli).await, before + 2);
}

#[tokio::test]
async fn r06_a_network_that_duplicates_changes_nothing() {
    let server = server().await;
    let proxy = Proxy::start(server.port()).await.unwrap();
    let (store, mut cli) = (open(&proxy.url()), raw_connection(&server).await);
    let first = token();
    let granted = expect_granted(&store, &acquire_request("a", &first)).await;
    renew(&store, renew_request("a", &first, granted)).await;
    release(&store, "a", &first).await;
    proxy.set_fault(Fault::Duplicate);
    let mine = token();
    let granted = expect_granted(&store, &acquire_request("a", &mine)).await;
    let value: String = run_command(&mut cli, "GET lock:a").await;
    assert_eq!(value, format!("{}|{}", mine.expose(), granted.fence));
    assert!(matches!(
        renew(&store, renew_request("a", &mine, granted)).await,
        RenewResponse::Extended { .. }
    ));
    assert_eq!(release(&store, "a", &mine).await, ReleaseResponse::Released);
    assert_eq!(run_command::<Option<String>>(&mut cli, "GET lock:a").await, None);
}

#[tokio::test]
async fn black_holed_connection_is_abandoned_at_the_first_timeout() {
    let server = server().await;
    let proxy = Proxy::start(server.port()).await.unwrap();
    let store = open(&proxy.url());
    let mine = token();
    let granted = expect_granted(&store, &acquire_request("a", &mine)).await;
    renew(&store, renew_request("a", &mine, granted)).await;
    let connections = proxy.accepted_count();

    proxy.set_fault(Fault::BlackHole);
    let failure = store.acquire(&acquire_request("b", &token()), SHORT_TIMEOUT).await.unwrap_err();
    assert!(failure.unknown && failure.kind == StoreErrorKind::TimedOut, "{failure}");
    // A caller that enforces the limit itself, by dropping the call, must have the same effect.
    let (clock, batch) = (BootClock, [renew_request("a", &mine, granted)]);
    let end = clock.now() + SHORT_TIMEOUT * 5;
    let dropped = run_until(&clock, end, store.renew(&batch, SHORT_TIMEOUT * 5 + SHORT_TIMEOUT / 2)).await;
    // On a machine too busy to drop the call in time, it times out by itself.
    for answer in dropped.into_iter().flatten() {
        assert!(answer.unwrap_err().unknown);
    }

    proxy.set_fault(Fault::None);
    expect_granted(&store, &acquire_request("b", &token())).await;
    renew(&store, renew_request("a", &mine, granted)).await;
    assert_eq!(proxy.accepted_count(), connections + 2);
}

#[tokio::test]
async fn call_dropped_early_keeps_the_connection() {
    let server = server().await;
    let proxy = Proxy::start(server.port()).await.unwrap();
    let store = open(&proxy.url());
    expect_granted(&store, &acquire_request("a", &token())).await;
    let connections = proxy.accepted_count();
    server.pause();
    let clock = BootClock;
    let (asked, end) = (acquire_request("b", &token()), clock.now() + SHORT_TIMEOUT);
    assert!(run_until(&clock, end, store.acquire(&asked, CALL_TIMEOUT)).await.is_none());
    server.resume();
    expect_granted(&store, &acquire_request("c", &token())).await;
    assert_eq!(proxy.accepted_count(), connections);
}

#[tokio::test]
async fn server_that_is_down_is_a_definite_error_until_it_is_back() {
    let mut server = server().await;
    let store = open(&server.url());
    server.stop();
    let failure = store.acquire(&acquire_request("a", &token()), CALL_TIMEOUT).await.unwrap_err();
    assert!(!failure.unknown && failure.kind == StoreErrorKind::Unreachable, "{failure}");
    server.restart().await.unwrap();
    expect_granted(&store, &acquire_request("a", &token())).await;

    // A connection that died while idle is noticed before anything is sent on it.
    server.restart().await.unwrap();
    eventually("the death is noticed", || async { !format!("{store:?}").contains("connected: true") }).await;
    expect_granted(&store, &acquire_request("b", &token())).await;
}

#[tokio::test]
async fn a_paused_server_makes_calls_unknown_within_their_limit() {
    let server = server().await;
    let store = open(&server.url());
    expect_granted(&store, &acquire_request("a", &token())).await;
    server.pause();
    let unknown = token();
    let failure = store.acquire(&acquire_request("b", &unknown), SHORT_TIMEOUT).await.unwrap_err();
    assert!(failure.unknown && failure.kind == StoreErrorKind::TimedOut, "{failure}");
    // The kernel still accepts connections, but the server does not greet: no command was sent.
    let failure = store.acquire(&acquire_request("c", &token()), SHORT_TIMEOUT).await.unwrap_err();
    assert!(!failure.unknown && failure.kind == StoreErrorKind::Unreachable, "{failure}");
    server.resume();
    expect_granted(&store, &acquire_request("d", &token())).await;
    // R3: the server may still apply the unknown call from its receive buffer.
    // The undo ends that lease.
    let undo = ReleaseRequest::undo(name("b"), unknown.clone());
    store.release(&undo, CALL_TIMEOUT).await.unwrap();
    assert_eq!(run_command::<Option<String>>(&mut raw_connection(&server).await, "GET lock:b").await, None);
    assert_eq!(
        store.acquire(&acquire_request("b", &unknown), CALL_TIMEOUT).await.unwrap(),
        AcquireResponse::Void
    );
}

#[tokio::test]
async fn blocked_request_connection_does_not_delay_renewals() {
    let server = server().await;
    let patient = open(&format!("{}?wait_replicas=1", server.url()));
    let (plain, mine) = (open(&server.url()), token());
    let granted = expect_granted(&plain, &acquire_request("a", &mine)).await;
    // No replica will ever confirm, so this call keeps its connection blocked on the server.
    let (asked, acquire) = (acquire_request("b", &token()), std::sync::Arc::clone(&patient));
    let blocked = tokio::spawn(async move { acquire.acquire(&asked, CALL_TIMEOUT * 10).await });
    let cli = raw_connection(&server).await;
    eventually("the asking connection waits", || {
        let mut cli = cli.clone();
        async move { run_command::<String>(&mut cli, "CLIENT LIST").await.contains("cmd=wait") }
    })
    .await;
    assert!(matches!(
        renew(&patient, renew_request("a", &mine, granted)).await,
        RenewResponse::Extended { .. }
    ));
    assert_eq!(release(&patient, "a", &mine).await, ReleaseResponse::Released);
    assert!(!blocked.is_finished());
    blocked.abort();
}
