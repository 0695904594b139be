//! `leasehold drill simulate`: the real client in a simulated world, seed by seed.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail};
use leasehold::clock::{BootClock, Clock, ClockExt};
use leasehold_drill::history::Record;
use leasehold_drill::sim::{
    Campaign, Failure, Mistake, Orphans, Plan, Progress, Shrunk, World, campaign, replay,
};

use super::args::SimulateArgs;
use super::{ends, interrupted, runtime};
use crate::say::say;

/// How often the terminal hears how far it is.
const TELL: Duration = Duration::from_secs(2);
/// How many lines of a short history are shown.
const SHOWN: usize = 60;

/// Lives the histories; false is a broken promise.
pub(crate) fn main(args: &SimulateArgs) -> anyhow::Result<bool> {
    let word = args.mistake.as_deref().unwrap_or("none");
    let Some(mistake) = Mistake::find(word) else {
        let known: Vec<_> = Mistake::ALL.iter().map(|mistake| mistake.word()).collect();
        bail!("there is no mistake {word:?}; there are {}", known.join(", "));
    };
    let world = if args.daemon {
        World::Daemon
    } else {
        World::Clients
    };
    let what = Campaign {
        from: args.from,
        seeds: args.seeds,
        threads: args.threads.map_or_else(
            || std::thread::available_parallelism().map_or(1, usize::from),
            usize::from,
        ),
        mistake,
        world,
    };
    let progress = Arc::new(Progress::default());
    let began = BootClock.now();
    let ran = runtime()?.block_on(watch(what, args.replay, Arc::clone(&progress)))?;
    let took = BootClock.now().since(began).as_secs_f64();
    let count = |number: &std::sync::atomic::AtomicU64| number.load(Ordering::Relaxed);
    let done = count(&progress.done);
    let mut out = std::io::stdout().lock();
    match ran {
        Ran::Interrupted => bail!("interrupted after {done} of {} histories", what.seeds),
        Ran::Replayed(Some(seed)) => {
            let again = repeat(seed, args, " --replay");
            let told = writeln!(out, "seed {seed} ran differently the second time\n{again}");
            ends(false, told.map_err(Into::into))
        }
        Ran::Replayed(None) => {
            let events = count(&progress.events);
            writeln!(out, "{done} histories lived twice, {events} events, all the same")?;
            Ok(true)
        }
        Ran::Failed(failure) => {
            let told = tell(&mut out, *failure, args, what);
            ends(false, told)
        }
        Ran::Passed => {
            writeln!(
                out,
                "{done} histories, {} events, {} grants, {} writes applied, {:.1} simulated hours: no promise broken",
                count(&progress.events),
                count(&progress.grants),
                count(&progress.applied),
                count(&progress.lasted) as f64 / 3.6e6
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
                writeln!(out, "{}", told(orphans))?;
            }
            say(&format!(
                "{:.0} histories a second on {} threads",
                done as f64 / took.max(0.001),
                what.threads
            ));
            Ok(true)
        }
    }
}

