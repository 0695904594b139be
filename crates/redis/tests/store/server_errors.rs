//! Errors of real servers, and what each of them means.

use leasehold_core::store::{Answer, Cause, Claim, Failure, Giving, Store};
use leasehold_core::word::{Fence, Ttl};
use leasehold_redis::{RedisOptions, RedisStore};

use crate::stage::{
    WITHIN, ask, eventually, give, grant, name, open, raw, renew, renewal, run, server, server_with, token,
};

fn definite(failure: &Failure, cause: Cause) {
    assert!(!failure.unknown && failure.cause == cause, "{failure}");
}

async fn refused(store: &RedisStore) -> Failure {
    store
        .acquire(&ask("refused", &token()), WITHIN)
        .await
        .unwrap_err()
}

#[tokio::test]
async fn r20_a_replica_is_refused_before_it_is_believed() {
    let server = server().await;
    let (store, mut cli) = (open(&server.url()), raw(&server).await);
    let mine = token();
    let granted = grant(&store, &ask("a", &mine)).await;
    renew(&store, renewal("a", &mine, granted)).await;
    let _: () = run(&mut cli, "REPLICAOF 127.0.0.1 1").await;
    // R12: demoted under a live connection. Not even a grant that has longer to live than is asked for now may be
    // confirmed by what the replica remembers, though nothing about it would have to change.
    let mut shorter = ask("a", &mine);
    shorter.ttl = Ttl::MIN;
    definite(
        &store.acquire(&shorter, WITHIN).await.unwrap_err(),
        Cause::ReadOnly,
    );
    for over_the_old_connection in [true, false] {
        // The second one over a new connection: the first has shown that the old one leads nowhere.
        let mut shorter = renewal("a", &mine, granted);
        shorter.ttl = Ttl::MIN;
        let mut answers = store.renew(&[shorter], WITHIN).await;
        let failure = answers.pop().unwrap().unwrap_err();
        definite(&failure, Cause::ReadOnly);
        assert_eq!(
            failure.message().contains("READONLY"),
            over_the_old_connection,
            "{failure}"
        );
    }
    // Every later question, reads included, is refused when it connects: a replica's `busy` may be the past.
    definite(
        &store.inspect(&name("a"), WITHIN).await.unwrap_err(),
        Cause::ReadOnly,
    );
    definite(&refused(&open(&server.url())).await, Cause::ReadOnly);
    let _: () = run(&mut cli, "REPLICAOF NO ONE").await;
    grant(&store, &ask("b", &token())).await;
}

/// *Not owned* from a replica's memory would fence a holder whose lease the primary has, and take a debt for cleared. Whatever the
/// replica remembers of the name, it is asked over a connection from before.
#[tokio::test]
async fn r20_a_replica_does_not_say_that_a_lease_is_not_owned() {
    let server = server().await;
    let (store, mut cli) = (open(&server.url()), raw(&server).await);
    let (mine, other) = (token(), token());
    let granted = grant(&store, &ask("theirs", &mine)).await;
    for text in ["theirs", "free"] {
        let seen = Giving {
            name: name(text),
            claim: Claim::Seen(Fence::MIN),
            tombstone: None,
        };
        for giving in [
            None,
            Some(Giving::owned(name(text), other.clone())),
            Some(Giving::undo(name(text), other.clone())),
            Some(Giving::place(name(text), other.clone())),
            Some(seen),
        ] {
            // The connection that renews and gives back is there, and its scripts are.
            renew(&store, renewal("theirs", &mine, granted)).await;
            give(&store, "warm", &other).await;
            let _: () = run(&mut cli, "REPLICAOF 127.0.0.1 1").await;
            let failure = match &giving {
                Some(giving) => store.release(giving, WITHIN).await.unwrap_err(),
                None => {
                    let batch = [renewal(text, &other, granted)];
                    store.renew(&batch, WITHIN).await.pop().unwrap().unwrap_err()
                }
            };
            definite(&failure, Cause::ReadOnly);
            assert!(failure.message().contains("READONLY"), "{giving:?}: {failure}");
            let _: () = run(&mut cli, "REPLICAOF NO ONE").await;
        }
    }
}

