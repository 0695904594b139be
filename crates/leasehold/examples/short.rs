//! The short form: acquires, renews, fences and releases in one call.
//!
//! `cargo run -p leasehold --example short`

use leasehold::prelude::*;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let locks = leasehold::open("memory:").build().await?;

    let answer = locks.class("scheduler").run("job:42", async |hold| {
        // Send the fence with every write, so that the target can refuse writes with an older one.
        println!("working under fence {}", hold.fence()?);
        Ok::<_, FenceError>("done")
    });
    match answer.await {
        Ok(result) => println!("{}", result?),
        Err(RunError::Busy(busy)) => println!("{busy}"),
        Err(error) => println!("{error}"),
    }
    Ok(())
}
