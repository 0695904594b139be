//! A store of your own, registered by its URL scheme. Here it is the memory store under another name; a real one returns its own
//! `StoreLocation`, which opens a `Store`. `leasehold-conformance` tests it.
//!
//! `cargo run -p leasehold --example own_store`

use leasehold::memory::MemoryBackend;
use leasehold::store::{Backend, BackendInfo, StoreError, StoreLocation};

#[derive(Debug)]
struct Notebook;

impl Backend for Notebook {
    fn info(&self) -> BackendInfo {
        BackendInfo::new("notebook", &["notebook"], &["notebook:"])
    }

    fn parse(&self, _url: &str) -> Result<Box<dyn StoreLocation>, StoreError> {
        MemoryBackend.parse("memory:")
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    leasehold::register(Notebook)?; // before the first URL is parsed
    let locks = leasehold::open("notebook:").build().await?;
    locks.class("scheduler").run("job:42", async |hold| println!("fence {:?}", hold.fence())).await?;
    Ok(())
}
