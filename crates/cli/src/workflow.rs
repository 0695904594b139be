//! `leasehold workflow`: define workflows, start their runs and follow them.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Subcommand};
use leasehold::InvalidInput;
use leasehold::clock::{BootClock, ClockExt};
use leasehold_plane::workflow::{RunState, StartRunRequest, StepStatus, parse};
use serde_json::Value;

use crate::args::ListFormat;
use crate::config::Settings;
use crate::message::print_message;
use crate::plane::PlaneStoreArg;
use crate::plane::access::{PlaneAccess, RequestError};
use crate::plane::print::{age_text, field_text, print_json, print_line, print_list, print_table};
use crate::plane::request::PlaneRequest;

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
            let workflow = Box::new(parse(&shown, &text)?);
            let (name, steps) = (workflow.name.clone(), workflow.steps.len());
            let Some(asked) = plane.request(settings, &PlaneRequest::Apply { workflow, text })? else {
                return Ok(false);
            };
            let version = &asked.view["version"];
            print_message(&format!("{name} has {steps} steps, version {version}"));
        }
        WorkflowCommand::Start { name, id, key, org, input } => {
            let input = match input {
                Some(text) => serde_json::from_str(&text)
                    .map_err(|error| anyhow::anyhow!("--input is not JSON: {error}"))?,
                None => Value::Null,
            };
            let start = StartRunRequest { workflow: name, id, org, input, key };
            let Some(asked) = plane.request(settings, &PlaneRequest::Start(Box::new(start)))? else {
                return Ok(false);
            };
            print_line(&field_text(&asked.view["id"]))?;
        }
        WorkflowCommand::Get { run, output } => {
            let Some(asked) = plane.request(settings, &PlaneRequest::Run { id: run })? else {
                return Ok(false);
            };
            if output == ListFormat::Table {
                print_run(&asked.view)?;
            } else {
                print_json(&asked.view)?;
            }
        }
        WorkflowCommand::Watch { run } => {
            let question = PlaneRequest::Run { id: run };
            // One open plane for all polls.
            let well = plane.with_access(settings, async |way| watch_run(&way, &question).await)?;
            return Ok(well.unwrap_or(false));
        }
        WorkflowCommand::List { limit, output } => {
            let Some(asked) = plane.request(settings, &PlaneRequest::Runs { limit })? else {
                return Ok(false);
            };
            let heads = ["ID", "WORKFLOW", "STATE", "STEPS", "SINCE"];
            print_list("runs", &asked.view, output, &heads, run_row)?;
        }
        WorkflowCommand::Cancel { run, reason } => {
            let Some(asked) = plane.request(settings, &PlaneRequest::CancelRun { id: run, reason })? else {
                return Ok(false);
            };
            print_message(&format!("{} will be cancelled", field_text(&asked.view["id"])));
        }
        WorkflowCommand::Rerun { run, from } => {
            let Some(asked) = plane.request(settings, &PlaneRequest::Rerun { id: run, from })? else {
                return Ok(false);
            };
            print_message(&format!("{} will run again", field_text(&asked.view["id"])));
        }
    }
    Ok(true)
}

/// Prints the events of a run until it ends. Returns whether it succeeded.
async fn watch_run(way: &PlaneAccess, question: &PlaneRequest) -> Result<bool, RequestError> {
    let mut last_version = 0;
    loop {
        let run = way.request(question).await?.view;
        for event in array_items(&run["timeline"]) {
            let version = event["version"].as_u64().unwrap_or_default();
            // Each poll returns the whole timeline; the version tells which events are new.
            if version > last_version {
                print_line(&event_line(event)).map_err(RequestError::Failed)?;
                last_version = version;
            }
        }
        let state: RunState = field_text(&run["state"])
            .parse()
            .map_err(|invalid: InvalidInput| RequestError::Failed(invalid.into()))?;
        if state.is_terminal() {
            return Ok(state == RunState::Succeeded);
        }
        BootClock.sleep(RUN_POLL_INTERVAL).await;
    }
}

fn array_items(list: &Value) -> &[Value] {
    list.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn event_line(event: &Value) -> String {
    let steps = event["steps"].as_object().map_or_else(String::new, |steps| {
        let moved = |(id, to): (&String, &Value)| format!("{id} {}", to["to"].as_str().unwrap_or("?"));
        steps.iter().map(moved).collect::<Vec<_>>().join(", ")
    });
    format!("{:<10} {steps}  ({})", field_text(&event["to"]), field_text(&event["why"]))
}

fn run_row(run: &Value) -> Vec<String> {
    let steps = run["steps"].as_object();
    let all = steps.map_or(0, serde_json::Map::len);
    let over = |step: &&Value| {
        // An unknown status of a newer plane counts as not ended.
        let status: Option<StepStatus> = serde_json::from_value(step["status"].clone()).ok();
        status.is_some_and(StepStatus::is_terminal)
    };
    let ended = steps.map_or(0, |steps| steps.values().filter(over).count());
    vec![
        field_text(&run["id"]),
        field_text(&run["workflow"]["name"]),
        field_text(&run["state"]),
        format!("{ended}/{all}"),
        age_text(run),
    ]
}

fn print_run(run: &Value) -> anyhow::Result<()> {
    print_line(&format!(
        "{}  {}  {}",
        field_text(&run["id"]),
        field_text(&run["workflow"]["name"]),
        field_text(&run["state"])
    ))?;
    // `steps` is a map without order; the workflow's list has the order of the file.
    let row = |step: &Value| {
        let id = field_text(&step["id"]);
        let at = &run["steps"][&id];
        let why = at["why"].as_str().unwrap_or_default().to_owned();
        let [status, attempt, job] = ["status", "attempt", "job"].map(|field| field_text(&at[field]));
        vec![id, status, attempt, job, why]
    };
    let rows = array_items(&run["workflow"]["steps"]).iter().map(row).collect();
    print_table(&["STEP", "STATUS", "ATTEMPT", "JOB", "WHY"], rows)?;
    print_line("")?;
    let mut timeline = array_items(&run["timeline"]).iter();
    timeline.try_for_each(|event| print_line(&event_line(event)))
}
