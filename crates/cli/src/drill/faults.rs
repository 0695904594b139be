//! `leasehold drill faults`: many short drills, one fault each, chosen by seed.

use std::io::Write;
use std::time::Duration;

use anyhow::bail;
use leasehold::clock::{BootClock, Clock};
use leasehold_drill::chaos::{BatchTotals, run_batch};
use leasehold_drill::fleet::WorkerProgram;
use serde_json::json;

use super::args::{DrillFormat, FaultsArgs};
use super::history_file::write_history;
use super::{build_runtime, finish_verdict, require_throwaway_store, unless_interrupted};
use crate::args::GlobalArgs;
use crate::message::print_message;

/// Runs the drills, several at a time.
pub(crate) fn main(global: &GlobalArgs, args: &FaultsArgs) -> anyhow::Result<bool> {
    require_throwaway_store(global, "faults")?;
    let (runtime, program) = (build_runtime()?, WorkerProgram::current()?);
    let started = BootClock.now();
    let mut ended = 0_u64;
    // Drills mostly wait, so two per processor fit. More would compete for processors and be late.
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let lanes = args.lanes.map_or(processors * 2, usize::from);
    let on = args.on.map(|kind| format!(" --on {}", kind.info().name)).unwrap_or_default();
    let again = |seed: u64| format!("run it again: leasehold drill faults --count 1 --seed {seed}{on}");
    let work = run_batch(args.seed, args.count, lanes, args.on, &program, |seed, ran| {
        ended += 1;
        match ran {
            Ok(ran) if ran.broken.is_empty() => {
                // Lateness that does not repeat is put down to a busy machine, but still reported.
                if !ran.late.is_empty() {
                    print_message(&format!(
                        "seed {seed}: late once, not when run again: {}",
                        ran.late.join("; ")
                    ));
                }
                if ended.is_multiple_of(25) || ended == args.count {
                    print_message(&format!("{ended} of {} drills", args.count));
                }
            }
            Ok(ran) => {
                print_message(&format!(
                    "seed {seed}: {} on {}: VIOLATION: {}",
                    ran.fault.as_str(),
                    ran.store,
                    ran.broken.join("; ")
                ));
                print_message(&again(seed));
                if let Err(error) = write_history(&args.keep, &seed.to_string(), &ran.history) {
                    print_message(&format!("{error:#}"));
                }
            }
            Err(error) => print_message(&format!("seed {seed}: could not be run: {error}\n{}", again(seed))),
        }
    });
    let Some(sums) = runtime.block_on(unless_interrupted(work))? else {
        bail!("interrupted: every process, server and proxy of the drills is gone");
    };
    let took = BootClock.now().since(started);
    if !finish_verdict(sums.violations.is_empty(), print_sums(&sums, took, args))? {
        return Ok(false);
    }
    if let Some((seed, why)) = sums.failed.first_key_value() {
        bail!("{} of the drills could not be run; the first is seed {seed}: {why}", sums.failed.len());
    }
    Ok(true)
}

fn print_sums(sums: &BatchTotals, took: Duration, args: &FaultsArgs) -> anyhow::Result<()> {
    let mut out = crate::output::stdout();
    match args.output {
        DrillFormat::Json => {
            let mut document = json!(sums);
            document["schema_version"] = json!(1);
            document["took_s"] = json!(took.as_secs_f64());
            document["first_seed"] = json!(args.seed.to_string());
            serde_json::to_writer_pretty(&mut out, &document)?;
            writeln!(out)?;
        }
        DrillFormat::Table => {
            for (fault, count) in &sums.faults {
                writeln!(out, "{fault:<28} {count:>6}")?;
            }
            writeln!(
                out,
                "{} drills in {:.0} s, seeds {} to {}: {} violations, {} late once, {} could not be run; {} grants, {} holds fenced, \
                 {} writes applied, {} stale ones refused, {} acquires unavailable, {} debts",
                sums.drills,
                took.as_secs_f64(),
                args.seed,
                args.seed.wrapping_add(args.count - 1),
                sums.violations.len(),
                sums.late.len(),
                sums.failed.len(),
                sums.grants,
                sums.fenced,
                sums.applied,
                sums.refused,
                sums.unavailable,
                sums.debts
            )?;
        }
    }
    Ok(())
}
