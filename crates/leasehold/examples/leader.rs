//! Leader election: candidates wait for one lock, and the holder leads until it loses or releases it.
//!
//! `cargo run -p leasehold --example leader`

use std::time::Duration;

use leasehold::prelude::*;

async fn lead(locks: Locks, candidate: &str) -> Result<(), Error> {
    let election = locks.class("scheduler").wait(Duration::from_secs(10));
    if let Acquired::Held(hold) = election.acquire("leader:reports").await? {
        // The work is dropped when the hold is lost, before another candidate can be elected.
        let term =
            hold.run(async { println!("{candidate} leads, fence {:?}", hold.fence().map(Fence::get)) });
        if let Err((lost, _)) = term.await {
            println!("{candidate} stops: {lost}");
        }
        hold.release().await; // the next candidate is elected at once, not after the TTL
    }
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let locks = leasehold::open("memory:").build().await?;
    let (first, second) = tokio::join!(lead(locks.clone(), "first"), lead(locks, "second"));
    Ok(first.and(second)?)
}
