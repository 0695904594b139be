//! `leasehold drill run` and `leasehold drill all`.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, bail};
use leasehold_core::atomic_file::{self, FileAccess};
use leasehold_drill::fleet::{DrillError, DrillStore, ExternalStore, WorkerProgram};
use leasehold_drill::report::{details, document, page, table};
use leasehold_drill::scenario::{self, ALL, DrillOptions, Outcome, Scenario, Verdict};

use super::args::{AllArgs, DrillFormat, DrillRunArgs, StoreKind};
use super::history_file::write_history;
use super::{build_runtime, finish_verdict, unless_interrupted};
use crate::args::GlobalArgs;
use crate::message::print_message;

/// The common form of both verbs' arguments.
pub(crate) struct RunPlan {
    names: Vec<String>,
    on: Option<StoreKind>,
    options: DrillOptions,
    html: Option<PathBuf>,
    json: Option<PathBuf>,
    history: Option<PathBuf>,
    output: DrillFormat,
}

impl RunPlan {
    pub(crate) fn from_run_args(args: DrillRunArgs) -> Self {
        Self {
            names: args.names,
            on: args.on,
            options: args.sizes.into(),
            html: args.html,
            json: None,
            history: args.history,
            output: args.output,
        }
    }

    pub(crate) fn from_all_args(args: AllArgs) -> Self {
        Self {
            names: vec!["all".to_owned()],
            on: args.on,
            options: args.sizes.into(),
            html: Some(args.out.join("report.html")),
            json: Some(args.out.join("report.json")),
            history: Some(args.out),
            output: args.output,
        }
    }
}

