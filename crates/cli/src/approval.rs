//! `leasehold approval`: list jobs that wait for a decision, and decide them.

use clap::{Args, Subcommand};
use leasehold_plane::approval::DecisionRequest;
use leasehold_plane::view::JobView;

use crate::args::ListFormat;
use crate::config::Settings;
use crate::message::print_message;
use crate::plane::PlaneStoreArg;
use crate::plane::client::Decision;
use crate::plane::print::{age_text, print_id, print_list};

/// Arguments of `leasehold approval`.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes: 0 decided, 1 refused (the code says why: already_approved, already_rejected, stale_snapshot, terminal,
not_actionable, self_approval, approval_retryable_lock), 2 error.

Examples:
  leasehold approval list
  leasehold approval list -o name                  each as JOB@SNAPSHOT
  leasehold approval approve JOB@0a1b2c3d4e5f6071 --by ann --reason 'checked with finance'
  leasehold approval repair JOB@0a1b2c3d4e5f6071 --by ann --reason 'wrong region' --payload '{\"region\": \"eu\"}'")]
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
        #[arg(short, long, value_enum, default_value_t = ListFormat::Table)]
        output: ListFormat,
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
    /// The job and the snapshot that was looked at, as `list -o name` prints them
    #[arg(value_name = "JOB@SNAPSHOT")]
    id: String,
    /// The name of the person who decides
    #[arg(long, env = "USER")]
    by: String,
    /// The reason for the decision
    #[arg(long)]
    reason: String,
    /// The snapshot that was looked at, if it is not part of the first argument
    #[arg(long)]
    snapshot: Option<String>,
}

impl DecideArgs {
    /// The job's id and the request.
    fn into_request(self) -> anyhow::Result<(String, DecisionRequest)> {
        let Self { id, by, reason, snapshot } = self;
        let (id, snapshot) = match (snapshot, id.rsplit_once('@')) {
            (Some(snapshot), _) => (id, snapshot),
            // At the last one: an id may contain `@`, a snapshot does not.
            (None, Some((id, snapshot))) => (id.to_owned(), snapshot.to_owned()),
            (None, None) => anyhow::bail!(
                "a decision names the snapshot that was looked at, and {id:?} has none\n\
                 write JOB@SNAPSHOT, as `leasehold approval list -o name` prints it, or add --snapshot"
            ),
        };
        Ok((id, DecisionRequest { by, reason, snapshot }))
    }
}

pub(crate) fn main(settings: &Settings, args: ApprovalArgs) -> anyhow::Result<bool> {
    let plane = &args.plane;
    let (decision, decide) = match args.command {
        ApprovalCommand::List { limit, output } => {
            return plane.run(settings, async |plane| {
                let jobs = plane.approvals(limit).await?;
                if output == ListFormat::Name {
                    // With the snapshot, because a decision must name the one that was looked at.
                    jobs.iter().try_for_each(|job| print_id(&format!("{}@{}", job.id, job.snapshot)))?;
                    return Ok(true);
                }
                print_list("approvals", &jobs, output, &["ID", "SNAPSHOT", "SINCE", "ABOUT"], approval_row)?;
                Ok(true)
            });
        }
        ApprovalCommand::Approve(decide) => (Decision::Approve, decide),
        ApprovalCommand::Reject(decide) => (Decision::Reject, decide),
        ApprovalCommand::Repair { decide, payload } => {
            let payload = serde_json::from_str(&payload)
                .map_err(|error| anyhow::anyhow!("--payload is not JSON: {error}"))?;
            (Decision::Repair(payload), decide)
        }
    };
    let (id, request) = decide.into_request()?;
    plane.run(settings, async |plane| {
        let job = plane.decide(&id, &decision, &request).await?;
        print_message(&format!("{} is {}, its snapshot is {}", job.id, job.state, job.snapshot));
        Ok(true)
    })
}

fn approval_row(view: &JobView) -> Vec<String> {
    // Cut, so that a row fits one line.
    let about: String = view.job.spec.payload.to_string().chars().take(40).collect();
    vec![view.id.clone(), view.snapshot.clone(), age_text(view.now_ms, view.updated_ms), about]
}
