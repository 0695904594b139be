//! `leasehold doctor`: what is wrong with a store, what it means for locks, and what to do.
//!
//! The store's crate examines the store (`StoreUrl::examine`); `trial` goes through a lock's whole life on it; `classes`
//! compares what each class demands with what was found.

mod classes;
mod report;
mod trial;

use std::time::Duration;

use anyhow::Context;
use clap::Args;
use leasehold::StoreUrl;
use leasehold::store::{Finding, Severity};

use crate::args::{Form, Place};
use crate::config::Config;
use crate::desk::Desk;

/// `leasehold doctor`.
#[derive(Debug, Args)]
#[command(after_help = "\
What is looked at:
  Redis   eviction, persistence, replicas and fail-over, the server's clock, the user's rights, version, memory, clients
  SQLite  what the file is on, rights, free space, journal mode, damage, schema, the boot clock
  both    a lock's whole life on a name of its own (not with --look-only), and for every class whether the store
          promises what it requires and is near enough for its times

Severity:
  breaks  as it is, a promise can be broken        risk  it can become so        note  worth knowing

Exit codes:
  0 nothing that breaks a promise      1 something does (see --accept)      2 could not look

Examples:
  leasehold doctor
  leasehold --store redis://127.0.0.1 doctor -o json
  leasehold --store redis://127.0.0.1 doctor --accept redis.persistence    # known, and fine here")]
pub(crate) struct DoctorArgs {
    /// How to print
    #[arg(short, long, value_enum, default_value_t = Form::Text)]
    pub(crate) output: Form,
    /// Findings with this code do not count for the exit code
    #[arg(long, value_name = "CODE")]
    pub(crate) accept: Vec<String>,
    /// Do not take a lock to see whether it works
    #[arg(long)]
    pub(crate) look_only: bool,
}

/// Longer than the sum of what it does, so that one silent server is told as such.
const PATIENCE: Duration = Duration::from_secs(10);

/// Examines; answers whether nothing breaks a promise.
pub(crate) fn main(place: &Place, args: &DoctorArgs) -> anyhow::Result<bool> {
    let url = place.store()?;
    let book = place.book()?;
    let within = Config::load(place)?.timeout.value.max(PATIENCE);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let mut found = runtime
        .block_on(url.examine(within))
        .with_context(|| format!("cannot examine {url}"))?;
    drop(runtime);
    let hopeless = found
        .findings
        .iter()
        .any(|finding| HOPELESS.contains(&finding.code));
    // A file that is not there is not made by a look at it.
    let missing = matches!(&url, StoreUrl::Sqlite { path, .. } if !path.exists());
    if !args.look_only && !hopeless && !missing && url != StoreUrl::Memory {
        match Desk::of(url.clone(), place) {
            Ok(desk) => found
                .findings
                .extend(desk.wait(trial::trial(&desk.store, desk.within))),
            Err(error) => found.found(Finding::breaks(
                "store.open",
                format!("the store cannot be opened: {error:#}"),
                "mend that first",
            )),
        }
    }
    classes::judge(&book, &mut found);
    found.sort();
    report::print(&url, &found, args)?;
    let accepted = |finding: &&Finding| !args.accept.iter().any(|code| code == finding.code);
    let breaks = |finding: &Finding| finding.severity == Severity::Breaks;
    Ok(!found.findings.iter().filter(accepted).any(breaks))
}

/// With these, no lock can be had: trying would only say it a second time.
const HOPELESS: [&str; 9] = [
    "redis.access",
    "redis.replica",
    "redis.sentinel",
    "redis.loading",
    "redis.wait-replicas",
    "sqlite.file",
    "sqlite.foreign",
    "sqlite.schema",
    "sqlite.unreadable",
];