#[tokio::test]
async fn r12_busy_with_a_script() {
    let server = server_with(&["--lua-time-limit", "1"]).await;
    let store = open(&server.url());
    grant(&store, &ask("a", &token())).await;
    let (mut spinner, mut killer) = (raw(&server).await, raw(&server).await);
    let spinning = tokio::spawn(async move {
        let spin: redis::RedisResult<()> = redis::cmd("EVAL")
            .arg("while true do end")
            .arg(0)
            .query_async(&mut spinner)
            .await;
        spin
    });
    eventually("the server is busy", || {
        let mut cli = killer.clone();
        async move { redis::cmd("PING").query_async::<String>(&mut cli).await.is_err() }
    })
    .await;
    let failure = refused(&store).await;
    let _: () = run(&mut killer, "SCRIPT KILL").await;
    assert!(spinning.await.unwrap().is_err());
    definite(&failure, Cause::Overloaded);
    grant(&store, &ask("b", &token())).await;
}

#[tokio::test]
async fn r12_too_few_replicas_for_the_server() {
    let server = server_with(&["--min-replicas-to-write", "1"]).await;
    definite(&refused(&open(&server.url())).await, Cause::Overloaded);
}

#[tokio::test]
async fn r12_a_disk_that_cannot_be_written() {
    let server = server_with(&["--save", "3600 1", "--rdbcompression", "no"]).await;
    let (store, mut cli) = (open(&server.url()), raw(&server).await);
    grant(&store, &ask("a", &token())).await;
    // The snapshot's name is taken by a directory, so no snapshot can be put there.
    std::fs::create_dir(server.dir().join("dump.rdb")).unwrap();
    let _: redis::RedisResult<()> = redis::cmd("BGSAVE").query_async(&mut cli).await;
    eventually("the snapshot failed", || {
        let mut cli = cli.clone();
        async move {
            run::<String>(&mut cli, "INFO persistence")
                .await
                .contains("rdb_last_bgsave_status:err")
        }
    })
    .await;
    definite(&refused(&store).await, Cause::Overloaded);
}

#[tokio::test]
async fn r12_no_connection_left() {
    let server = server().await;
    let mut cli = raw(&server).await;
    let _: () = run(&mut cli, "CONFIG SET maxclients 1").await;
    definite(&refused(&open(&server.url())).await, Cause::Overloaded);
}

#[tokio::test]
async fn r12_passwords() {
    use std::os::unix::fs::PermissionsExt;
    let server = server_with(&["--requirepass", "right"]).await;
    definite(&refused(&open(&server.url())).await, Cause::Denied);
    let file = server.dir().join("password");
    let write = |text: &str| {
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    };
    write("hunter2");
    let store = open(&format!("{}?password_file={}", server.url(), file.display()));
    let failure = refused(&store).await;
    definite(&failure, Cause::Denied);
    assert!(!failure.to_string().contains("hunter2") && !format!("{store:?}").contains("hunter2"));
    // A password that was rotated is read with the next connection.
    write("right\n");
    grant(&store, &ask("a", &token())).await;
    std::fs::remove_file(&file).unwrap();
    let options = RedisOptions::parse(&format!("{}?password_file={}", server.url(), file.display())).unwrap();
    definite(&RedisStore::open(options).unwrap_err(), Cause::Misconfigured);
}

#[tokio::test]
async fn r12_a_cluster_node_that_serves_no_slot() {
    let server = server_with(&["--cluster-enabled", "yes"]).await;
    definite(&refused(&open(&server.url())).await, Cause::Overloaded);
}

#[tokio::test]
async fn a_server_that_is_something_else_is_unreachable_or_unsupported_but_never_unknown() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        use tokio::io::AsyncWriteExt;
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
    });
    assert!(!refused(&open(&url)).await.unknown);
}

#[tokio::test]
async fn modes_that_are_not_served_are_refused() {
    let server = server().await;
    let store = open(&server.url());
    let mut shared = ask("a", &token());
    shared.mode = leasehold_core::store::Mode::Shared;
    definite(
        &store.acquire(&shared, WITHIN).await.unwrap_err(),
        Cause::Unsupported,
    );
    assert!(!store.capabilities().shared && !store.capabilities().permits);
    assert!(matches!(
        store.acquire(&ask("a", &token()), WITHIN).await.unwrap(),
        Answer::Granted(_)
    ));
}
