//! The server's script cache may vanish at any moment.

use leasehold_core::store::{Given, Renewal, Renewed, Store};

use crate::stage::{WITHIN, ask, busy, give, grant, name, open, raw, renew, renewal, run, server, token};

#[tokio::test]
async fn r01_scripts_flushed_between_every_two_calls() {
    let server = server().await;
    let (store, mut cli) = (open(&server.url()), raw(&server).await);
    for round in 0..3 {
        let mine = token();
        let _: () = run(&mut cli, "SCRIPT FLUSH").await;
        let granted = grant(&store, &ask("a", &mine)).await;
        let _: () = run(&mut cli, "SCRIPT FLUSH").await;
        busy(&store, &ask("a", &token())).await;
        let _: () = run(&mut cli, "SCRIPT FLUSH").await;
        assert!(matches!(
            renew(&store, renewal("a", &mine, granted)).await,
            Renewed::Extended { .. }
        ));
        let _: () = run(&mut cli, "SCRIPT FLUSH").await;
        assert!(
            store.inspect(&name("a"), WITHIN).await.unwrap().is_some(),
            "round {round}"
        );
        let _: () = run(&mut cli, "SCRIPT FLUSH").await;
        assert_eq!(store.list("", 10, WITHIN).await.unwrap().leases.len(), 1);
        let _: () = run(&mut cli, "SCRIPT FLUSH").await;
        assert_eq!(give(&store, "a", &mine).await, Given::Released);
    }
}

#[tokio::test]
async fn r01_a_batch_handles_the_lost_script_for_each_command() {
    let server = server().await;
    let (store, mut cli) = (open(&server.url()), raw(&server).await);
    let mut batch: Vec<Renewal> = Vec::new();
    for index in 0..300 {
        let (mine, text) = (token(), format!("n:{index}"));
        let granted = grant(&store, &ask(&text, &mine)).await;
        batch.push(renewal(&text, &mine, granted));
    }
    // One that is not ours, in the middle: its answer must stay its own.
    batch[150].token = token();
    let _: () = run(&mut cli, "SCRIPT FLUSH").await;
    let answers = store.renew(&batch, WITHIN).await;
    assert_eq!(answers.len(), 300);
    for (index, answer) in answers.into_iter().enumerate() {
        let extended = matches!(answer.unwrap(), Renewed::Extended { was_left: Some(_) });
        assert_eq!(extended, index != 150, "{index}");
    }
}

#[tokio::test]
async fn trap_30_the_next_call_works_after_a_restart() {
    let mut server = crate::stage::server_with(&["--appendonly", "yes", "--appendfsync", "always"]).await;
    let store = open(&server.url());
    let mine = token();
    let granted = grant(&store, &ask("a", &mine)).await;
    server.restart().await.unwrap();
    // The first renewal may find the broken connection; it must not find a missing script.
    crate::stage::eventually("renewed after the restart", || async {
        let mut answers = store.renew(&[renewal("a", &mine, granted)], WITHIN).await;
        matches!(answers.pop().unwrap(), Ok(Renewed::Extended { .. }))
    })
    .await;
    assert_eq!(give(&store, "a", &mine).await, Given::Released);
}

#[tokio::test]
async fn r13_one_renewal_that_cannot_be_sent_does_not_cost_the_others_their_lease() {
    let server = server().await;
    let store = open(&server.url());
    let mine = token();
    let granted = grant(&store, &ask("a", &mine)).await;
    let mut endless = renewal("a", &mine, granted);
    endless.lock_delay = std::time::Duration::MAX;
    let batch = [endless, renewal("a", &mine, granted)];
    let answers = store.renew(&batch, WITHIN).await;
    assert!(!answers[0].as_ref().unwrap_err().unknown);
    assert!(matches!(answers[1], Ok(Renewed::Extended { .. })));
    let mut endless = ask("b", &token());
    endless.lock_delay = std::time::Duration::MAX;
    assert!(!store.acquire(&endless, WITHIN).await.unwrap_err().unknown);
}
