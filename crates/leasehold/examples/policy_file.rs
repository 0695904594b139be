//! Classes are data: a policy file adds a class and changes a built-in one.
//!
//! `cargo run -p leasehold --example policy_file`

use leasehold::prelude::*;

const POLICIES: &str = r#"
[class.report]              # a class of your own
ttl = "45s"

[class.workflow.acquire]    # built in as fail-open
on_error = "fail-closed"
"#;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = std::env::temp_dir().join(format!("leasehold-example-{}.toml", std::process::id()));
    std::fs::write(&file, POLICIES)?;
    // The file is checked here, and watched from now on.
    let locks = leasehold::open("memory:").policies(&file).build().await?;

    if let Acquired::Held(hold) = locks.class("report").acquire("report:7").await? {
        println!("held under the class {}", hold.class());
    }
    // A class that nobody has written is an error, with a suggestion.
    if let Err(error) = locks.class("reprot").acquire("report:7").await {
        println!("{error}");
    }
    std::fs::remove_file(&file)?;
    Ok(())
}
