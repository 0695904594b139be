//! The server's script cache may vanish at any moment.

use leasehold_core::store::{ReleaseResponse, RenewRequest, RenewResponse, Store};

use crate::fixture::{
    CALL_TIMEOUT, acquire_request, expect_busy, expect_granted, name, open, raw_connection, release, renew,
    renew_request, run_command, server, token,
};

#[tokio::test]
async fn r01_scripts_flushed_between_every_two_calls() {
    let server = server().await;
    let (store, mut cli) = (open(&server.url()), raw_connection(&server).await);
    for round in 0..3 {
        let mine = token();
        let _: () = run_command(&mut cli, "SCRIPT FLUSH").await;
        let granted = expect_granted(&store, &acquire_request("a", &mine)).await;
        let _: () = run_command(&mut cli, "SCRIPT FLUSH").await;
        expect_busy(&store, &acquire_request("a", &token())).await;
        let _: () = run_command(&mut cli, "SCRIPT FLUSH").await;
        assert!(matches!(
            renew(&store, renew_request("a", &mine, granted)).await,
            RenewResponse::Extended { .. }
        ));
        let _: () = run_command(&mut cli, "SCRIPT FLUSH").await;
        assert!(
            store.inspect(&name("a"), CALL_TIMEOUT).await.unwrap().into_first().is_some(),
            "round {round}"
        );
        let _: () = run_command(&mut cli, "SCRIPT FLUSH").await;
        assert_eq!(store.list("", 10, CALL_TIMEOUT).await.unwrap().leases.len(), 1);
        let _: () = run_command(&mut cli, "SCRIPT FLUSH").await;
        assert_eq!(release(&store, "a", &mine).await, ReleaseResponse::Released);
    }
}

#[tokio::test]
async fn r01_a_batch_handles_the_lost_script_for_each_command() {
    let server = server().await;
    let (store, mut cli) = (open(&server.url()), raw_connection(&server).await);
    let mut batch: Vec<RenewRequest> = Vec::new();
    for index in 0..300 {
        let (mine, text) = (token(), format!("n:{index}"));
        let granted = expect_granted(&store, &acquire_request(&text, &mine)).await;
        batch.push(renew_request(&text, &mine, granted));
    }
    // One in the middle is not owned: its response must not move to another item.
    batch[150].token = token();
    let _: () = run_command(&mut cli, "SCRIPT FLUSH").await;
    let answers = store.renew(&batch, CALL_TIMEOUT).await;
    assert_eq!(answers.len(), 300);
    for (index, answer) in answers.into_iter().enumerate() {
        let extended = matches!(answer.unwrap(), RenewResponse::Extended { remaining_before: Some(_), .. });
        assert_eq!(extended, index != 150, "{index}");
    }
}

#[tokio::test]
async fn trap_30_the_next_call_works_after_a_restart() {
    let mut server = crate::fixture::server_with(&["--appendonly", "yes", "--appendfsync", "always"]).await;
    let store = open(&server.url());
    let mine = token();
    let granted = expect_granted(&store, &acquire_request("a", &mine)).await;
    server.restart().await.unwrap();
    // The first renewal may find the broken connection, but not a missing script.
    crate::fixture::eventually("renewed after the restart", || async {
        let mut answers = store.renew(&[renew_request("a", &mine, granted)], CALL_TIMEOUT).await;
        matches!(answers.pop().unwrap(), Ok(RenewResponse::Extended { .. }))
    })
    .await;
    assert_eq!(release(&store, "a", &mine).await, ReleaseResponse::Released);
}

#[tokio::test]
async fn r13_one_renewal_that_cannot_be_sent_does_not_cost_the_others_their_lease() {
    let server = server().await;
    let store = open(&server.url());
    let mine = token();
    let granted = expect_granted(&store, &acquire_request("a", &mine)).await;
    let mut endless = renew_request("a", &mine, granted);
    endless.lock_delay = std::time::Duration::MAX;
    let batch = [endless, renew_request("a", &mine, granted)];
    let answers = store.renew(&batch, CALL_TIMEOUT).await;
    assert!(!answers[0].as_ref().unwrap_err().unknown);
    assert!(matches!(answers[1], Ok(RenewResponse::Extended { .. })));
    let mut endless = acquire_request("b", &token());
    endless.lock_delay = std::time::Duration::MAX;
    assert!(!store.acquire(&endless, CALL_TIMEOUT).await.unwrap_err().unknown);
}
