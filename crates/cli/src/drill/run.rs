//! `leasehold drill run`.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use leasehold_drill::fleet::{Error, Given, Program, StoreKind};
use leasehold_drill::report::{details, document, page, table};
use leasehold_drill::scenario::{self, ALL, Outcome, Scenario, Verdict};

use super::args::{Kind, Output, RunArgs};
use super::{interrupted, runtime};
use crate::args::Place;
use crate::say::say;

/// How long the leases of a drill that was broken off may take to run out: longer than its classes' TTL.
const SETTLE: Duration = Duration::from_secs(8);

/// Runs the drills one after the other.
pub(crate) fn main(place: &Place, args: &RunArgs) -> anyhow::Result<bool> {
    let chosen = choose(&args.names)?;
    if let Some(folder) = &args.history {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    let runtime = runtime()?;
    let program = Program::this()?;
    let url = place.store.as_deref().filter(|url| !url.is_empty());
    let given = url.map(|url| runtime.block_on(Given::open(url))).transpose()?;
    let stores = match (&given, args.on) {
        (Some(_), Some(_)) => {
            bail!("--on chooses a throw-away store and --store names one: leave one of them out")
        }
        (Some(given), None) => vec![given.kind()],
        (None, Some(Kind::Sqlite)) => vec![StoreKind::Sqlite],
        (None, Some(Kind::Redis)) => vec![StoreKind::Redis],
        (None, None) => vec![StoreKind::Sqlite, StoreKind::Redis],
    };
    let work = async {
        tokio::select! {
            biased;
            signal = interrupted() => {
                signal.context("cannot listen for signals")?;
                Ok(None)
            }
            ran = run(&chosen, &stores, given.as_ref(), &program, args) => ran.map(Some),
        }
    };
    let Some((verdicts, failed)) = runtime.block_on(work)? else {
        // Dropping the drill has ended its processes and servers; what is left are leases in a store that is not ours.
        let clear = given
            .as_ref()
            .is_none_or(|given| runtime.block_on(given.settled(SETTLE)));
        bail!(
            "interrupted: every process, server and proxy of the drill is gone{}",
            if clear {
                ""
            } else {
                "; its last leases run out by themselves within seconds"
            }
        );
    };
    tell(&verdicts, args)?;
    if verdicts
        .iter()
        .any(|verdict| verdict.outcome == Outcome::Violation)
    {
        return Ok(false);
    }
    if failed > 0 {
        bail!("{failed} of the drills could not be run");
    }
    if verdicts.iter().all(|verdict| verdict.outcome == Outcome::Skipped) {
        bail!("none of the drills can be run there: see `leasehold drill list`");
    }
    Ok(true)
}

async fn run(
    chosen: &[&'static Scenario],
    stores: &[StoreKind],
    given: Option<&Given>,
    program: &Program,
    args: &RunArgs,
) -> anyhow::Result<(Vec<Verdict>, usize)> {
    let (mut verdicts, mut failed) = (Vec::new(), 0);
    for scenario in chosen {
        for store in stores {
            say(&format!(
                "{} on {}: {}",
                scenario.name,
                store.word(),
                scenario.about
            ));
            match scenario::run(scenario, *store, given, program).await {
                Ok(verdict) => {
                    say(&format!(
                        "{} on {}: {} after {:.1} s",
                        verdict.drill,
                        verdict.store,
                        verdict.outcome.word(),
                        verdict.took.as_secs_f64()
                    ));
                    if let Some(folder) = &args.history {
                        keep(folder, &verdict)?;
                    }
                    verdicts.push(verdict);
                }
                Err(error @ Error::NotDrillable(_)) => return Err(error.into()),
                Err(error) => {
                    failed += 1;
                    say(&format!(
                        "{} on {}: could not be run: {error}",
                        scenario.name,
                        store.word()
                    ));
                }
            }
        }
    }
    Ok((verdicts, failed))
}

fn choose(names: &[String]) -> anyhow::Result<Vec<&'static Scenario>> {
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

fn keep(folder: &Path, verdict: &Verdict) -> anyhow::Result<()> {
    if verdict.outcome == Outcome::Skipped {
        return Ok(());
    }
    let path = folder.join(format!("{}-{}.jsonl", verdict.drill, verdict.store));
    let write = || -> std::io::Result<()> {
        let mut out = std::io::BufWriter::new(std::fs::File::create(&path)?);
        for record in &verdict.history.records {
            serde_json::to_writer(&mut out, record)?;
            out.write_all(b"\n")?;
        }
        out.flush()
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

fn tell(verdicts: &[Verdict], args: &RunArgs) -> anyhow::Result<()> {
    if let Some(path) = &args.html {
        std::fs::write(path, page(verdicts)).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let mut out = std::io::stdout().lock();
    match args.output {
        Output::Json => {
            serde_json::to_writer_pretty(&mut out, &document(verdicts))?;
            writeln!(out)?;
        }
        Output::Table => {
            let single = verdicts.len() == 1;
            for verdict in verdicts {
                if single || verdict.outcome == Outcome::Violation {
                    writeln!(out, "{}", details(verdict))?;
                }
            }
            write!(out, "{}", table(verdicts))?;
        }
    }
    Ok(())
}
