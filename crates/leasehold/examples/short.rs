//! The short way: acquire, hold, renew, fence, release in one call.
//!
//! `cargo run -p leasehold --example short`

use leasehold::prelude::*;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let locks = leasehold::open("memory:").build().await?;

    let answer = locks.class("scheduler").run("job:42", async |hold| {
        // Send the fence with every write: the target refuses an older one.
        println!("working under fence {}", hold.fence()?);
        Ok::<_, NoFence>("done")
    });
    match answer.await {
        Ok(result) => println!("{}", result?),
        Err(RunError::Busy(busy)) => println!("{busy}"),
        Err(error) => println!("{error}"),
    }
    Ok(())
}
