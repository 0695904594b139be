//! `leasehold drill`: faults on purpose, and a verdict.
//!
//! `args` is what people type, `run` runs drills (and `all` of them), `faults` many short ones, `soak` a long one, `report`
//! judges a history that was kept, `simulate` runs the client in a simulated world, `proxy` is the fault proxy by itself.

mod args;
mod faults;
mod keep;
mod proxy;
mod report;
mod run;
mod simulate;
mod soak;

pub(crate) use args::{DrillArgs, DrillCommand};

use std::io::Write;

use anyhow::Context;
use leasehold_drill::scenario::ALL;

use crate::args::Place;
use crate::say::say;

/// Does what was asked; false is a broken promise.
pub(crate) fn main(place: &Place, command: DrillCommand) -> anyhow::Result<bool> {
    match command {
        DrillCommand::List => list(),
        DrillCommand::Plane(args) => {
            throw_away(place, "plane")?;
            crate::plane::proof::main(&args)
        }
        DrillCommand::Run(args) => run::main(place, &run::Wanted::of_run(args)),
        DrillCommand::All(args) => run::main(place, &run::Wanted::of_all(args)),
        DrillCommand::Faults(args) => faults::main(place, &args),
        DrillCommand::Soak(args) => soak::main(place, &args),
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
            "{:<22} {:<14} {}\n{:<37} classes: {}",
            scenario.name,
            stores.join(","),
            scenario.about,
            "",
            scenario.classes.join(", ")
        )?;
    }
    writeln!(
        out,
        "replayer has the rule of reconciler: what is seen of the one is true of the other"
    )?;
    Ok(true)
}

/// One runtime on this thread: a drill's workers die with the thread that started them.
fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")
}

/// Some drills are for stores that nobody else has.
fn throw_away(place: &Place, verb: &str) -> anyhow::Result<()> {
    match place.store.as_deref().filter(|url| !url.is_empty()) {
        None => Ok(()),
        Some(url) => anyhow::bail!(
            "`drill {verb}` runs on throw-away stores only, and --store (or LEASEHOLD_STORE) names {}\n\
             leave it out, or say --store ''",
            leasehold::redact(url)
        ),
    }
}

/// How a verb ends that has judged something. A broken promise is more than a report that could not be written, or that nobody
/// reads to its end.
pub(crate) fn ends(kept: bool, told: anyhow::Result<()>) -> anyhow::Result<bool> {
    match told {
        Err(error) if !kept => {
            say(&format!("{error:#}"));
            Ok(false)
        }
        told => told.map(|()| kept),
    }
}

/// The answer of this work, or nothing if INT or TERM came first; the work has been dropped then.
pub(crate) async fn unless_interrupted<T>(work: impl Future<Output = T>) -> anyhow::Result<Option<T>> {
    tokio::select! {
        biased;
        signal = interrupted() => {
            signal.context("cannot listen for signals")?;
            Ok(None)
        }
        done = work => Ok(Some(done)),
    }
}

/// Ends with the first INT or TERM.
async fn interrupted() -> std::io::Result<()> {
    let mut term = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        done = tokio::signal::ctrl_c() => done,
        _ = term.recv() => Ok(()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::io::{Error, ErrorKind};

    use super::ends;

    #[test]
    fn a_broken_promise_wins_over_a_report_that_cannot_be_written() {
        let full =
            || anyhow::Error::from(Error::from(ErrorKind::StorageFull)).context("cannot write report.html");
        let nobody_reads = || anyhow::Error::from(Error::from(ErrorKind::BrokenPipe));
        assert!(!ends(false, Err(full())).unwrap());
        assert!(!ends(false, Err(nobody_reads())).unwrap());
        assert!(!ends(false, Ok(())).unwrap());
        assert!(ends(true, Ok(())).unwrap());
        assert!(ends(true, Err(full())).is_err());
        // Whoever reads no further is told of by its kind, wherever the verb ends.
        let error = ends(true, Err(nobody_reads())).unwrap_err();
        assert!(error.downcast_ref::<Error>().is_some());
    }
}
