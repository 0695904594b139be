//! Benchmark of job dispatch per store, with the share of the locks shown separately.
//!
//! ```sh
//! cargo run --release -p leasehold-plane --example bench            # memory, SQLite, Redis
//! cargo run --release -p leasehold-plane --example bench -- 5000    # with this many jobs
//! ```

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use leasehold::StoreUrl;
use leasehold_core::clock::{BootClock, Clock, ClockExt, Moment};
use leasehold_core::{Acquired, Hold, Locks};
use leasehold_plane::work::{Executors, Handler};
use leasehold_plane::{Job, JobSpec, JobState, Plane, Replica, Settings, Work, open_store};
use leasehold_redis::testkit::RedisServer;
use serde_json::Value;

type BenchResult<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Records when the work of each job began.
#[derive(Clone, Default)]
struct BeginTimes(Arc<Mutex<HashMap<String, Moment>>>);

#[async_trait]
impl Handler for BeginTimes {
    async fn run(&self, _hold: &Hold, job: &Job) -> Result<Value, String> {
        let mut begun = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        begun.insert(job.id.clone(), BootClock.now());
        Ok(Value::Null)
    }
}

fn spec(id: String) -> JobSpec {
    JobSpec { id: Some(id), topic: "bench".into(), ..JobSpec::new(Work::Handler) }
}

/// p50 and p99 in microseconds.
fn quantiles(mut all: Vec<Duration>) -> (u128, u128) {
    all.sort();
    let at = |percent: usize| all.get((all.len() * percent / 100).min(all.len().saturating_sub(1)));
    let micros = |found: Option<&Duration>| found.map_or(0, Duration::as_micros);
    (micros(at(50)), micros(at(99)))
}

async fn measure(name: &str, url: &str, jobs: usize) -> BenchResult<()> {
    let url = StoreUrl::parse(url)?;
    let locks = Locks::builder(url.open()?).without_log().build()?;
    let settings = Settings { slots: 32, ..Settings::default() };
    let plane = Plane::new(locks.clone(), open_store(&url)?, settings)?;

    let mut cycles = Vec::new();
    for number in 0..500 {
        let from = BootClock.now();
        if let Acquired::Held(hold) =
            locks.class("scheduler").acquire(format!("bench:{number}").as_str()).await?
        {
            hold.release().await;
        }
        cycles.push(BootClock.now().since(from));
    }
    let mut writes = Vec::new();
    for number in 0..500 {
        let from = BootClock.now();
        plane.submit(JobSpec { requires_approval: true, ..spec(format!("write-{number}")) }).await?;
        writes.push(BootClock.now().since(from));
    }

    let begun = BeginTimes::default();
    let works = || Executors::default().handler("bench", begun.clone());
    let replica = Replica::start(plane.clone(), works());
    // One job at a time: the latency of a single job.
    let mut waits = Vec::new();
    for number in 0..200 {
        let id = format!("one-{number}");
        let from = BootClock.now();
        plane.submit(spec(id.clone())).await?;
        loop {
            if plane.job(&id).await?.state == JobState::Succeeded {
                break;
            }
            BootClock.sleep(Duration::from_micros(200)).await;
        }
        let begun = begun.0.lock().unwrap_or_else(PoisonError::into_inner);
        waits.extend(begun.get(&id).map(|at| at.since(from)));
    }
    // All jobs at once: the throughput.
    let from = BootClock.now();
    let submitters: Vec<_> = (0..8)
        .map(|lane| {
            let plane = plane.clone();
            tokio::spawn(async move {
                for number in (lane..jobs).step_by(8) {
                    if let Err(error) = plane.submit(spec(format!("many-{number}"))).await {
                        eprintln!("{error}");
                    }
                }
            })
        })
        .collect();
    for submitter in submitters {
        submitter.await?;
    }
    let done = |tally: &[(JobState, u64)]| {
        tally.iter().filter(|(state, _)| *state == JobState::Succeeded).map(|(_, count)| *count).sum::<u64>()
    };
    while done(&plane.count_by_state().await?) < jobs as u64 + 200 {
        BootClock.sleep(Duration::from_millis(5)).await;
    }
    let took = BootClock.now().since(from);
    replica.stop(Duration::from_secs(5)).await;

    let (lock, lock_99) = quantiles(cycles);
    let (write, write_99) = quantiles(writes);
    let (wait, wait_99) = quantiles(waits);
    let rate = jobs as f64 / took.as_secs_f64();
    println!(
        "| {name} | {rate:.0} | {:.2} / {:.2} | {:.2} / {:.2} | {:.2} / {:.2} | {:.0} % |",
        wait as f64 / 1000.0,
        wait_99 as f64 / 1000.0,
        lock as f64 / 1000.0,
        lock_99 as f64 / 1000.0,
        write as f64 / 1000.0,
        write_99 as f64 / 1000.0,
        // A job takes one lock and makes five writes: submitted, scheduled, dispatched, running, succeeded.
        100.0 * lock as f64 / (lock + 5 * write) as f64,
    );
    Ok(())
}

#[tokio::main]
async fn main() -> BenchResult<()> {
    let jobs = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(2000);
    println!("{jobs} jobs without work, 32 slots, one replica; times in ms, p50 / p99\n");
    println!("| store | jobs/s | submit to begin | lock cycle | one write | lock's share of a job |");
    println!("|---|---|---|---|---|---|");
    measure("memory", "memory:", jobs).await?;
    let folder = tempfile::tempdir()?;
    measure("SQLite", &format!("sqlite:{}", folder.path().join("bench.db").display()), jobs).await?;
    let server = RedisServer::start().await?;
    measure("Redis", &server.url(), jobs).await
}
