//! The keys of the store: few, in one slot, and mapped back to their names.

use std::collections::HashSet;

use leasehold_core::store::{ReleaseRequest, ReleaseResponse, RenewResponse, Store};
use leasehold_redis::testkit::RedisServer;

use crate::fixture::{
    CALL_TIMEOUT, acquire_request, eventually, expect_busy, expect_granted, name, open, queue_request,
    raw_connection, release, renew, renew_request, run_command, server, server_with, token,
    use_all_of_documents,
};

/// A cluster of one node that serves every slot.
async fn cluster() -> RedisServer {
    let server = server_with(&["--cluster-enabled", "yes"]).await;
    let mut cli = raw_connection(&server).await;
    let _: () = run_command(&mut cli, "CLUSTER ADDSLOTSRANGE 0 16383").await;
    eventually("the cluster serves", || {
        let mut cli = cli.clone();
        async move { run_command::<String>(&mut cli, "CLUSTER INFO").await.contains("cluster_state:ok") }
    })
    .await;
    server
}

#[tokio::test]
async fn r02_a_node_of_a_cluster_takes_every_script() {
    let server = cluster().await;
    // Every operation with every key it names: a key in another slot would be
    // refused with CROSSSLOT.
    let store = open(&server.url());
    for text in ["a", "job:42", "res:tenant-1:gpu/0", "überweisung"] {
        let (mine, waiter) = (token(), token());
        let granted = expect_granted(&store, &acquire_request(text, &mine)).await;
        assert!(expect_busy(&store, &queue_request(text, &waiter)).await.queued);
        assert!(matches!(
            renew(&store, renew_request(text, &mine, granted)).await,
            RenewResponse::Extended { .. }
        ));
        assert_eq!(
            store.inspect(&name(text), CALL_TIMEOUT).await.unwrap().into_first().unwrap().waiters,
            Some(1)
        );
        assert_eq!(release(&store, text, &mine).await, ReleaseResponse::Released);
        let undo = ReleaseRequest::undo(name(text), waiter);
        assert_eq!(store.release(&undo, CALL_TIMEOUT).await.unwrap(), ReleaseResponse::Released);
        use_all_of_documents(&store, text).await;
    }
}

#[tokio::test]
async fn trap_33_counters_are_bounded_have_no_expiry_and_survive_release() {
    let server = cluster().await;
    let (store, mut cli) = (open(&server.url()), raw_connection(&server).await);
    let mut slots = HashSet::new();
    for round in 0..2 {
        for index in 0..300 {
            let (mine, text) = (token(), format!("n:{index}"));
            expect_granted(&store, &acquire_request(&text, &mine)).await;
            release(&store, &text, &mine).await;
            let slot: u16 = run_command(&mut cli, &format!("CLUSTER KEYSLOT lock:{text}")).await;
            slots.insert(slot);
        }
        // One counter per used slot, none per name or grant, and no other keys are left.
        let keys: Vec<String> = run_command(&mut cli, "KEYS *").await;
        assert_eq!(keys.len(), slots.len(), "round {round}: {keys:?}");
        for key in keys {
            let slot: u16 = run_command(&mut cli, &format!("CLUSTER KEYSLOT {key}")).await;
            assert!(key.starts_with("lh1:fence:{") && slots.contains(&slot), "{key}");
            assert_eq!(run_command::<i64>(&mut cli, &format!("PTTL {key}")).await, -1);
        }
    }
}

#[tokio::test]
async fn lists_by_prefix_in_order_and_only_what_is_ours() {
    let server = server().await;
    let url = format!("{}?map=job:=cordum:scheduler:job:&map=run:=cordum:wf:run:lock:", server.url());
    let (store, mut cli) = (open(&url), raw_connection(&server).await);
    for text in ["job:2", "job:1", "run:1", "other", "j*b:1", "job:10"] {
        expect_granted(&store, &acquire_request(text, &token())).await;
    }
    assert!(expect_busy(&store, &queue_request("job:1", &token())).await.queued);
    // Not our keys by the map: one of another application, and one that the map never produces.
    let _: () = run_command(&mut cli, "SET app:job:1 x").await;
    let _: () = run_command(&mut cli, "SET lock:job:9 x").await;
    // Our key by the map, but with a foreign value.
    let _: () = run_command(&mut cli, "SET cordum:scheduler:job:7 secret PX 60000").await;

    let names = |listing: &leasehold_core::store::LeaseList| {
        listing.leases.iter().map(|lease| lease.name.to_string()).collect::<Vec<_>>()
    };
    let all = store.list("", 100, CALL_TIMEOUT).await.unwrap();
    assert_eq!(names(&all), ["j*b:1", "job:1", "job:10", "job:2", "job:7", "other", "run:1"]);
    assert!(!all.truncated);
    assert_eq!(all.leases[1].waiters, Some(1));
    assert!(all.leases[4].holder.starts_with("foreign#"));
    let jobs = store.list("job:", 2, CALL_TIMEOUT).await.unwrap();
    assert_eq!((names(&jobs), jobs.truncated), (vec!["job:1".into(), "job:10".into()], true));
    assert_eq!(names(&store.list("j*", 9, CALL_TIMEOUT).await.unwrap()), ["j*b:1"]);
    assert_eq!(names(&store.list("nothing", 9, CALL_TIMEOUT).await.unwrap()), [""; 0]);
}

#[tokio::test]
async fn databases_are_apart() {
    let server = server().await;
    let (zero, one) = (open(&server.url()), open(&format!("{}/1", server.url())));
    expect_granted(&zero, &acquire_request("a", &token())).await;
    expect_granted(&one, &acquire_request("a", &token())).await;
    assert_eq!(one.describe(), format!("{}/1", server.url()));
}
