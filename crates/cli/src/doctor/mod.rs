//! `leasehold doctor`: finds problems of a store, what they mean for locks, and what to do.
//!
//! The store's crate examines the store (`StoreUrl::examine`). `trial` runs a lock's whole life cycle on it.
//! `classes` compares what each class requires with what was found.

mod classes;
mod report;
mod trial;

use std::time::Duration;

use anyhow::Context;
use clap::Args;
use leasehold::store::{Finding, Severity};

use crate::args::ReportFormat;
use crate::config::Settings;
use crate::session::StoreSession;

/// Arguments of `leasehold doctor`.
#[derive(Debug, Args)]
#[command(after_help = doctor_help())]
pub(crate) struct DoctorArgs {
    /// How to print
    #[arg(short, long, value_enum, default_value_t = ReportFormat::Text)]
    pub(crate) output: ReportFormat,
    /// Findings with this code do not count for the exit code
    #[arg(long, value_name = "CODE")]
    pub(crate) accept: Vec<String>,
    /// Do not take a lock to see whether it works
    #[arg(long)]
    pub(crate) look_only: bool,
}

/// The help lists the subjects of every store's examination, registered ones too.
fn doctor_help() -> String {
    let mut text = "What is looked at:\n".to_owned();
    for store in leasehold::backends() {
        if !store.examines.is_empty() {
            text += &format!("  {:<7} {}\n", store.title, store.examines);
        }
    }
    text + DOCTOR_HELP
}

const DOCTOR_HELP: &str = "  all     a lock's whole life on a name of its own (not with --look-only), and for every class whether the store
          promises what it requires and is near enough for its times

Severity:
  breaks  as it is, a promise can be broken        risk  it can become so        note  worth knowing

Exit codes:
  0 nothing that breaks a promise      1 something does (see --accept)      2 could not look

Examples:
  leasehold doctor
  leasehold --store redis://127.0.0.1 doctor -o json
  leasehold --store redis://127.0.0.1 doctor --accept redis.persistence    # known, and fine here";

// An examination makes several calls, and one silent server must not use up the whole timeout.
const MIN_EXAMINE_TIMEOUT: Duration = Duration::from_secs(10);

/// Examines the store. Returns whether no finding breaks a promise.
pub(crate) fn main(settings: &Settings, args: &DoctorArgs) -> anyhow::Result<bool> {
    let url = settings.store_url()?;
    let book = settings.policy_book()?;
    let within = settings.timeout.value.max(MIN_EXAMINE_TIMEOUT);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut found = runtime.block_on(url.examine(within)).with_context(|| format!("cannot examine {url}"))?;
    drop(runtime);
    let fatal = found.findings.iter().any(|finding| finding.fatal);
    // The trial would create a missing store, but an examination must not create anything.
    let missing = url.exists() == Some(false);
    if !args.look_only && !fatal && !missing {
        match StoreSession::open_url(url.clone(), settings) {
            Ok(session) => {
                let advice = url.info().rights_advice;
                let failed = session.block_on(trial::run_trial(&session.store, advice, session.timeout));
                found.findings.extend(failed);
            }
            Err(error) => found.add_finding(Finding::breaks(
                "store.open",
                format!("the store cannot be opened: {error:#}"),
                "fix that error first, then run leasehold doctor again",
            )),
        }
    }
    classes::check_classes(&book, &mut found);
    found.sort_findings();
    report::print_report(&url, &found, args)?;
    let accepted = |finding: &&Finding| !args.accept.iter().any(|code| code == finding.code);
    let breaks = |finding: &Finding| finding.severity == Severity::Breaks;
    Ok(!found.findings.iter().filter(accepted).any(breaks))
}
