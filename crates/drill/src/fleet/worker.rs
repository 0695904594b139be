//! The worker process.
//!
//! It reads its orders as one line from standard input, writes its history to standard output, and ends in order when
//! standard input says so or ends. If its director dies, the kernel kills it, even while it is stopped.

use std::io::BufRead;
use std::process::ExitCode;
use std::sync::Arc;

use leasehold_core::Name;
use leasehold_core::clock::BootClock;
use rustix::process::{Signal, set_parent_process_death_signal};
use tokio_util::sync::CancellationToken;

use super::client::Client;
use super::ledger::Ledger;
use super::orders::Orders;
use super::skew::Skew;
use crate::history::Sink;

/// The hidden word by which a program with a worker in it is asked to be one.
pub const WORD: &str = "__drill-worker";

/// The most lines that one worker writes.
const MOST_LINES: usize = 500_000;

/// A worker's whole life; or, if the first word says so, that of a bound server (see `bound`).
#[must_use]
pub fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    if words.next().is_some_and(|word| word == super::bound::BOUND) {
        return super::bound::main(words);
    }
    if Skew::is_ours() {
        Skew::unshare(std::process::id());
    }
    // A stopped worker cannot see its input end; the kernel's order reaches it. (The hang-up of orphaned groups would too,
    // but not where somebody of the same session adopts it.)
    let bound = set_parent_process_death_signal(Some(Signal::KILL));
    let worked = bound.map_err(|error| error.to_string()).and_then(|()| work());
    match worked {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("drill worker: {why}");
            ExitCode::from(2)
        }
    }
}

fn work() -> Result<(), String> {
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line);
    read.map_err(|error| format!("cannot read its orders: {error}"))?;
    let orders: Orders =
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
        // Whatever it is, a line or the end: it means the same.
        let _ = std::io::stdin().lock().read_line(&mut rest);
        told.cancel();
    });
    let sink = Sink::new(std::io::stdout(), MOST_LINES, BootClock::shared());
    let done = runtime.block_on(run(Arc::new(orders), &sink, ending));
    sink.close();
    done
}

async fn run(orders: Arc<Orders>, sink: &Sink, ending: CancellationToken) -> Result<(), String> {
    let ledger = Arc::new(Ledger::open(&orders.ledger).map_err(|error| error.to_string())?);
    let mut clients = tokio::task::JoinSet::new();
    for (who, name) in orders.client_names().into_iter().zip(orders.names.iter().cycle()) {
        let name = Name::new(name.as_str()).map_err(|error| error.to_string())?;
        let client = Client::open(
            Arc::clone(&orders),
            name,
            sink.pen(who),
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
