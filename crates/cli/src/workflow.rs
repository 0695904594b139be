//! `leasehold workflow`: define workflows, start their runs and follow them.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Subcommand};
use leasehold::clock::{BootClock, ClockExt};
use leasehold_plane::view::{EventView, RunView};
use leasehold_plane::workflow::{RunState, StartRunRequest, StepRun, parse};
use serde_json::Value;

use crate::args::ListFormat;
use crate::config::Settings;
use crate::message::print_message;
use crate::plane::PlaneStoreArg;
use crate::plane::client::{PlaneClient, PlaneResult, RunTimeline};
use crate::plane::print::{
    age_text, event_field, or_dash, print_dropped_events, print_id, print_json, print_line, print_list,
    print_table,
};

/// Between two reads of a run by `watch`.
const RUN_POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Arguments of `leasehold workflow`.
#[derive(Debug, Args)]
#[command(after_help = "\
A workflow file:
  name = \"deploy\"
  class = \"workflow-critical\"        # waits while the lock store is down; workflow goes on
  [[step]]
  id = \"build\"
  exec = [\"make\", \"build\"]
  [[step]]
  id = \"sign-off\"
  needs = [\"build\"]
  approval = \"May it go live?\"
  [[step]]
  id = \"ship\"
  needs = [\"sign-off\"]
  pull = \"shipping\"                  # workers that pull this topic; also: handler, delay = \"10m\"

Examples:
  leasehold workflow apply deploy.toml
  leasehold workflow watch \"$(leasehold workflow start deploy)\"
  leasehold workflow rerun RUN --from ship")]
pub(crate) struct WorkflowArgs {
    #[command(flatten)]
    plane: PlaneStoreArg,
    #[command(subcommand)]
    command: WorkflowCommand,
}

#[derive(Debug, Subcommand)]
enum WorkflowCommand {
    /// Check a workflow file and put it there; runs under way keep the version they began with
    Apply {
        /// The workflow file to read
        file: PathBuf,
    },
    /// Start a run and print its id
    Start {
        /// The workflow's name
        name: String,
        /// Its id; made up if not given
        #[arg(long)]
        id: Option<String>,
        /// Starting again with the same key is the same run
        #[arg(long)]
        key: Option<String>,
        /// Whose it is
        #[arg(long, default_value = "default")]
        org: String,
        /// What its jobs should know, as JSON
        #[arg(long, value_name = "JSON")]
        input: Option<String>,
    },
    /// Show one run with its steps and timeline
    Get {
        /// The id of the run
        run: String,
        /// How to print
        #[arg(short, long, value_enum, default_value_t = ListFormat::Table)]
        output: ListFormat,
    },
    /// Follow a run until it has ended: exit code 0 if well, 1 if not
    Watch {
        /// The id of the run
        run: String,
    },
    /// List the latest runs
    List {
        /// At most this many; a daemon lists 1000 at most
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
        limit: u32,
        /// How to print
        #[arg(short, long, value_enum, default_value_t = ListFormat::Table)]
        output: ListFormat,
    },
    /// Call a run off
    Cancel {
        /// The id of the run
        run: String,
        /// The reason, for the history
        #[arg(long, default_value = "cancelled from the command line")]
        reason: String,
    },
    /// Run an ended run again, from a step on
    Rerun {
        /// The id of the run
        run: String,
        /// The first step to do again
        #[arg(long, value_name = "STEP")]
        from: String,
    },
}

pub(crate) fn main(settings: &Settings, args: WorkflowArgs) -> anyhow::Result<bool> {
    let plane = &args.plane;
    match args.command {
        WorkflowCommand::Apply { file } => {
            let shown = file.display().to_string();
            let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {shown}"))?;
            // Checked before it is sent, so that errors name the local file and line.
            let workflow = parse(&shown, &text)?;
            plane.run(settings, async |plane| {
                let applied = plane.apply(&workflow, text).await?;
                let (name, steps, version) = (&workflow.name, workflow.steps.len(), applied.version);
                print_message(&format!("{name} has {steps} steps, version {version}"));
                Ok(true)
            })
        }
        WorkflowCommand::Start { name, id, key, org, input } => {
            let input = match input {
                Some(text) => serde_json::from_str(&text)
                    .map_err(|error| anyhow::anyhow!("--input is not JSON: {error}"))?,
                None => Value::Null,
            };
            let start = StartRunRequest { workflow: name, id, org, input, key };
            plane.run(settings, async |plane| {
                print_id(&plane.start(start).await?.id)?;
                Ok(true)
            })
        }
        WorkflowCommand::Get { run, output } => plane.run(settings, async |plane| {
            let run = plane.run(&run).await?;
            if output == ListFormat::Table { print_run(&run) } else { print_json(&run) }?;
            Ok(true)
        }),
        // One open plane for all polls.
        WorkflowCommand::Watch { run } => plane.run(settings, async |plane| watch_run(plane, &run).await),
        WorkflowCommand::List { limit, output } => plane.run(settings, async |plane| {
            let runs = plane.runs(limit).await?;
            let heads = ["ID", "WORKFLOW", "STATE", "STEPS", "SINCE"];
            print_list("runs", &runs, output, &heads, run_row)?;
            Ok(true)
        }),
        WorkflowCommand::Cancel { run, reason } => plane.run(settings, async |plane| {
            let run = plane.cancel_run(&run, reason).await?;
            print_message(&format!("{} will be cancelled", run.id));
            Ok(true)
        }),
        WorkflowCommand::Rerun { run, from } => plane.run(settings, async |plane| {
            let run = plane.rerun(&run, from).await?;
            print_message(&format!("{} will run again", run.id));
            Ok(true)
        }),
    }
}

/// Prints the events of a run until it ends. Returns whether it succeeded.
async fn watch_run(plane: &PlaneClient, id: &str) -> PlaneResult<bool> {
    let mut last_version = 0;
    loop {
        let RunTimeline { run, timeline } = plane.run(id).await?;
        // Each poll returns the whole timeline; the version tells which events are new.
        for event in timeline.iter().filter(|event| event.version > last_version) {
            print_line(&event_line(event))?;
        }
        last_version = timeline.last().map_or(last_version, |event| event.version);
        if run.state.is_terminal() {
            return Ok(run.state == RunState::Succeeded);
        }
        BootClock.sleep(RUN_POLL_INTERVAL).await;
    }
}

fn event_line(event: &EventView) -> String {
    let steps = event.body.get("steps").and_then(Value::as_object).map_or_else(String::new, |steps| {
        let moved = |(id, to): (&String, &Value)| format!("{id} {}", to["to"].as_str().unwrap_or("?"));
        steps.iter().map(moved).collect::<Vec<_>>().join(", ")
    });
    format!("{:<10} {steps}  ({})", event_field(event, "to"), event_field(event, "why"))
}

fn run_row(view: &RunView) -> Vec<String> {
    let steps = &view.run.steps;
    let ended = steps.values().filter(|step| step.status.is_terminal()).count();
    vec![
        view.id.clone(),
        view.run.workflow.name.clone(),
        view.state.to_string(),
        format!("{ended}/{}", steps.len()),
        age_text(view.now_ms, view.updated_ms),
    ]
}

fn print_run(RunTimeline { run: view, timeline }: &RunTimeline) -> anyhow::Result<()> {
    let run = &view.run;
    print_line(&format!("{}  {}  {}", view.id, run.workflow.name, view.state))?;
    // `steps` of a run is a map without order; the workflow's list has the order of the file.
    let rows = run.workflow.steps.iter().map(|step| {
        let at = run.steps.get(&step.id);
        let of = |field: fn(&StepRun) -> String| at.map_or_else(|| "-".to_owned(), field);
        vec![
            step.id.clone(),
            of(|at| at.status.to_string()),
            of(|at| at.attempt.to_string()),
            of(|at| or_dash(at.job.as_deref())),
            at.and_then(|at| at.why.clone()).unwrap_or_default(),
        ]
    });
    print_table(&["STEP", "STATUS", "ATTEMPT", "JOB", "WHY"], rows.collect())?;
    print_line("")?;
    timeline.iter().try_for_each(|event| print_line(&event_line(event)))?;
    print_dropped_events(timeline)
}
