//! The worker process.
//!
//! It reads its spec as one line from standard input and writes its history to standard output. It
//! shuts down when standard input has another line or ends. If its director dies, the kernel kills
//! it, even while it is paused.

use std::io::BufRead;
use std::process::ExitCode;
use std::sync::Arc;

use leasehold_core::Name;
use leasehold_core::clock::BootClock;
use rustix::process::{Signal, set_parent_process_death_signal};
use tokio_util::sync::CancellationToken;

use super::client::DrillClient;
use super::fake_wall_clock::FakeWallClock;
use super::fenced_target::FencedTarget;
use super::worker_spec::WorkerSpec;
use crate::history::HistorySink;

/// The hidden argument that makes a program run as a worker.
pub const WORKER_ARG: &str = "__drill-worker";

// A bound on the size of a history: an endless run must not fill the director's memory.
const MAX_HISTORY_LINES: usize = 500_000;

/// Runs as a worker; or, if the first argument says so, as a bound server (see `bound_process`).
#[must_use]
pub fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    if words.next().is_some_and(|word| word == super::bound_process::BOUND_ARG) {
        return super::bound_process::main(words);
    }
    if FakeWallClock::runs_in_this_process() {
        FakeWallClock::remove_shared_memory(std::process::id());
    }
    // A paused worker cannot notice the end of its input, but SIGKILL from the kernel reaches it.
    // The SIGHUP for orphaned process groups is no substitute: it is not sent if a process of the
    // same session adopts the worker.
    let bound = set_parent_process_death_signal(Some(Signal::KILL));
    let worked = bound.map_err(|error| error.to_string()).and_then(|()| run_from_stdin());
    match worked {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("drill worker: {why}");
            ExitCode::from(2)
        }
    }
}

fn run_from_stdin() -> Result<(), String> {
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line);
    read.map_err(|error| format!("cannot read its orders: {error}"))?;
    let orders: WorkerSpec =
        serde_json::from_str(&line).map_err(|error| format!("cannot read its orders: {error}"))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    let ending = CancellationToken::new();
    let told = ending.clone();
    std::thread::spawn(move || {
        let mut rest = String::new();
        // A line and the end of input both mean: shut down.
        let _ = std::io::stdin().lock().read_line(&mut rest);
        told.cancel();
    });
    let sink = HistorySink::new(std::io::stdout(), MAX_HISTORY_LINES, BootClock::shared());
    let done = runtime.block_on(run_clients(Arc::new(orders), &sink, ending));
    sink.close();
    done
}

async fn run_clients(
    orders: Arc<WorkerSpec>,
    sink: &HistorySink,
    ending: CancellationToken,
) -> Result<(), String> {
    let ledger = Arc::new(FencedTarget::open(&orders.ledger).map_err(|error| error.to_string())?);
    let mut clients = tokio::task::JoinSet::new();
    for (who, name) in orders.client_names().into_iter().zip(orders.names.iter().cycle()) {
        let name = Name::new(name.as_str()).map_err(|error| error.to_string())?;
        let client = DrillClient::open(
            Arc::clone(&orders),
            name,
            sink.writer(who),
            Arc::clone(&ledger),
            ending.clone(),
        );
        clients.spawn(client.await?.run());
    }
    while let Some(done) = clients.join_next().await {
        done.map_err(|error| error.to_string())??;
    }
    Ok(())
}
