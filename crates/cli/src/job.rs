//! `leasehold job`: submit, show, list, cancel and retry jobs of the control plane.

use std::time::Duration;

use anyhow::{anyhow, bail};
use clap::{Args, Subcommand};
use leasehold_plane::view::{EventView, JobView};
use leasehold_plane::{JobSpec, JobState, Span, Work};
use serde_json::Value;

use crate::args::ListFormat;
use crate::config::Settings;
use crate::message::print_message;
use crate::plane::PlaneStoreArg;
use crate::plane::client::JobHistory;
use crate::plane::print::{
    age_text, event_field, or_dash, print_dropped_events, print_id, print_json, print_line, print_list,
    print_table,
};

/// Arguments of `leasehold job`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  leasehold job submit -- ./report.sh --month 11
  leasehold job submit --key nightly-2026-11-16 --attempts 5 -- ./nightly
  leasehold job submit --pull render --payload '{\"scene\": 7}'
  leasehold job list --state running
  leasehold job cancel 4f1c… --reason 'wrong month'")]
pub(crate) struct JobArgs {
    #[command(flatten)]
    plane: PlaneStoreArg,
    #[command(subcommand)]
    pub(crate) command: JobCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum JobCommand {
    /// Submit a job and print its id
    // Boxed: much larger than the other variants.
    Submit(Box<SubmitArgs>),
    /// Show one job, with what happened to it
    Get {
        /// The id of the job
        id: String,
        /// How to print
        #[arg(short, long, value_enum, default_value_t = ListFormat::Table)]
        output: ListFormat,
    },
    /// List jobs, those most urgently due first
    List {
        /// Only in these states, e.g. running
        #[arg(long, value_name = "STATE")]
        state: Vec<JobState>,
        /// Only of this topic
        #[arg(long)]
        topic: Option<String>,
        /// At most this many; a daemon lists 1000 at most
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
        limit: u32,
        /// How to print
        #[arg(short, long, value_enum, default_value_t = ListFormat::Table)]
        output: ListFormat,
    },
    /// Cancel a job; if a replica works on it, that replica is asked to stop
    Cancel {
        /// The id of the job
        id: String,
        /// The reason, for the history
        #[arg(long, default_value = "cancelled from the command line")]
        reason: String,
    },
    /// Submit a job that was given up once more, as a new one
    Retry {
        /// The id of the job
        id: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct SubmitArgs {
    /// Its id; made up if not given
    #[arg(long)]
    id: Option<String>,
    /// Submitting again with the same key is the same job
    #[arg(long)]
    key: Option<String>,
    /// For workers that pull this topic, instead of a command
    #[arg(long, value_name = "TOPIC", conflicts_with = "argv")]
    pull: Option<String>,
    /// What happens when the lock store fails
    #[arg(long, default_value = "scheduler")]
    class: String,
    /// Whose it is
    #[arg(long, default_value = "default")]
    tenant: String,
    /// What the work should know, as JSON
    #[arg(long, value_name = "JSON")]
    payload: Option<String>,
    /// Needs this for itself alone; may repeat
    #[arg(long, value_name = "NAME")]
    resource: Vec<String>,
    /// A person must approve it first
    #[arg(long)]
    requires_approval: bool,
    /// It must have ended within this time
    #[arg(long, value_name = "DURATION", value_parser = crate::span::parse)]
    deadline: Option<Duration>,
    /// One attempt may take this long
    #[arg(long, value_name = "DURATION", value_parser = crate::span::parse)]
    timeout: Option<Duration>,
    /// How often it may fail
    #[arg(long, default_value_t = 3)]
    attempts: u32,
    /// The pause before the second attempt; doubles
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = crate::span::parse)]
    backoff: Duration,
    /// The command and its arguments, run as they are, without a shell
    // `String` and not `OsString`: jobs are stored as JSON.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    pub(crate) argv: Vec<String>,
}

impl SubmitArgs {
    pub(crate) fn to_spec(&self) -> anyhow::Result<JobSpec> {
        let work = match &self.pull {
            Some(_) => Work::Pull,
            None if self.argv.first().is_none_or(String::is_empty) => bail!(
                "there is no command to run\n\
                 write it after `--`, e.g. `leasehold job submit -- ./report.sh --month 11`, or name a topic that workers pull with --pull TOPIC"
            ),
            None => Work::Exec(self.argv.clone()),
        };
        let payload = match &self.payload {
            Some(text) => {
                serde_json::from_str(text).map_err(|error| anyhow!("--payload is not JSON: {error}"))?
            }
            None => Value::Null,
        };
        let mut spec = JobSpec::new(work);
        spec.id.clone_from(&self.id);
        spec.key.clone_from(&self.key);
        if let Some(topic) = &self.pull {
            spec.topic.clone_from(topic);
        }
        spec.class.clone_from(&self.class);
        spec.tenant.clone_from(&self.tenant);
        spec.payload = payload;
        spec.resources.clone_from(&self.resource);
        spec.requires_approval = self.requires_approval;
        spec.deadline = self.deadline.map(Span);
        spec.timeout = self.timeout.map(Span);
        spec.attempts = self.attempts;
        spec.backoff = Span(self.backoff);
        Ok(spec)
    }
}

pub(crate) fn main(settings: &Settings, args: JobArgs) -> anyhow::Result<bool> {
    let plane = &args.plane;
    match args.command {
        JobCommand::Submit(submit) => {
            let spec = submit.to_spec()?;
            plane.run(settings, async |plane| {
                let (job, repeated) = plane.submit(spec).await?;
                // The id is printed in both cases, so a script that submits again needs no special case.
                if repeated {
                    print_message(&format!("it was submitted before and is {}", job.state));
                }
                print_id(&job.id)?;
                Ok(true)
            })
        }
        JobCommand::Get { id, output } => plane.run(settings, async |plane| {
            let job = plane.job(&id).await?;
            if output == ListFormat::Table { print_job(&job) } else { print_json(&job) }?;
            Ok(true)
        }),
        JobCommand::List { state, topic, limit, output } => plane.run(settings, async |plane| {
            let jobs = plane.jobs(&state, topic.as_deref(), limit).await?;
            let heads = ["ID", "STATE", "TOPIC", "ATTEMPT", "OWNER", "SINCE"];
            print_list("jobs", &jobs, output, &heads, job_row)?;
            Ok(true)
        }),
        JobCommand::Cancel { id, reason } => plane.run(settings, async |plane| {
            let (job, requested) = plane.cancel(&id, reason).await?;
            print_message(&if requested {
                format!("{} is being worked on; its owner was asked to stop", job.id)
            } else {
                format!("{} is cancelled", job.id)
            });
            Ok(true)
        }),
        JobCommand::Retry { id } => plane.run(settings, async |plane| {
            print_id(&plane.retry(&id).await?.id)?;
            Ok(true)
        }),
    }
}

fn job_row(view: &JobView) -> Vec<String> {
    let job = &view.job;
    vec![
        view.id.clone(),
        view.state.to_string(),
        job.spec.topic.clone(),
        job.attempt.to_string(),
        or_dash(job.owner.as_ref().map(|owner| owner.who.as_str())),
        age_text(view.now_ms, view.updated_ms),
    ]
}

fn print_job(JobHistory { job: view, history }: &JobHistory) -> anyhow::Result<()> {
    let job = &view.job;
    print_line(&format!("{}  {}  attempt {} of {}", view.id, view.state, job.attempt, job.spec.attempts))?;
    if let Some(dead) = &job.dead {
        print_line(&format!("given up: {}", dead.reason))?;
    }
    let row =
        |event: &EventView| ["to", "by", "fence", "why"].map(|field| event_field(event, field)).to_vec();
    print_table(&["STATE", "BY", "FENCE", "WHY"], history.iter().map(row).collect())?;
    print_dropped_events(history)
}
