//! The class decides what happens when the store is down: `scheduler` refuses, `workflow` continues
//! with a local lock.
//!
//! `cargo run -p leasehold --example outage`

use leasehold::prelude::*;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // No server listens on this port.
    let locks = leasehold::open("redis://127.0.0.1:1").build().await?;

    match locks.class("scheduler").acquire("job:42").await {
        Err(Error::Unavailable { retry_after, cause, .. }) => {
            println!("scheduler: {cause}, come again in {retry_after:?}")
        }
        other => println!("{other:?}"),
    }
    if let Acquired::Held(hold) = locks.class("workflow").acquire("run:7").await? {
        println!("workflow: {:?}", hold.exclusivity());
        assert!(hold.fence().is_err(), "no store has issued a fence");
    }
    // An override with a reason: for an hour, workflow refuses too.
    let hour = std::time::Duration::from_secs(3600);
    locks.set_policy("workflow", "acquire.on_error", "fail-closed", "duplicates in run:7", hour)?;
    assert!(locks.class("workflow").acquire("run:8").await.is_err());
    Ok(())
}
