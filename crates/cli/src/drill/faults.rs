//! `leasehold drill faults`.

use std::io::Write;
use std::time::Duration;

use anyhow::bail;
use leasehold::clock::{BootClock, Clock};
use leasehold_drill::chaos::{Sums, many};
use leasehold_drill::fleet::Program;
use serde_json::json;

use super::args::{FaultsArgs, Output};
use super::keep::keep;
use super::{ends, runtime, throw_away, unless_interrupted};
use crate::args::Place;
use crate::say::say;

/// Runs them, several at a time.
pub(crate) fn main(place: &Place, args: &FaultsArgs) -> anyhow::Result<bool> {
    throw_away(place, "faults")?;
    let (runtime, program) = (runtime()?, Program::this()?);
    let started = BootClock.now();
    let mut ended = 0_u64;
    // They mostly wait; more of them would wait for the processors and not for each other.
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let lanes = args.lanes.map_or(processors * 2, usize::from);
    let on = args
        .on
        .map(|kind| format!(" --on {}", word(kind)))
        .unwrap_or_default();
    let again = |seed: u64| format!("run it again: leasehold drill faults --count 1 --seed {seed}{on}");
    let work = many(
        args.seed,
        args.count,
        lanes,
        args.on.map(Into::into),
        &program,
        |seed, ran| {
            ended += 1;
            match ran {
                Ok(ran) if ran.broken.is_empty() => {
                    if !ran.late.is_empty() {
                        say(&format!(
                            "seed {seed}: late once, not when run again: {}",
                            ran.late.join("; ")
                        ));
                    }
                    if ended.is_multiple_of(25) || ended == args.count {
                        say(&format!("{ended} of {} drills", args.count));
                    }
                }
                Ok(ran) => {
                    say(&format!(
                        "seed {seed}: {} on {}: VIOLATION: {}",
                        ran.fault.word(),
                        ran.store.word(),
                        ran.broken.join("; ")
                    ));
                    say(&again(seed));
                    if let Err(error) = keep(&args.keep, &seed.to_string(), &ran.history) {
                        say(&format!("{error:#}"));
                    }
                }
                Err(error) => say(&format!(
                    "seed {seed}: could not be run: {error}\n{}",
                    again(seed)
                )),
            }
        },
    );
    let Some(sums) = runtime.block_on(unless_interrupted(work))? else {
        bail!("interrupted: every process, server and proxy of the drills is gone");
    };
    let took = BootClock.now().since(started);
    if !ends(sums.violations.is_empty(), print(&sums, took, args))? {
        return Ok(false);
    }
    if let Some((seed, why)) = sums.failed.first_key_value() {
        bail!(
            "{} of the drills could not be run; the first is seed {seed}: {why}",
            sums.failed.len()
        );
    }
    Ok(true)
}

fn print(sums: &Sums, took: Duration, args: &FaultsArgs) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match args.output {
        Output::Json => {
            let mut document = json!(sums);
            document["schema_version"] = json!(1);
            document["took_s"] = json!(took.as_secs_f64());
            document["first_seed"] = json!(args.seed.to_string());
            serde_json::to_writer_pretty(&mut out, &document)?;
            writeln!(out)?;
        }
        Output::Table => {
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

fn word(kind: super::args::Kind) -> &'static str {
    leasehold_drill::fleet::StoreKind::from(kind).word()
}
