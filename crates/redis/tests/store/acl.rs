//! The smallest user that suffices, as the documentation gives it.

use leasehold_core::clock::{BootClock, Clock, until};
use leasehold_core::store::{Answer, Cause, Given, Giving, Renewed, Store};

use crate::stage::{
    WITHIN, ask, busy, give, grant, name, open, queued, raw, renew, renewal, run, server, token,
};

/// The line of the documentation, word for word: what is tested is what is printed there.
fn documented() -> String {
    let page = include_str!("../../../../docs/stores/redis.md");
    let line = page
        .lines()
        .find(|line| line.starts_with("ACL SETUSER locks "))
        .unwrap();
    line.replace(">PASSWORD", ">hunter2")
}

async fn url_of_user(server: &leasehold_redis::testkit::RedisServer) -> String {
    use std::os::unix::fs::PermissionsExt;
    let _: () = run(&mut raw(server).await, &documented()).await;
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
    let granted = grant(&store, &ask("a", &mine)).await;
    let bell = other.listen(&name("a"), &waiter);
    assert!(busy(&other, &queued("a", &waiter)).await.queued);
    assert!(matches!(
        renew(&store, renewal("a", &mine, granted)).await,
        Renewed::Extended { .. }
    ));
    assert_eq!(
        store.inspect(&name("a"), WITHIN).await.unwrap().unwrap().waiters,
        Some(1)
    );
    assert_eq!(store.list("", 10, WITHIN).await.unwrap().leases.len(), 1);
    assert_eq!(give(&store, "a", &mine).await, Given::Released);
    bell.woken().await;
    assert!(matches!(
        other.acquire(&queued("a", &waiter), WITHIN).await.unwrap(),
        Answer::Granted(_)
    ));
    let undo = Giving::undo(name("a"), waiter);
    assert_eq!(other.release(&undo, WITHIN).await.unwrap(), Given::Released);
    store.promise(WITHIN).await.unwrap();
    // With replicas to wait for, too: there are none, and that is the only complaint.
    let waiting = open(&format!("{url}&wait_replicas=1"));
    let failure = waiting
        .acquire(&ask("b", &token()), std::time::Duration::from_secs(1))
        .await
        .unwrap_err();
    assert!(failure.message().contains("0 of 1"), "{failure}");
    // Nothing was refused on the way, not even something that we would have done without.
    let log: Vec<redis::Value> = run(&mut raw(&server).await, "ACL LOG").await;
    assert!(log.is_empty(), "{log:?}");
}

#[tokio::test]
async fn r18_and_nothing_else() {
    let server = server().await;
    let url = url_of_user(&server).await;
    grant(&open(&url), &ask("a", &token())).await;
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
    let inside: redis::RedisResult<String> = redis::cmd("EVAL")
        .arg("return redis.call('GET', 'other:key')")
        .arg(0)
        .query_async(&mut thief)
        .await;
    assert!(inside.is_err());
}

#[tokio::test]
async fn r18_keys_outside_the_users_rights_are_definitely_denied() {
    let server = server().await;
    let url = url_of_user(&server).await;
    let store = open(&format!("{url}&prefix=elsewhere:"));
    let failure = store.acquire(&ask("a", &token()), WITHIN).await.unwrap_err();
    assert!(!failure.unknown && failure.cause == Cause::Denied, "{failure}");
}

#[tokio::test]
async fn names_itself_where_it_may_and_goes_on_where_it_may_not() {
    let server = server().await;
    let mut cli = raw(&server).await;
    grant(&open(&server.url()), &ask("a", &token())).await;
    let store = open(&server.url());
    grant(&store, &ask("b", &token())).await;
    let clients: String = run(&mut cli, "CLIENT LIST").await;
    assert!(clients.contains("name=leasehold-ask"), "{clients}");
    let url = url_of_user(&server).await;
    let _: () = run(&mut cli, "ACL SETUSER locks -client|setname -info").await;
    grant(&open(&url), &ask("c", &token())).await;
}

#[tokio::test]
async fn without_the_right_to_publish_locks_work_and_nobody_is_woken() {
    let server = server().await;
    let url = url_of_user(&server).await;
    let _: () = run(&mut raw(&server).await, "ACL SETUSER locks -publish").await;
    let store = open(&url);
    let (mine, waiter) = (token(), token());
    grant(&store, &ask("a", &mine)).await;
    assert!(busy(&store, &queued("a", &waiter)).await.queued);
    assert_eq!(give(&store, "a", &mine).await, Given::Released);
    grant(&store, &queued("a", &waiter)).await;
}

#[tokio::test]
async fn without_the_right_to_scan_listing_is_refused() {
    let server = server().await;
    let url = url_of_user(&server).await;
    let _: () = run(&mut raw(&server).await, "ACL SETUSER locks -scan").await;
    let failure = open(&url).list("", 10, WITHIN).await.unwrap_err();
    assert!(!failure.unknown && failure.cause == Cause::Denied, "{failure}");
}

#[tokio::test]
async fn without_the_right_to_subscribe_nobody_waits_for_a_subscription() {
    let server = server().await;
    let url = url_of_user(&server).await;
    let _: () = run(&mut raw(&server).await, "ACL SETUSER locks -subscribe").await;
    let store = open(&url);
    grant(&store, &ask("a", &token())).await;
    // Half of this limit would be far beyond this test's patience.
    let (clock, asked) = (BootClock, queued("a", &token()));
    let answer = until(&clock, clock.now() + WITHIN, store.acquire(&asked, WITHIN * 100)).await;
    match answer.unwrap().unwrap() {
        Answer::Busy(busy) => assert!(!busy.queued),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn r12_a_right_that_is_missed_inside_a_script_stays_unknown() {
    let server = server().await;
    let url = url_of_user(&server).await;
    let _: () = run(&mut raw(&server).await, "ACL SETUSER locks -del").await;
    let (store, mine) = (open(&url), token());
    grant(&store, &ask("a", &mine)).await;
    let giving = Giving::owned(name("a"), mine);
    let failure = store.release(&giving, WITHIN).await.unwrap_err();
    assert!(failure.unknown && failure.cause == Cause::Denied, "{failure}");
}
