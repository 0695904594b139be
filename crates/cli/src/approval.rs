//! `leasehold approval`.

use clap::{Args, Subcommand};
use leasehold_plane::approval::Verdict;
use leasehold_plane::{Job, view};
use serde_json::json;

use crate::args::{Output, Place};
use crate::job::age;
use crate::plane::{PlaneStoreArg, print_json, print_table};
use crate::say::say;

/// `leasehold approval`.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes: 0 decided, 1 refused (the code says why: already_approved, already_rejected, stale_snapshot, terminal,
not_actionable, approval_retryable_lock), 2 error.

Examples:
  leasehold approval list
  leasehold approval approve JOB --by ann --reason 'checked with finance' --snapshot 0a1b2c3d4e5f6071
  leasehold approval repair JOB --by ann --reason 'wrong region' --payload '{\"region\": \"eu\"}'")]
pub(crate) struct ApprovalArgs {
    #[command(flatten)]
    plane: PlaneStoreArg,
    #[command(subcommand)]
    command: ApprovalCommand,
}

#[derive(Debug, Subcommand)]
enum ApprovalCommand {
    /// List the jobs that wait for a person
    List {
        /// At most this many
        #[arg(long, default_value_t = 100)]
        limit: usize,
        /// How to print
        #[arg(short, long, value_enum, default_value_t = Output::Table)]
        output: Output,
    },
    /// Let a job run
    Approve(DecideArgs),
    /// Do not let it run
    Reject(DecideArgs),
    /// Change what a job would do, before it is approved
    Repair {
        #[command(flatten)]
        decide: DecideArgs,
        /// What the work should know instead, as JSON
        #[arg(long, value_name = "JSON")]
        payload: String,
    },
}

#[derive(Debug, Args)]
struct DecideArgs {
    /// The job's id
    id: String,
    /// Who decides
    #[arg(long, env = "USER")]
    by: String,
    /// Why
    #[arg(long)]
    reason: String,
    /// Only if the job is as it was looked at; `list` shows the snapshot
    #[arg(long)]
    snapshot: Option<String>,
}

impl DecideArgs {
    fn verdict(&self) -> Verdict {
        Verdict {
            by: self.by.clone(),
            reason: self.reason.clone(),
            snapshot: self.snapshot.clone(),
        }
    }
}

/// Does what was asked.
pub(crate) fn main(place: &Place, args: ApprovalArgs) -> anyhow::Result<bool> {
    let plane = &args.plane;
    let decided = match args.command {
        ApprovalCommand::List { limit, output } => {
            let asked = plane.ask(place, |plane| async move { plane.approvals(limit).await })?;
            return list(&asked.unwrap_or_default(), output).map(|()| true);
        }
        ApprovalCommand::Approve(decide) => plane.ask(place, |plane| async move {
            plane.approve(&decide.id, &decide.verdict()).await
        })?,
        ApprovalCommand::Reject(decide) => plane.ask(place, |plane| async move {
            plane.reject(&decide.id, &decide.verdict()).await
        })?,
        ApprovalCommand::Repair { decide, payload } => {
            let payload = serde_json::from_str(&payload)
                .map_err(|error| anyhow::anyhow!("--payload is not JSON: {error}"))?;
            plane.ask(place, |plane| async move {
                plane.repair(&decide.id, payload, &decide.verdict()).await
            })?
        }
    };
    let Some(job) = decided else { return Ok(false) };
    say(&format!(
        "{} is {}, its snapshot is {}",
        job.id,
        job.state,
        job.snapshot()
    ));
    Ok(true)
}

fn list(jobs: &[Job], output: Output) -> anyhow::Result<()> {
    match output {
        Output::Table | Output::Wide => {
            let row = |job: &Job| {
                let what: String = job.spec.payload.to_string().chars().take(40).collect();
                vec![job.id.clone(), job.snapshot(), age(job.now, job.updated), what]
            };
            print_table(
                &["ID", "SNAPSHOT", "SINCE", "ABOUT"],
                jobs.iter().map(row).collect(),
            )
        }
        Output::Name => {
            jobs.iter().for_each(|job| println!("{}", job.id));
            Ok(())
        }
        _ => {
            let all: Vec<_> = jobs.iter().map(view::job).collect();
            print_json(&json!({"schema_version": 1, "approvals": all}))
        }
    }
}
