//! `leasehold drill`: injects faults on purpose and judges whether the promises hold.
//!
//! `run` runs single drills and `all`; `faults` many short ones; `soak` a long one. `plane` breaks replicas of the
//! control plane, and `hostile-clients` attacks a daemon. `report` judges a kept
//! history, `proxy` is the fault proxy by itself.

mod args;
mod faults;
mod history_file;
mod hostile_clients;
mod plane;
mod proxy;
mod report;
mod run;
mod soak;

pub(crate) use args::{DrillArgs, DrillCommand};

use std::io::Write;

use anyhow::Context;
use leasehold_drill::scenario::ALL;

use crate::args::GlobalArgs;
use crate::message::print_message;

/// Runs the verb. Returns false if a promise was broken.
pub(crate) fn main(global: &GlobalArgs, command: DrillCommand) -> anyhow::Result<bool> {
    match command {
        DrillCommand::List => print_scenarios(),
        DrillCommand::Plane(args) => {
            require_throwaway_store(global, "plane")?;
            plane::main(&args)
        }
        DrillCommand::HostileClients(args) => {
            require_throwaway_store(global, "hostile-clients")?;
            hostile_clients::main(&args)
        }
        DrillCommand::Run(args) => run::main(global, &run::RunPlan::from_run_args(args)),
        DrillCommand::All(args) => run::main(global, &run::RunPlan::from_all_args(args)),
        DrillCommand::Faults(args) => faults::main(global, &args),
        DrillCommand::Soak(args) => soak::main(global, &args),
        DrillCommand::Report(args) => report::main(&args),
        DrillCommand::Proxy(args) => proxy::main(&args),
    }
}

fn print_scenarios() -> anyhow::Result<bool> {
    let mut out = crate::output::stdout();
    let kinds: Vec<_> = leasehold::testbeds().iter().map(|kind| kind.info()).collect();
    for scenario in ALL {
        let stores = kinds.iter().filter(|kind| scenario.runs_on(kind));
        let stores: Vec<_> = stores.map(|kind| kind.name).collect();
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
    writeln!(out, "replayer has the rule of reconciler: what is seen of the one is true of the other")?;
    Ok(true)
}

// Current-thread: the kernel kills a drill's workers when the thread that started them ends.
fn build_runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start the runtime")
}

/// Refuses a configured store: these drills destroy what is in a store.
fn require_throwaway_store(global: &GlobalArgs, verb: &str) -> anyhow::Result<()> {
    match global.store.as_deref().filter(|url| !url.is_empty()) {
        None => Ok(()),
        Some(url) => anyhow::bail!(
            "`drill {verb}` runs on throw-away stores only, and --store (or LEASEHOLD_STORE) names {}\n\
             leave it out, or say --store ''",
            leasehold::redact(url)
        ),
    }
}

/// The result of a verb that has judged something.
pub(crate) fn finish_verdict(kept: bool, told: anyhow::Result<()>) -> anyhow::Result<bool> {
    // A broken promise outranks a report that could not be written, for example to a closed pipe.
    match told {
        Err(error) if !kept => {
            print_message(&format!("{error:#}"));
            Ok(false)
        }
        told => told.map(|()| kept),
    }
}

/// The result of the work; `None` if INT or TERM came first and the work was dropped.
pub(crate) async fn unless_interrupted<T>(work: impl Future<Output = T>) -> anyhow::Result<Option<T>> {
    tokio::select! {
        biased;
        signal = wait_for_interrupt() => {
            signal.context("cannot listen for signals")?;
            Ok(None)
        }
        done = work => Ok(Some(done)),
    }
}

/// Waits for the first INT or TERM.
async fn wait_for_interrupt() -> std::io::Result<()> {
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

    use super::finish_verdict;

    #[test]
    fn a_broken_promise_wins_over_a_report_that_cannot_be_written() {
        let full =
            || anyhow::Error::from(Error::from(ErrorKind::StorageFull)).context("cannot write report.html");
        let nobody_reads = || anyhow::Error::from(Error::from(ErrorKind::BrokenPipe));
        assert!(!finish_verdict(false, Err(full())).unwrap());
        assert!(!finish_verdict(false, Err(nobody_reads())).unwrap());
        assert!(!finish_verdict(false, Ok(())).unwrap());
        assert!(finish_verdict(true, Ok(())).unwrap());
        assert!(finish_verdict(true, Err(full())).is_err());
        // `exit` recognizes a closed pipe by the error's kind, so the kind must survive.
        let error = finish_verdict(true, Err(nobody_reads())).unwrap_err();
        assert!(error.downcast_ref::<Error>().is_some());
    }
}
