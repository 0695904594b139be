//! Which keys there are: few, in one slot, and found again by name.

use std::collections::HashSet;

use leasehold_core::store::{Given, Giving, Renewed, Store};
use leasehold_redis::testkit::RedisServer;

use crate::stage::{
    WITHIN, ask, busy, eventually, give, grant, name, open, queued, raw, renew, renewal, run, server,
    server_with, token,
};

/// A cluster of one node that serves every slot.
async fn cluster() -> RedisServer {
    let server = server_with(&["--cluster-enabled", "yes"]).await;
    let mut cli = raw(&server).await;
    let _: () = run(&mut cli, "CLUSTER ADDSLOTSRANGE 0 16383").await;
    eventually("the cluster serves", || {
        let mut cli = cli.clone();
        async move {
            run::<String>(&mut cli, "CLUSTER INFO")
                .await
                .contains("cluster_state:ok")
        }
    })
    .await;
    server
}

#[tokio::test]
async fn r02_a_node_of_a_cluster_takes_every_script() {
    let server = cluster().await;
    // Every verb with every key it names: one in another slot would be refused as CROSSSLOT.
    let store = open(&server.url());
    for text in ["a", "job:42", "res:tenant-1:gpu/0", "überweisung"] {
        let (mine, waiter) = (token(), token());
        let granted = grant(&store, &ask(text, &mine)).await;
        assert!(busy(&store, &queued(text, &waiter)).await.queued);
        assert!(matches!(
            renew(&store, renewal(text, &mine, granted)).await,
            Renewed::Extended { .. }
        ));
        assert_eq!(
            store.inspect(&name(text), WITHIN).await.unwrap().unwrap().waiters,
            Some(1)
        );
        assert_eq!(give(&store, text, &mine).await, Given::Released);
        let undo = Giving::undo(name(text), waiter);
        assert_eq!(store.release(&undo, WITHIN).await.unwrap(), Given::Released);
    }
}

#[tokio::test]
async fn trap_33_counters_are_bounded_have_no_expiry_and_survive_release() {
    let server = cluster().await;
    let (store, mut cli) = (open(&server.url()), raw(&server).await);
    let mut slots = HashSet::new();
    for round in 0..2 {
        for index in 0..300 {
            let (mine, text) = (token(), format!("n:{index}"));
            grant(&store, &ask(&text, &mine)).await;
            give(&store, &text, &mine).await;
            let slot: u16 = run(&mut cli, &format!("CLUSTER KEYSLOT lock:{text}")).await;
            slots.insert(slot);
        }
        // One for each slot that was used, none for each name or grant, and nothing else is left.
        let keys: Vec<String> = run(&mut cli, "KEYS *").await;
        assert_eq!(keys.len(), slots.len(), "round {round}: {keys:?}");
        for key in keys {
            let slot: u16 = run(&mut cli, &format!("CLUSTER KEYSLOT {key}")).await;
            assert!(key.starts_with("lh1:fence:{") && slots.contains(&slot), "{key}");
            assert_eq!(run::<i64>(&mut cli, &format!("PTTL {key}")).await, -1);
        }
    }
}

#[tokio::test]
async fn lists_by_prefix_in_order_and_only_what_is_ours() {
    let server = server().await;
    let url = format!(
        "{}?map=job:=cordum:scheduler:job:&map=run:=cordum:wf:run:lock:",
        server.url()
    );
    let (store, mut cli) = (open(&url), raw(&server).await);
    for text in ["job:2", "job:1", "run:1", "other", "j*b:1", "job:10"] {
        grant(&store, &ask(text, &token())).await;
    }
    assert!(busy(&store, &queued("job:1", &token())).await.queued);
    // Not keys of ours by the map: another application's, and one that the map never makes.
    let _: () = run(&mut cli, "SET app:job:1 x").await;
    let _: () = run(&mut cli, "SET lock:job:9 x").await;
    // By the map, but somebody else's.
    let _: () = run(&mut cli, "SET cordum:scheduler:job:7 secret PX 60000").await;

    let names = |listing: &leasehold_core::store::Listing| {
        listing
            .leases
            .iter()
            .map(|lease| lease.name.to_string())
            .collect::<Vec<_>>()
    };
    let all = store.list("", 100, WITHIN).await.unwrap();
    assert_eq!(
        names(&all),
        ["j*b:1", "job:1", "job:10", "job:2", "job:7", "other", "run:1"]
    );
    assert!(!all.truncated);
    assert_eq!(all.leases[1].waiters, Some(1));
    assert!(all.leases[4].holder.starts_with("foreign#"));
    let jobs = store.list("job:", 2, WITHIN).await.unwrap();
    assert_eq!(
        (names(&jobs), jobs.truncated),
        (vec!["job:1".into(), "job:10".into()], true)
    );
    assert_eq!(names(&store.list("j*", 9, WITHIN).await.unwrap()), ["j*b:1"]);
    assert_eq!(names(&store.list("nothing", 9, WITHIN).await.unwrap()), [""; 0]);
}

#[tokio::test]
async fn databases_are_apart() {
    let server = server().await;
    let (zero, one) = (open(&server.url()), open(&format!("{}/1", server.url())));
    grant(&zero, &ask("a", &token())).await;
    grant(&one, &ask("a", &token())).await;
    assert_eq!(one.describe(), format!("{}/1", server.url()));
}
