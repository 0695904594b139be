//! `leasehold drill soak`: one fleet under a series of faults, judged window by window.

use std::io::Write;

use anyhow::bail;
use leasehold_drill::chaos::{SoakPlan, SoakTotals, run_soak};
use leasehold_drill::fleet::WorkerProgram;
use serde_json::json;

use super::args::{DrillFormat, SoakArgs};
use super::history_file::write_history;
use super::{build_runtime, finish_verdict, require_throwaway_store, unless_interrupted};
use crate::args::GlobalArgs;
use crate::message::print_message;

/// Runs the soak and prints each window.
pub(crate) fn main(global: &GlobalArgs, args: &SoakArgs) -> anyhow::Result<bool> {
    require_throwaway_store(global, "soak")?;
    let (runtime, program) = (build_runtime()?, WorkerProgram::current()?);
    let plan = SoakPlan {
        store: args.on,
        duration: args.lasts,
        fault_interval: args.every,
        window_length: args.window,
        seed: args.seed,
    };
    let work = run_soak(plan, &program, |window| {
        let words: Vec<_> = window.faults.iter().map(|fault| fault.as_str()).collect();
        print_message(&format!(
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
            if let Err(error) = write_history(&args.keep, &name, &window.history) {
                print_message(&format!("{error:#}"));
            }
        }
    });
    let Some(done) = runtime.block_on(unless_interrupted(work))? else {
        bail!("interrupted: every process, server and proxy of the soak is gone");
    };
    let sums = done?;
    if !finish_verdict(sums.violations.is_empty(), print_soak(&sums, args))? {
        return Ok(false);
    }
    // A soak whose windows could not be judged must not end as a success.
    match sums.inconclusive() {
        Some(why) => bail!("{why}"),
        None => Ok(true),
    }
}

fn print_soak(sums: &SoakTotals, args: &SoakArgs) -> anyhow::Result<()> {
    let mut out = crate::output::stdout();
    match args.output {
        DrillFormat::Json => {
            let mut document = json!(sums);
            document["schema_version"] = json!(1);
            document["seed"] = json!(args.seed.to_string());
            serde_json::to_writer_pretty(&mut out, &document)?;
            writeln!(out)?;
        }
        DrillFormat::Table => {
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
