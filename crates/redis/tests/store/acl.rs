//! The smallest ACL user that suffices, as the documentation gives it.

use leasehold_core::clock::{BootClock, Clock, run_until};
use leasehold_core::store::{
    AcquireResponse, DocumentOutcome, DocumentWrite, ReleaseRequest, ReleaseResponse, RenewResponse, Store,
    StoreErrorKind,
};

use crate::fixture::{
    CALL_TIMEOUT, acquire_request, expect_busy, expect_granted, name, open, queue_request, raw_connection,
    release, renew, renew_request, run_command, server, token, use_all_of_documents,
};

/// The ACL line of the documentation, verbatim: the tests cover exactly what is printed there.
fn documented_acl_line() -> String {
    let page = include_str!("../../../../docs/stores/redis.md");
    let line = page.lines().find(|line| line.starts_with("ACL SETUSER locks ")).unwrap();
    line.replace(">PASSWORD", ">hunter2")
}

async fn url_of_user(server: &leasehold_redis::testkit::RedisServer) -> String {
    use std::os::unix::fs::PermissionsExt;
    let _: () = run_command(&mut raw_connection(server).await, &documented_acl_line()).await;
    let file = server.dir().join("password");
    std::fs::write(&file, "hunter2").unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    let address = server.url().replace("redis://", "redis://locks@");
    format!("{address}?password_file={}", file.display())
}

#[tokio::test]
async fn r18_the_documented_user_can_do_everything_we_do() {
    let server = server().await;
    let url = url_of_user(&server).await;
    let (store, other) = (open(&url), open(&url));
    let (mine, waiter) = (token(), token());
    let granted = expect_granted(&store, &acquire_request("a", &mine)).await;
    let notifier = other.listen(&name("a"), &waiter);
    assert!(expect_busy(&other, &queue_request("a", &waiter)).await.queued);
    assert!(matches!(
        renew(&store, renew_request("a", &mine, granted)).await,
        RenewResponse::Extended { .. }
    ));
    assert_eq!(store.inspect(&name("a"), CALL_TIMEOUT).await.unwrap().into_first().unwrap().waiters, Some(1));
    assert_eq!(store.list("", 10, CALL_TIMEOUT).await.unwrap().leases.len(), 1);
    assert_eq!(release(&store, "a", &mine).await, ReleaseResponse::Released);
    notifier.notified().await;
    assert!(matches!(
        other.acquire(&queue_request("a", &waiter), CALL_TIMEOUT).await.unwrap(),
        AcquireResponse::Granted(_)
    ));
    let undo = ReleaseRequest::undo(name("a"), waiter);
    assert_eq!(other.release(&undo, CALL_TIMEOUT).await.unwrap(), ReleaseResponse::Released);
    use_all_of_documents(&store, "a").await;
    store.promise(CALL_TIMEOUT).await.unwrap();
    // Also with `wait_replicas`: there are no replicas, and that is the only error.
    let waiting = open(&format!("{url}&wait_replicas=1"));
    let failure = waiting
        .acquire(&acquire_request("b", &token()), std::time::Duration::from_secs(1))
        .await
        .unwrap_err();
    assert!(failure.message().contains("0 of 1"), "{failure}");
    // No command was refused on the way, not even an optional one.
    let log: Vec<redis::Value> = run_command(&mut raw_connection(&server).await, "ACL LOG").await;
    assert!(log.is_empty(), "{log:?}");
}

#[tokio::test]
async fn r18_and_nothing_else() {
    let server = server().await;
    let url = url_of_user(&server).await;
    expect_granted(&open(&url), &acquire_request("a", &token())).await;
    let client = redis::Client::open(server.url().replace("redis://", "redis://locks:hunter2@")).unwrap();
    let mut thief = client.get_multiplexed_async_connection().await.unwrap();
    for forbidden in [
        "FLUSHALL",
        "KEYS *",
        "CONFIG GET *",
        "GET other:key",
        "SET other:key 1",
        "ACL LIST",
        "MONITOR",
        "PUBLISH elsewhere x",
        "SUBSCRIBE elsewhere",
        "SHUTDOWN",
    ] {
        let mut words = forbidden.split(' ');
        let mut command = redis::cmd(words.next().unwrap());
        words.for_each(|word| _ = command.arg(word));
        let answer: redis::RedisResult<redis::Value> = command.query_async(&mut thief).await;
        assert_eq!(answer.unwrap_err().code(), Some("NOPERM"), "{forbidden}");
    }
    let inside: redis::RedisResult<String> =
        redis::cmd("EVAL").arg("return redis.call('GET', 'other:key')").arg(0).query_async(&mut thief).await;
    assert!(inside.is_err());
}

