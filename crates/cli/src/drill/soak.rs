//! `leasehold drill soak`.

use std::io::Write;

use anyhow::bail;
use leasehold_drill::chaos::{Plan, Soak, soak};
use leasehold_drill::fleet::Program;
use serde_json::json;

use super::args::{Output, SoakArgs};
use super::keep::keep;
use super::{ends, runtime, throw_away, unless_interrupted};
use crate::args::Place;
use crate::say::say;

/// Runs it, a window at a time.
pub(crate) fn main(place: &Place, args: &SoakArgs) -> anyhow::Result<bool> {
    throw_away(place, "soak")?;
    let (runtime, program) = (runtime()?, Program::this()?);
    let plan = Plan {
        store: args.on.into(),
        lasts: args.lasts,
        every: args.every,
        window: args.window,
        seed: args.seed,
    };
    let work = soak(plan, &program, |window| {
        let words: Vec<_> = window.faults.iter().map(|fault| fault.word()).collect();
        say(&format!(
            "window {}: {}; {} records, {} grants, {} stale writes refused: {}",
            window.number,
            words.join(", "),
            window.records,
            window.measures.grants,
            window.measures.refused,
            match &window.disturbed {
                Some(why) => format!("disturbed: {why}"),
                None if window.broken.is_empty() => "clean".to_owned(),
                None => format!("VIOLATION: {}", window.broken.join("; ")),
            }
        ));
        if !window.broken.is_empty() {
            let name = format!("soak-{}-{}", args.seed, window.number);
            if let Err(error) = keep(&args.keep, &name, &window.history) {
                say(&format!("{error:#}"));
            }
        }
    });
    let Some(done) = runtime.block_on(unless_interrupted(work))? else {
        bail!("interrupted: every process, server and proxy of the soak is gone");
    };
    let sums = done?;
    if !ends(sums.violations.is_empty(), print(&sums, args))? {
        return Ok(false);
    }
    match sums.inconclusive() {
        Some(why) => bail!("{why}"),
        None => Ok(true),
    }
}

fn print(sums: &Soak, args: &SoakArgs) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match args.output {
        Output::Json => {
            let mut document = json!(sums);
            document["schema_version"] = json!(1);
            document["seed"] = json!(args.seed.to_string());
            serde_json::to_writer_pretty(&mut out, &document)?;
            writeln!(out)?;
        }
        Output::Table => {
            for (fault, count) in &sums.faults {
                writeln!(out, "{fault:<28} {count:>6}")?;
            }
            writeln!(
                out,
                "{} faults in {:.0} s, seed {}: {} windows ({} disturbed), {} violations; {} records, {} grants, {} holds fenced, \
                 {} writes applied, {} stale ones refused",
                sums.faults.values().sum::<u64>(),
                sums.took_s,
                args.seed,
                sums.windows,
                sums.disturbed,
                sums.violations.len(),
                sums.records,
                sums.grants,
                sums.fenced,
                sums.applied,
                sums.refused
            )?;
        }
    }
    Ok(())
}
