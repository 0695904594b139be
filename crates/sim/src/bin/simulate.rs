//! `cargo xtask simulate`: runs the real client in a simulation, seed by seed.
//!
//! Ends with 0 if every promise held, 1 if one was broken, 2 if the simulation could not be run.

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Parser;
use leasehold_core::clock::{BootClock, Clock, ClockExt};
use leasehold_drill::history::HistoryRecord;
use leasehold_sim::{
    Campaign, FailedSeed, Mistake, OrphanStats, Progress, ShrunkPlan, SimPlan, Topology,
    find_unrepeatable_seed, run_campaign,
};
use tokio::signal::unix::{SignalKind, signal};

/// Between two progress messages.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(2);
/// The most records of a shrunk history that are printed.
const MAX_SHOWN_RECORDS: usize = 60;

/// Run the real client in a simulated world, seed by seed, until a promise breaks
#[derive(Debug, Parser)]
#[command(bin_name = "cargo xtask simulate")]
struct SimulateArgs {
    /// With the real daemon between the clients and their store, over a simulated network
    #[arg(long)]
    daemon: bool,
    /// Short histories of the client with many faults, for many more seeds in the same time
    #[arg(long, conflicts_with = "daemon")]
    machines: bool,
    /// How many histories
    #[arg(long, value_name = "NUMBER", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// The first seed: the same seed is the same history
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    from: u64,
    /// On so many threads instead of one for each core
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Live each history twice and compare them to the last byte
    #[arg(long)]
    replay: bool,
    /// Put this mistake back, which must be found
    #[arg(long, value_name = "NAME")]
    mistake: Option<String>,
    /// Write the short history of a failure here instead of to sim-SEED.jsonl
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(&SimulateArgs::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        // The reader closed the pipe: `cargo xtask simulate | head -1` is not an error.
        Err(error)
            if error
                .downcast_ref::<std::io::Error>()
                .is_some_and(|io| io.kind() == ErrorKind::BrokenPipe) =>
        {
            ExitCode::SUCCESS
        }
        Err(error) => {
            print_message(&format!("{error:#}"));
            ExitCode::from(2)
        }
    }
}

/// Prints a message for people. The prefix separates it from the figures, which scripts read.
fn print_message(text: &str) {
    // `eprintln!` would panic if standard error is closed.
    let _ = writeln!(std::io::stderr(), "leasehold: {text}");
}

/// Runs the histories. Returns false if a promise was broken.
fn run(args: &SimulateArgs) -> anyhow::Result<bool> {
    let word = args.mistake.as_deref().unwrap_or("none");
    let Some(mistake) = Mistake::from_name(word) else {
        let known: Vec<_> = Mistake::ALL.iter().map(|mistake| mistake.name()).collect();
        bail!("there is no mistake {word:?}; there are {}", known.join(", "));
    };
    let world = match (args.daemon, args.machines) {
        (true, _) => Topology::Daemon,
        (_, true) => Topology::Machines,
        _ => Topology::Clients,
    };
    let what = Campaign {
        first_seed: args.from,
        seed_count: args.seeds,
        threads: args
            .threads
            .map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), usize::from),
        mistake,
        topology: world,
    };
    let progress = Arc::new(Progress::default());
    let began = BootClock.now();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let ran = runtime.block_on(run_with_progress(what, args.replay, Arc::clone(&progress)))?;
    let took = BootClock.now().since(began).as_secs_f64();
    let count = |number: &std::sync::atomic::AtomicU64| number.load(Ordering::Relaxed);
    let done = count(&progress.done);
    let mut out = std::io::stdout().lock();
    match ran {
        CampaignEnd::Interrupted => bail!("interrupted after {done} of {} histories", what.seed_count),
        CampaignEnd::Replayed(Some(seed)) => {
            let again = repeat_command(seed, args, " --replay");
            let written = writeln!(out, "seed {seed} ran differently the second time\n{again}");
            Ok(report_violation(written.map_err(Into::into)))
        }
        CampaignEnd::Replayed(None) => {
            let events = count(&progress.events);
            writeln!(out, "{done} histories ran twice, {events} events, all the same")?;
            Ok(true)
        }
        CampaignEnd::Failed(failure) => Ok(report_violation(report_failure(&mut out, *failure, args, what))),
        CampaignEnd::Passed => {
            writeln!(
                out,
                "{done} histories, {} events, {} grants, {} writes applied, {:.1} simulated hours: no promise broken",
                count(&progress.events),
                count(&progress.grants),
                count(&progress.applied),
                // Milliseconds to hours.
                count(&progress.simulated_ms) as f64 / 3.6e6
            )?;
            if args.daemon {
                writeln!(out, "what happened in them:")?;
                let faults = progress.faults.lock().unwrap_or_else(PoisonError::into_inner);
                for (fault, times) in faults.iter() {
                    writeln!(out, "{times:>10}  {fault}")?;
                }
            }
            if !args.daemon {
                let orphans = *progress.orphans.lock().unwrap_or_else(PoisonError::into_inner);
                writeln!(out, "{}", orphan_summary(orphans))?;
            }
            print_message(&format!(
                "{:.0} histories a second on {} threads",
                done as f64 / took.max(0.001),
                what.threads
            ));
            Ok(true)
        }
    }
}