#[tokio::test]
async fn r18_keys_outside_the_users_rights_are_definitely_denied() {
    let server = server().await;
    let url = url_of_user(&server).await;
    let store = open(&format!("{url}&prefix=elsewhere:"));
    let failure = store.acquire(&acquire_request("a", &token()), CALL_TIMEOUT).await.unwrap_err();
    assert!(!failure.unknown && failure.kind == StoreErrorKind::Denied, "{failure}");
}

#[tokio::test]
async fn client_name_is_set_only_if_permitted() {
    let server = server().await;
    let mut cli = raw_connection(&server).await;
    expect_granted(&open(&server.url()), &acquire_request("a", &token())).await;
    let store = open(&server.url());
    expect_granted(&store, &acquire_request("b", &token())).await;
    let clients: String = run_command(&mut cli, "CLIENT LIST").await;
    assert!(clients.contains("name=leasehold-ask"), "{clients}");
    let url = url_of_user(&server).await;
    let _: () = run_command(&mut cli, "ACL SETUSER locks -client|setname -info").await;
    expect_granted(&open(&url), &acquire_request("c", &token())).await;
}

#[tokio::test]
async fn without_publish_rights_locks_work_without_wakeups() {
    let server = server().await;
    let url = url_of_user(&server).await;
    let _: () = run_command(&mut raw_connection(&server).await, "ACL SETUSER locks -publish").await;
    let store = open(&url);
    let (mine, waiter) = (token(), token());
    expect_granted(&store, &acquire_request("a", &mine)).await;
    assert!(expect_busy(&store, &queue_request("a", &waiter)).await.queued);
    assert_eq!(release(&store, "a", &mine).await, ReleaseResponse::Released);
    expect_granted(&store, &queue_request("a", &waiter)).await;
    let document = DocumentWrite::new(name("a"), "x");
    let written = store.documents().unwrap().write(&document, CALL_TIMEOUT).await.unwrap();
    assert!(matches!(written, DocumentOutcome::Changed(_)), "{written:?}");
}

/// A user that may not subscribe to the channel of documents: its waiters are woken all the same.
#[tokio::test]
async fn without_the_channel_of_documents_waiters_are_woken() {
    let server = server().await;
    let url = url_of_user(&server).await;
    let channels = "ACL SETUSER locks resetchannels &lh1:wake:????????????????";
    let _: () = run_command(&mut raw_connection(&server).await, channels).await;
    let store = open(&url);
    let _follower = store.documents().unwrap().watch(&name("policy"));
    let (mine, waiter) = (token(), token());
    expect_granted(&store, &acquire_request("a", &mine)).await;
    let notifier = store.listen(&name("a"), &waiter);
    assert!(expect_busy(&store, &queue_request("a", &waiter)).await.queued);
    assert_eq!(release(&store, "a", &mine).await, ReleaseResponse::Released);
    let clock = BootClock;
    assert!(run_until(&clock, clock.now() + CALL_TIMEOUT, notifier.notified()).await.is_some());
}

#[tokio::test]
async fn without_the_right_to_scan_listing_is_refused() {
    let server = server().await;
    let url = url_of_user(&server).await;
    let _: () = run_command(&mut raw_connection(&server).await, "ACL SETUSER locks -scan").await;
    let failure = open(&url).list("", 10, CALL_TIMEOUT).await.unwrap_err();
    assert!(!failure.unknown && failure.kind == StoreErrorKind::Denied, "{failure}");
}

#[tokio::test]
async fn without_subscribe_rights_acquires_do_not_wait() {
    let server = server().await;
    let url = url_of_user(&server).await;
    let _: () = run_command(&mut raw_connection(&server).await, "ACL SETUSER locks -subscribe").await;
    let store = open(&url);
    expect_granted(&store, &acquire_request("a", &token())).await;
    // Half of this limit would be far beyond the limit of this test.
    let (clock, asked) = (BootClock, queue_request("a", &token()));
    let answer =
        run_until(&clock, clock.now() + CALL_TIMEOUT, store.acquire(&asked, CALL_TIMEOUT * 100)).await;
    match answer.unwrap().unwrap() {
        AcquireResponse::Busy(busy) => assert!(!busy.queued),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn r12_a_right_that_is_missed_inside_a_script_stays_unknown() {
    let server = server().await;
    let url = url_of_user(&server).await;
    let _: () = run_command(&mut raw_connection(&server).await, "ACL SETUSER locks -del").await;
    let (store, mine) = (open(&url), token());
    expect_granted(&store, &acquire_request("a", &mine)).await;
    let request = ReleaseRequest::by_owner(name("a"), mine);
    let failure = store.release(&request, CALL_TIMEOUT).await.unwrap_err();
    assert!(failure.unknown && failure.kind == StoreErrorKind::Denied, "{failure}");
}
