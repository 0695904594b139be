//! Fenced writes that a real Redis cannot or will not do.

// Helpers outside `#[test]` functions unwrap as well: their panic is the failure message.

use std::time::Duration;

use crate::fences::fence;
use crate::redis_server::{Server, eventually};
use leasehold_core::store::StoreErrorKind;
use leasehold_fence::redis::Write;

/// Invariant I7: a write that timed out may be done later. It must look
/// neither refused nor admitted.
#[tokio::test]
async fn a_timed_out_write_is_unknown_and_may_have_happened() {
    let server = Server::start().await;
    let kit = server.kit().await;
    // Load the script first, so that the next command is the write itself.
    assert!(kit.set_fenced("k", "first", fence(5), None).await.unwrap().is_admitted());
    let impatient = server.impatient_kit(Duration::from_millis(100)).await;
    assert_eq!(server.run_command::<String>("CLIENT PAUSE 600000 WRITE").await, "OK");

    let failure = impatient.set_fenced("k", "second", fence(9), None).await.unwrap_err();
    assert_eq!((failure.kind, failure.unknown), (StoreErrorKind::TimedOut, true), "{failure}");
    assert_eq!(server.run_command::<String>("GET k").await, "first");

    // The server continues, and does the write that its client gave up on.
    assert_eq!(server.run_command::<String>("CLIENT UNPAUSE").await, "OK");
    eventually(async || (server.run_command::<String>("GET k").await == "second").then_some(())).await;
    assert_eq!(kit.newest("k").await.unwrap(), Some(fence(9)));
    assert!(
        impatient.set_fenced("k", "second", fence(9), None).await.unwrap().is_admitted(),
        "asking again is safe"
    );
}

#[tokio::test]
async fn a_dead_server_is_unknown() {
    let server = Server::start().await;
    let kit = server.kit().await;
    assert!(kit.admit("k", fence(5)).await.unwrap().is_admitted());
    drop(server);
    let failure = kit.admit("k", fence(9)).await.unwrap_err();
    assert!(failure.unknown && failure.is_transient(), "{failure}");
}

/// A replica's script could compare, but not remember: it admits no fence, not even an equal one.
#[tokio::test]
async fn replica_admits_no_fence() {
    let server = Server::start().await;
    let kit = server.kit().await;
    assert!(kit.set_fenced("k", "v", fence(5), None).await.unwrap().is_admitted());
    assert_eq!(server.run_command::<String>("REPLICAOF 127.0.0.1 1").await, "OK");
    for number in [5, 9] {
        let failure = kit.set_fenced("k", "w", fence(number), None).await.unwrap_err();
        assert_eq!((failure.kind, failure.unknown), (StoreErrorKind::ReadOnly, false), "{failure}");
    }
    assert_eq!(server.run_command::<String>("GET k").await, "v");
}

#[tokio::test]
async fn out_of_memory_writes_nothing_and_says_so() {
    let server = Server::start().await;
    let kit = server.kit().await;
    assert_eq!(server.run_command::<String>("CONFIG SET maxmemory 1").await, "OK");
    let failure = kit.set_fenced("k", "v", fence(5), None).await.unwrap_err();
    assert_eq!((failure.kind, failure.unknown), (StoreErrorKind::Overloaded, false), "{failure}");
    assert_eq!(server.run_command::<i64>("DBSIZE").await, 0);
}

/// The position of an access-rights error decides what is known. Before the mark, nothing was
/// written. After it, the mark stays, so that no older holder can write.
#[tokio::test]
async fn access_rights_refuse_before_or_after_the_mark() {
    let server = Server::start().await;
    for user in [
        "ACL SETUSER nokey on nopass ~leasehold:fence:1:* +@all",
        "ACL SETUSER noset on nopass ~* +@all -set",
        "ACL SETUSER nodel on nopass ~* +@all -del",
    ] {
        assert_eq!(server.run_command::<String>(user).await, "OK");
    }
    let admin = server.kit().await;
    let writes = [Write::set("state", "done"), Write::delete("gone")];
    for user in ["nokey", "noset"] {
        let failure = server.kit_of(user).await.apply("job:42", fence(9), &writes).await.unwrap_err();
        assert_eq!((failure.kind, failure.unknown), (StoreErrorKind::Denied, false), "{user}: {failure}");
        assert_eq!(admin.newest("job:42").await.unwrap(), None, "{user}");
        assert_eq!(server.run_command::<i64>("DBSIZE").await, 0, "{user}");
    }
    let failure = server.kit_of("nodel").await.apply("job:42", fence(9), &writes).await.unwrap_err();
    assert!(failure.unknown, "{failure}");
    assert_eq!(admin.newest("job:42").await.unwrap(), Some(fence(9)));
    assert!(!admin.apply("job:42", fence(8), &writes).await.unwrap().is_admitted());
}

/// The rights in the documentation are sufficient.
#[tokio::test]
async fn the_documented_rights_suffice() {
    let server = Server::start().await;
    let rights =
        "ACL SETUSER writer on nopass ~leasehold:fence:1:* ~job:* -@all +eval +evalsha +get +set +del";
    assert_eq!(server.run_command::<String>(rights).await, "OK");
    let kit = server.kit_of("writer").await;
    let writes = [Write::set("job:42:state", "done"), Write::delete("job:42:todo")];
    assert!(kit.apply("job:42", fence(9), &writes).await.unwrap().is_admitted());
    assert_eq!(kit.newest("job:42").await.unwrap(), Some(fence(9)));
    assert!(kit.forget("job:42").await.unwrap());
}

/// The mark's key may hold a value of another type.
#[tokio::test]
async fn a_list_at_the_mark_is_corrupt() {
    let server = Server::start().await;
    let kit = server.kit().await;
    let mark = leasehold_fence::redis::mark_key("k").unwrap();
    assert_eq!(server.run_command::<i64>(&format!("RPUSH {mark} 5")).await, 1);
    let failure = kit.set_fenced("k", "v", fence(9), None).await.unwrap_err();
    assert_eq!((failure.kind, failure.unknown), (StoreErrorKind::Corrupt, false), "{failure}");
    assert_eq!(server.run_command::<i64>("EXISTS k").await, 0);
}

/// Invalid input never reaches the server: half of a script's writes could be
/// done before it is found.
#[tokio::test]
async fn bad_input_writes_nothing() {
    let server = Server::start().await;
    let kit = server.kit().await;
    let good = Write::set("good", "v");
    for bad in [
        Write::set("bad", "v").expires(Duration::ZERO),
        Write::set("bad", "v").expires(Duration::MAX),
        Write::set("leasehold:fence:1:{job:42}", "1"),
    ] {
        let failure = kit.apply("job:42", fence(9), &[good.clone(), bad]).await.unwrap_err();
        assert_eq!((failure.kind, failure.unknown), (StoreErrorKind::Misconfigured, false), "{failure}");
    }
    assert!(kit.admit("a}b", fence(9)).await.is_err());
    assert_eq!(server.run_command::<i64>("DBSIZE").await, 0);
    let longest = Duration::from_secs(100 * 366 * 24 * 3600);
    assert!(kit.set_fenced("long", "v", fence(9), Some(longest)).await.unwrap().is_admitted());
}
