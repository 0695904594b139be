//! A worker: one replica of the control plane with a handler for a topic. Each job is done under its own lock.
//!
//! `cargo run -p leasehold-plane --example worker`

use std::{sync::Arc, time::Duration};

use leasehold_core::clock::{BootClock, ClockExt};
use leasehold_core::{Hold, Locks, memory::MemoryStore};
use leasehold_plane::store::memory::MemoryPlane;
use leasehold_plane::work::{Executors, Handler};
use leasehold_plane::{Job, JobSpec, Plane, Replica, Settings, Work};
use serde_json::{Value, json};

struct Greeter;

#[async_trait::async_trait]
impl Handler for Greeter {
    async fn run(&self, hold: &Hold, job: &Job) -> Result<Value, String> {
        hold.check().map_err(|lost| lost.to_string())?; // right before an effect outside
        Ok(json!({ "greeting": format!("hello {}", job.spec.payload) }))
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let locks = Locks::builder(Arc::new(MemoryStore::new(BootClock::shared()))).build()?;
    let plane = Plane::new(locks, Arc::new(MemoryPlane::new(BootClock::shared())), Settings::default())?;
    let replica = Replica::start(plane.clone(), Executors::default().handler("greet", Greeter));

    let work = JobSpec { topic: "greet".into(), payload: json!(42), ..JobSpec::new(Work::Handler) };
    let id = plane.submit(work).await?.job.id;
    while !plane.job(&id).await?.state.is_terminal() {
        BootClock.sleep(Duration::from_millis(5)).await;
    }
    println!("{}", plane.job(&id).await?.state);
    replica.stop(Duration::from_secs(5)).await;
    Ok(())
}
