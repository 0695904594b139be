//! `leasehold approval`.

use clap::{Args, Subcommand};
use leasehold_plane::approval::Verdict;
use serde_json::Value;

use crate::args::{Output, Place};
use crate::plane::PlaneStoreArg;
use crate::plane::print::{age, print_list, text};
use crate::plane::question::Question;
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
        /// At most this many; a daemon lists 1000 at most
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
        limit: u32,
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
    let question = match args.command {
        ApprovalCommand::List { limit, output } => {
            let Some(asked) = plane.ask(place, &Question::Approvals { limit })? else {
                return Ok(false);
            };
            let heads = ["ID", "SNAPSHOT", "SINCE", "ABOUT"];
            return print_list("approvals", &asked.view, output, &heads, row).map(|()| true);
        }
        ApprovalCommand::Approve(decide) => Question::Approve {
            verdict: decide.verdict(),
            id: decide.id,
        },
        ApprovalCommand::Reject(decide) => Question::Reject {
            verdict: decide.verdict(),
            id: decide.id,
        },
        ApprovalCommand::Repair { decide, payload } => Question::Repair {
            payload: serde_json::from_str(&payload)
                .map_err(|error| anyhow::anyhow!("--payload is not JSON: {error}"))?,
            verdict: decide.verdict(),
            id: decide.id,
        },
    };
    let Some(decided) = plane.ask(place, &question)? else {
        return Ok(false);
    };
    let [id, state, snapshot] = ["id", "state", "snapshot"].map(|field| text(&decided.view[field]));
    say(&format!("{id} is {state}, its snapshot is {snapshot}"));
    Ok(true)
}

fn row(job: &Value) -> Vec<String> {
    let about: String = job["spec"]["payload"].to_string().chars().take(40).collect();
    vec![text(&job["id"]), text(&job["snapshot"]), age(job), about]
}