/// Runs the drills one after the other.
pub(crate) fn main(global: &GlobalArgs, args: &RunPlan) -> anyhow::Result<bool> {
    let chosen = select_scenarios(&args.names)?;
    if let Some(folder) = &args.history {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    for path in [&args.html, &args.json].into_iter().flatten() {
        // Detect an unwritable report before minutes of drills are run.
        // An existing report stays until the new one is ready, so its folder is tried and not the file.
        atomic_file::check_writable(path).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let runtime = build_runtime()?;
    let program = WorkerProgram::current()?;
    let url = global.store.as_deref().filter(|url| !url.is_empty());
    let given = url.map(|url| runtime.block_on(ExternalStore::open(url))).transpose()?;
    let stores = match (&given, args.on) {
        (Some(_), Some(_)) => {
            bail!("--on chooses a throw-away store and --store names one: leave one of them out")
        }
        (Some(given), None) => vec![DrillStore::External(Arc::clone(given))],
        (None, Some(kind)) => vec![DrillStore::ThrowAway(kind)],
        (None, None) => DrillStore::all_throwaway(),
    };
    let work = run_drills(&chosen, &stores, &program, args);
    let done = runtime.block_on(unless_interrupted(work))?;
    // After an interrupt too: no process of the drill runs any more, and the user's store is cleaned up.
    let swept = given.as_ref().map_or(Ok(()), |given| runtime.block_on(given.sweep()));
    let Some(done) = done else {
        bail!(
            "interrupted: every process, server and proxy of the drill is gone{}",
            swept.map_or_else(
                |error| format!("; its leases are still there and run out by themselves: {error}"),
                |()| String::new()
            )
        );
    };
    let (verdicts, failed) = done?;
    if let Err(error) = swept {
        print_message(&format!("what the drills have left could not be removed: {error}"));
    }
    let kept = verdicts.iter().all(|verdict| verdict.outcome != Outcome::Violation);
    if !finish_verdict(kept, write_reports(&verdicts, &failed, args))? {
        return Ok(false);
    }
    if let Some((first, why)) = failed.first() {
        bail!("{} of the drills could not be run; the first is {first}: {why}", failed.len());
    }
    // Nothing was tested, so this must not end as a success.
    if verdicts.iter().all(|verdict| verdict.outcome == Outcome::Skipped) {
        bail!("none of the drills can be run there: see `leasehold drill list`");
    }
    Ok(true)
}

async fn run_drills(
    chosen: &[&'static Scenario],
    stores: &[DrillStore],
    program: &WorkerProgram,
    args: &RunPlan,
) -> anyhow::Result<(Vec<Verdict>, Vec<(String, String)>)> {
    let (mut verdicts, mut failed) = (Vec::new(), Vec::new());
    let (mut number, all) = (0, chosen.len() * stores.len());
    for scenario in chosen {
        for store in stores {
            number += 1;
            let on = store.info().name;
            print_message(&format!("[{number}/{all}] {} on {on}: {}", scenario.name, scenario.about));
            let again = |error: &DrillError| print_message(&format!("[{number}/{all}] run again: {error}"));
            match scenario::run(scenario, store, program, args.options, again).await {
                Ok(verdict) => {
                    match &verdict.skipped {
                        Some(why) => print_message(&format!("[{number}/{all}] skipped: {why}")),
                        None => print_message(&format!(
                            "[{number}/{all}] {} after {:.1} s",
                            verdict.outcome.as_str(),
                            verdict.took.as_secs_f64()
                        )),
                    }
                    if let Some(folder) = args.history.as_ref().filter(|_| verdict.skipped.is_none()) {
                        let name = format!("{}-{}", verdict.drill, verdict.store);
                        if let Err(error) = write_history(folder, &name, &verdict.history) {
                            print_message(&format!("[{number}/{all}] {error:#}"));
                            failed.push((name, format!("{error:#}")));
                        }
                    }
                    verdicts.push(verdict);
                }
                // The store is not marked as drillable, so every other drill would be refused too.
                Err(error @ DrillError::NotDrillable(_)) => return Err(error.into()),
                Err(error) => {
                    print_message(&format!("[{number}/{all}] could not be run: {error}"));
                    failed.push((format!("{} on {on}", scenario.name), error.to_string()));
                }
            }
        }
    }
    Ok((verdicts, failed))
}

fn select_scenarios(names: &[String]) -> anyhow::Result<Vec<&'static Scenario>> {
    if names.iter().any(|name| name == "all") {
        return Ok(ALL.iter().collect());
    }
    names
        .iter()
        .map(|name| {
            scenario::find(name)
                .with_context(|| format!("there is no drill {name:?}; `leasehold drill list` shows them"))
        })
        .collect()
}

fn write_reports(verdicts: &[Verdict], failed: &[(String, String)], args: &RunPlan) -> anyhow::Result<()> {
    print_verdicts(verdicts, failed, args)?;
    let write = |path: &PathBuf, text: String| -> anyhow::Result<()> {
        atomic_file::replace(path, FileAccess::Umask, text.as_bytes())
            .with_context(|| format!("cannot write {}", path.display()))?;
        print_message(&format!("written: {}", path.display()));
        Ok(())
    };
    if let Some(path) = &args.html {
        write(path, page(verdicts, failed))?;
    }
    if let Some(path) = &args.json {
        write(path, serde_json::to_string_pretty(&document(verdicts, failed))?)?;
    }
    Ok(())
}

fn print_verdicts(verdicts: &[Verdict], failed: &[(String, String)], args: &RunPlan) -> anyhow::Result<()> {
    let mut out = crate::output::stdout();
    match args.output {
        DrillFormat::Json => {
            serde_json::to_writer_pretty(&mut out, &document(verdicts, failed))?;
            writeln!(out)?;
        }
        DrillFormat::Table => {
            let single = verdicts.len() == 1;
            for verdict in verdicts {
                if single || verdict.outcome == Outcome::Violation {
                    writeln!(out, "{}", details(verdict))?;
                }
            }
            write!(out, "{}", table(verdicts))?;
            writeln!(out, "{}", summary_line(verdicts, failed.len()))?;
        }
    }
    Ok(())
}

fn summary_line(verdicts: &[Verdict], failed: usize) -> String {
    let count = |outcome| verdicts.iter().filter(|verdict| verdict.outcome == outcome).count();
    // Control runs write without a fence on purpose, so their writes are not counted.
    let fenced = || verdicts.iter().filter(|verdict| !verdict.control);
    format!(
        "{} clean, {} violations, {} skipped, {failed} could not be run; {} grants, {} writes applied, {} stale ones refused",
        count(Outcome::Clean),
        count(Outcome::Violation),
        count(Outcome::Skipped),
        verdicts.iter().map(|verdict| verdict.measures.grants).sum::<u64>(),
        fenced().map(|verdict| verdict.measures.applied).sum::<u64>(),
        fenced().map(|verdict| verdict.measures.refused).sum::<u64>(),
    )
}
