//! `leasehold drill`: faults on purpose, and a verdict.
//!
//! `args` is what people type, `run` runs drills, `report` judges a history that was kept, `simulate` runs the client in a
//! simulated world, `proxy` is the fault proxy by itself.

mod args;
mod proxy;
mod report;
mod run;
mod simulate;

pub(crate) use args::DrillArgs;

use std::io::Write;

use anyhow::Context;
use leasehold_drill::scenario::ALL;

use crate::args::Place;
use args::DrillCommand;

/// Does what was asked; false is a broken promise.
pub(crate) fn main(place: &Place, command: DrillCommand) -> anyhow::Result<bool> {
    match command {
        DrillCommand::List => list(),
        DrillCommand::Run(args) => run::main(place, &args),
        DrillCommand::Plane(args) => crate::plane::proof::main(&args),
        DrillCommand::Report(args) => report::main(&args),
        DrillCommand::Simulate(args) => simulate::main(&args),
        DrillCommand::Proxy(args) => proxy::main(&args),
    }
}

fn list() -> anyhow::Result<bool> {
    let mut out = std::io::stdout().lock();
    for scenario in ALL {
        let stores: Vec<_> = scenario.stores.iter().map(|store| store.word()).collect();
        writeln!(
            out,
            "{:<22} {:<14} {}",
            scenario.name,
            stores.join(","),
            scenario.about
        )?;
    }
    Ok(true)
}

/// One runtime on this thread: a drill's workers die with the thread that started them.
fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")
}

/// Ends with the first INT or TERM.
async fn interrupted() -> std::io::Result<()> {
    let mut term = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        done = tokio::signal::ctrl_c() => done,
        _ = term.recv() => Ok(()),
    }
}
