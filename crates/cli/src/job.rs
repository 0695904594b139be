//! `leasehold job`.

use std::time::Duration;

use clap::{Args, Subcommand};
use leasehold_plane::{Cancelled, Job, JobSpec, JobState, Span, Work, view};
use serde_json::{Value, json};

use crate::args::{Output, Place};
use crate::plane::{PlaneStoreArg, print_json, print_table};
use crate::say::say;

/// `leasehold job`.
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
    command: JobCommand,
}

#[derive(Debug, Subcommand)]
enum JobCommand {
    /// Submit a job and print its id
    Submit(Box<SubmitArgs>),
    /// Show one job, with what happened to it
    Get {
        /// Its id
        id: String,
        /// How to print
        #[arg(short, long, value_enum, default_value_t = Output::Table)]
        output: Output,
    },
    /// List jobs, those most urgently due first
    List {
        /// Only in these states, e.g. running
        #[arg(long, value_name = "STATE")]
        state: Vec<JobState>,
        /// Only of this topic
        #[arg(long)]
        topic: Option<String>,
        /// At most this many
        #[arg(long, default_value_t = 100)]
        limit: usize,
        /// How to print
        #[arg(short, long, value_enum, default_value_t = Output::Table)]
        output: Output,
    },
    /// Call a job off; if a replica works on it, that replica is told
    Cancel {
        /// Its id
        id: String,
        /// Why
        #[arg(long, default_value = "cancelled from the command line")]
        reason: String,
    },
    /// Submit a job that was given up once more, as a new one
    Retry {
        /// Its id
        id: String,
    },
}

#[derive(Debug, Args)]
struct SubmitArgs {
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
    #[arg(long, value_name = "DURATION", value_parser = leasehold::policy::duration::parse)]
    deadline: Option<Duration>,
    /// One attempt may take this long
    #[arg(long, value_name = "DURATION", value_parser = leasehold::policy::duration::parse)]
    timeout: Option<Duration>,
    /// How often it may fail
    #[arg(long, default_value_t = 3)]
    attempts: u32,
    /// The pause before the second attempt; doubles
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = leasehold::policy::duration::parse)]
    backoff: Duration,
    /// The command and its arguments, run as they are, without a shell
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    argv: Vec<String>,
}

impl SubmitArgs {
    fn spec(&self) -> anyhow::Result<JobSpec> {
        let work = match &self.pull {
            Some(_) => Work::Pull,
            None => Work::Exec(self.argv.clone()),
        };
        let payload = match &self.payload {
            Some(text) => serde_json::from_str(text)
                .map_err(|error| anyhow::anyhow!("--payload is not JSON: {error}"))?,
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

/// Does what was asked.
pub(crate) fn main(place: &Place, args: JobArgs) -> anyhow::Result<bool> {
    let plane = &args.plane;
    match args.command {
        JobCommand::Submit(submit) => {
            let spec = submit.spec()?;
            let asked = plane.ask(place, |plane| async move { plane.submit(spec).await })?;
            let Some(submitted) = asked else { return Ok(false) };
            if submitted.repeated {
                say(&format!("it was submitted before and is {}", submitted.job.state));
            }
            println!("{}", submitted.job.id);
            Ok(true)
        }
        JobCommand::Get { id, output } => {
            let asked = plane.ask(place, |plane| async move {
                Ok((plane.job(&id).await?, plane.job_history(&id).await?))
            })?;
            let Some((job, history)) = asked else {
                return Ok(false);
            };
            let history: Vec<_> = history.iter().map(view::event).collect();
            if output == Output::Table {
                show(&job, &history)?;
            } else {
                let mut whole = view::job(&job);
                whole["history"] = json!(history);
                print_json(&whole)?;
            }
            Ok(true)
        }
        JobCommand::List {
            state,
            topic,
            limit,
            output,
        } => {
            let asked = plane.ask(place, |plane| async move {
                plane.jobs(&state, topic.as_deref(), limit).await
            })?;
            list(&asked.unwrap_or_default(), output).map(|()| true)
        }
        JobCommand::Cancel { id, reason } => {
            let asked = plane.ask(place, |plane| async move { plane.cancel(&id, &reason).await })?;
            match asked {
                Some(Cancelled::Now(job)) => say(&format!("{} is cancelled", job.id)),
                Some(Cancelled::Requested(job)) => {
                    say(&format!(
                        "{} is being worked on; its owner was told to stop",
                        job.id
                    ));
                }
                Some(Cancelled::Ended(job)) => {
                    say(&format!("{} had ended as {}", job.id, job.state));
                    return Ok(job.state == JobState::Cancelled);
                }
                _ => return Ok(false),
            }
            Ok(true)
        }
        JobCommand::Retry { id } => {
            let asked = plane.ask(place, |plane| async move { plane.replay(&id).await })?;
            let Some(submitted) = asked else { return Ok(false) };
            println!("{}", submitted.job.id);
            Ok(true)
        }
    }
}

fn list(jobs: &[Job], output: Output) -> anyhow::Result<()> {
    match output {
        Output::Table | Output::Wide => {
            let row = |job: &Job| {
                vec![
                    job.id.clone(),
                    job.state.to_string(),
                    job.spec.topic.clone(),
                    format!("{}", job.attempt),
                    job.owner.as_ref().map_or("-".into(), |owner| owner.who.clone()),
                    age(job.now, job.updated),
                ]
            };
            let heads = ["ID", "STATE", "TOPIC", "ATTEMPT", "OWNER", "SINCE"];
            print_table(&heads, jobs.iter().map(row).collect())
        }
        Output::Json => {
            let all: Vec<_> = jobs.iter().map(view::job).collect();
            print_json(&json!({"schema_version": 1, "jobs": all}))
        }
        Output::Jsonl => {
            jobs.iter().for_each(|job| println!("{}", view::job(job)));
            Ok(())
        }
        Output::Name => {
            jobs.iter().for_each(|job| println!("{}", job.id));
            Ok(())
        }
    }
}

fn show(job: &Job, history: &[Value]) -> anyhow::Result<()> {
    println!(
        "{}  {}  attempt {} of {}",
        job.id, job.state, job.attempt, job.spec.attempts
    );
    if let Some(dead) = &job.dead {
        println!("given up: {}", dead.reason);
    }
    let row = |event: &Value| {
        let text = |field: &str| event[field].as_str().unwrap_or("-").to_owned();
        vec![text("to"), text("by"), text("fence"), text("why")]
    };
    print_table(
        &["STATE", "BY", "FENCE", "WHY"],
        history.iter().map(row).collect(),
    )
}

/// How long ago, for people.
pub(crate) fn age(now: u64, then: u64) -> String {
    crate::lease::short(Duration::from_millis(now.saturating_sub(then)))
}