/// Returns false. A broken promise outranks a report that could not be written, for example to a
/// closed pipe.
fn report_violation(written: anyhow::Result<()>) -> bool {
    if let Err(error) = written {
        print_message(&format!("{error:#}"));
    }
    false
}

/// Summarizes leases that outlived an acquire without a hold.
fn orphan_summary(orphans: OrphanStats) -> String {
    let OrphanStats { count, gone_within_second: soon, undoable: possible, undone_in_time: undone, .. } =
        orphans;
    let (age, allowed) = orphans.oldest;
    let seconds = |nanos: u64| nanos as f64 / 1e9;
    let share = |some: u64, all: u64| some as f64 / all.max(1) as f64 * 100.0;
    format!(
        "{count} leases stood although their acquire had ended without a hold: {:.1} % were gone within 1 s, the oldest stood {:.1} s of the \
         {:.1} s that it may; {possible} of them could be undone, and {:.1} % of these were within 1 s of that",
        share(soon, count),
        seconds(age),
        seconds(allowed),
        share(undone, possible)
    )
}

enum CampaignEnd {
    Passed,
    Failed(Box<FailedSeed>),
    Replayed(Option<u64>),
    Interrupted,
}

/// Runs the campaign on threads of its own and prints progress.
async fn run_with_progress(
    what: Campaign,
    twice: bool,
    progress: Arc<Progress>,
) -> anyhow::Result<CampaignEnd> {
    let theirs = Arc::clone(&progress);
    // The simulation computes without pause and would block the runtime's thread.
    let mut work = tokio::task::spawn_blocking(move || {
        if twice {
            return find_unrepeatable_seed(what, &theirs).map(CampaignEnd::Replayed);
        }
        let failed = run_campaign(what, &theirs);
        Ok(failed.map_or(CampaignEnd::Passed, |failure| CampaignEnd::Failed(Box::new(failure))))
    });
    // One future for the whole loop: a signal during a progress message must not be missed.
    let mut interrupted = std::pin::pin!(wait_for_interrupt());
    loop {
        tokio::select! {
            biased;
            ran = &mut work => return ran.context("a history panicked")?.map_err(anyhow::Error::msg),
            signal = &mut interrupted => {
                signal.context("cannot listen for signals")?;
                progress.stop.store(true, Ordering::Relaxed);
                // Threads cannot be aborted; they end when they see the flag.
                let _ = work.await;
                return Ok(CampaignEnd::Interrupted);
            }
            () = BootClock.sleep(PROGRESS_INTERVAL) => {
                let (done, events) = (progress.done.load(Ordering::Relaxed), progress.events.load(Ordering::Relaxed));
                print_message(&format!("{done} of {} histories, {events} events", what.seed_count));
            }
        }
    }
}