/// What was left of acquires that had ended without a hold, and for how long.
fn told(orphans: Orphans) -> String {
    let Orphans {
        count,
        soon,
        possible,
        undone,
        ..
    } = orphans;
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

/// How a campaign ended.
enum Ran {
    Passed,
    Failed(Box<Failure>),
    Replayed(Option<u64>),
    Interrupted,
}

/// Runs the campaign on threads of its own and tells the terminal how far it is.
async fn watch(what: Campaign, twice: bool, progress: Arc<Progress>) -> anyhow::Result<Ran> {
    let theirs = Arc::clone(&progress);
    let mut work = tokio::task::spawn_blocking(move || {
        if twice {
            return replay(what, &theirs).map(Ran::Replayed);
        }
        let failed = campaign(what, &theirs);
        Ok(failed.map_or(Ran::Passed, |failure| Ran::Failed(Box::new(failure))))
    });
    // Listened to without a gap: a signal that comes while something is told counts too.
    let mut interrupted = std::pin::pin!(interrupted());
    loop {
        tokio::select! {
            biased;
            ran = &mut work => return ran.context("a history panicked")?.map_err(anyhow::Error::msg),
            signal = &mut interrupted => {
                signal.context("cannot listen for signals")?;
                progress.stop.store(true, Ordering::Relaxed);
                let _ = work.await;
                return Ok(Ran::Interrupted);
            }
            () = BootClock.sleep(TELL) => {
                let (done, events) = (progress.done.load(Ordering::Relaxed), progress.events.load(Ordering::Relaxed));
                say(&format!("{done} of {} histories, {events} events", what.seeds));
            }
        }
    }
}

/// Everything a reader needs to see the failure again.
fn tell(out: &mut impl Write, failure: Failure, args: &SimulateArgs, what: Campaign) -> anyhow::Result<()> {
    let seed = failure.seed;
    writeln!(out, "seed {seed} broke a promise ({})", version())?;
    let plan = Plan::of(what.world, seed, what.mistake);
    match &failure.run {
        Ok(run) => {
            for found in run.judgement.findings.iter().take(5) {
                writeln!(out, "  {} {}: {}", found.invariant, found.name, found.why)?;
            }
        }
        Err(why) => writeln!(out, "  it could not be lived to its end: {why}")?,
    }
    writeln!(out, "options: {}", plan.summary())?;
    writeln!(out, "{}", repeat(seed, args, ""))?;
    out.flush()?;
    say("shrinking it …");
    let Some(small) = failure.shrink(what.world, what.mistake) else {
        return Ok(());
    };
    writeln!(
        out,
        "\nshrunk in {} histories to: {}",
        small.tried,
        small.plan.summary()
    )?;
    show(out, &small)?;
    let path = args
        .history
        .clone()
        .unwrap_or_else(|| PathBuf::from(format!("sim-{seed}.jsonl")));
    keep(&path, &small.run.history.records)?;
    writeln!(out, "its history: leasehold drill report {}", path.display())?;
    Ok(())
}

/// The lines up to where the promise was broken, and how.
fn show(out: &mut impl Write, small: &Shrunk) -> anyhow::Result<()> {
    let Some(found) = small.found() else {
        return Ok(());
    };
    let lines: Vec<_> = small
        .run
        .history
        .records
        .iter()
        .filter(|record| record.at <= found.at)
        .collect();
    let skipped = lines.len().saturating_sub(SHOWN);
    if skipped > 0 {
        writeln!(out, "  … {skipped} lines before")?;
    }
    for record in lines.into_iter().skip(skipped) {
        writeln!(out, "  {}", serde_json::to_string(record)?)?;
    }
    writeln!(out, "  {} {}: {}", found.invariant, found.name, found.why)?;
    Ok(())
}

fn keep(path: &Path, records: &[Record]) -> anyhow::Result<()> {
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

/// The one command that shows it again, shrinking and all.
fn repeat(seed: u64, args: &SimulateArgs, more: &str) -> String {
    let mistake = match &args.mistake {
        Some(word) => format!(" --mistake {word}"),
        None => String::new(),
    };
    let daemon = if args.daemon { " --daemon" } else { "" };
    format!("repeat: leasehold drill simulate{daemon} --from {seed} --seeds 1{mistake}{more}")
}

/// Which code it was: the commit where there is one, the version anyhow.
fn version() -> String {
    let version = format!("leasehold {}", env!("CARGO_PKG_VERSION"));
    let commit = std::process::Command::new("git")
        .args(["log", "-1", "--format=%h"])
        .stderr(std::process::Stdio::null())
        .output();
    match commit {
        Ok(said) if said.status.success() => {
            format!(
                "{version}, commit {}",
                String::from_utf8_lossy(&said.stdout).trim()
            )
        }
        _ => version,
    }
}
