//! The long form: handles each result of acquire, and checks the hold before each protected step.
//!
//! `cargo run -p leasehold --example long`

use leasehold::prelude::*;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let locks = leasehold::open("memory:").build().await?;
    match locks.class("approval").acquire("job:42").await {
        Ok(Acquired::Held(hold)) => {
            for step in ["read", "decide", "write"] {
                hold.check()?; // reads the clock: a process that slept through its lease stops here
                println!("{step}");
            }
            println!("{:?}", hold.release().await);
        }
        Ok(Acquired::Busy(busy)) => println!("{busy}"),
        Err(Error::Unavailable { retry_after, .. }) => println!("come again in {retry_after:?}"),
        Err(error) => println!("{error}"),
    }
    Ok(())
}