/// Waits for the first INT or TERM.
async fn wait_for_interrupt() -> std::io::Result<()> {
    let mut term = signal(SignalKind::terminate())?;
    tokio::select! {
        done = tokio::signal::ctrl_c() => done,
        _ = term.recv() => Ok(()),
    }
}

/// Prints what is needed to reproduce the failure, then shrinks it.
fn report_failure(
    out: &mut impl Write,
    failure: FailedSeed,
    args: &SimulateArgs,
    what: Campaign,
) -> anyhow::Result<()> {
    let seed = failure.seed;
    writeln!(out, "seed {seed} broke a promise ({})", version_text())?;
    let plan = SimPlan::for_topology(what.topology, seed, what.mistake);
    match &failure.run {
        Ok(run) => {
            for found in run.judgement.findings.iter().take(5) {
                writeln!(out, "  {} {}: {}", found.invariant, found.name, found.why)?;
            }
        }
        Err(why) => writeln!(out, "  it could not run to its end: {why}")?,
    }
    writeln!(out, "options: {}", plan.summary())?;
    writeln!(out, "{}", repeat_command(seed, args, ""))?;
    // Shrinking can take long; the seed must be visible before.
    out.flush()?;
    print_message("shrinking it …");
    let Some(small) = failure.shrink(what.topology, what.mistake) else {
        return Ok(());
    };
    writeln!(out, "\nshrunk in {} histories to: {}", small.runs_tried, small.plan.summary())?;
    print_records(out, &small)?;
    let path = args.history.clone().unwrap_or_else(|| PathBuf::from(format!("sim-{seed}.jsonl")));
    write_records(&path, &small.run.history.records)?;
    writeln!(out, "its history: leasehold drill report {}", path.display())?;
    Ok(())
}

/// Prints the records up to the broken promise, and the finding.
fn print_records(out: &mut impl Write, small: &ShrunkPlan) -> anyhow::Result<()> {
    let Some(found) = small.first_finding() else {
        return Ok(());
    };
    let lines: Vec<_> = small.run.history.records.iter().filter(|record| record.at <= found.at).collect();
    let skipped = lines.len().saturating_sub(MAX_SHOWN_RECORDS);
    if skipped > 0 {
        writeln!(out, "  … {skipped} lines before")?;
    }
    for record in lines.into_iter().skip(skipped) {
        writeln!(out, "  {}", serde_json::to_string(record)?)?;
    }
    writeln!(out, "  {} {}: {}", found.invariant, found.name, found.why)?;
    Ok(())
}

fn write_records(path: &Path, records: &[HistoryRecord]) -> anyhow::Result<()> {
    let write = || -> std::io::Result<()> {
        let mut file = std::io::BufWriter::new(std::fs::File::create(path)?);
        for record in records {
            serde_json::to_writer(&mut file, record)?;
            file.write_all(b"\n")?;
        }
        file.flush()
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

/// The command that reproduces the failure.
fn repeat_command(seed: u64, args: &SimulateArgs, more: &str) -> String {
    let mistake = match &args.mistake {
        Some(word) => format!(" --mistake {word}"),
        None => String::new(),
    };
    let mode = match (args.daemon, args.machines) {
        (true, _) => " --daemon",
        (_, true) => " --machines",
        _ => "",
    };
    format!("repeat: cargo xtask simulate{mode} --from {seed} --seeds 1{mistake}{more}")
}

/// The version, and the commit if the working directory is a git repository.
fn version_text() -> String {
    let version = format!("leasehold {}", env!("CARGO_PKG_VERSION"));
    let commit = std::process::Command::new("git")
        .args(["log", "-1", "--format=%h"])
        .stderr(std::process::Stdio::null())
        .output();
    match commit {
        Ok(message) if message.status.success() => {
            format!("{version}, commit {}", String::from_utf8_lossy(&message.stdout).trim())
        }
        _ => version,
    }
}
