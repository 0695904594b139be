//! `leasehold workflow`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Subcommand};
use leasehold::Invalid;
use leasehold::clock::{BootClock, ClockExt};
use leasehold_plane::workflow::{RunState, StartRun, StepStatus, parse};
use serde_json::Value;

use crate::args::{Output, Place};
use crate::plane::PlaneStoreArg;
use crate::plane::print::{age, print_json, print_line, print_list, print_table, text};
use crate::plane::question::Question;
use crate::plane::way::{No, Way};
use crate::say::say;

/// How often `watch` looks.
const LOOK: Duration = Duration::from_millis(250);

/// `leasehold workflow`.
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
        /// The file
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
        /// Its id
        run: String,
        /// How to print
        #[arg(short, long, value_enum, default_value_t = Output::Table)]
        output: Output,
    },
    /// Follow a run until it has ended: exit code 0 if well, 1 if not
    Watch {
        /// Its id
        run: String,
    },
    /// List runs
    List {
        /// At most this many; a daemon lists 1000 at most
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
        limit: u32,
        /// How to print
        #[arg(short, long, value_enum, default_value_t = Output::Table)]
        output: Output,
    },
    /// Call a run off
    Cancel {
        /// Its id
        run: String,
        /// Why
        #[arg(long, default_value = "cancelled from the command line")]
        reason: String,
    },
    /// Run an ended run again, from a step on
    Rerun {
        /// Its id
        run: String,
        /// The first step to do again
        #[arg(long, value_name = "STEP")]
        from: String,
    },
}

/// Does what was asked.
pub(crate) fn main(place: &Place, args: WorkflowArgs) -> anyhow::Result<bool> {
    let plane = &args.plane;
    match args.command {
        WorkflowCommand::Apply { file } => {
            let shown = file.display().to_string();
            let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {shown}"))?;
            let workflow = Box::new(parse(&shown, &text)?);
            let (name, steps) = (workflow.name.clone(), workflow.steps.len());
            let Some(asked) = plane.ask(place, &Question::Apply { workflow, text })? else {
                return Ok(false);
            };
            let version = &asked.view["version"];
            say(&format!("{name} has {steps} steps, version {version}"));
        }
        WorkflowCommand::Start {
            name,
            id,
            key,
            org,
            input,
        } => {
            let input = match input {
                Some(text) => serde_json::from_str(&text)
                    .map_err(|error| anyhow::anyhow!("--input is not JSON: {error}"))?,
                None => Value::Null,
            };
            let start = StartRun {
                workflow: name,
                id,
                org,
                input,
                key,
            };
            let Some(asked) = plane.ask(place, &Question::Start(Box::new(start)))? else {
                return Ok(false);
            };
            print_line(&text(&asked.view["id"]))?;
        }
        WorkflowCommand::Get { run, output } => {
            let Some(asked) = plane.ask(place, &Question::Run { id: run })? else {
                return Ok(false);
            };
            if output == Output::Table {
                show(&asked.view)?;
            } else {
                print_json(&asked.view)?;
            }
        }
        WorkflowCommand::Watch { run } => {
            let question = Question::Run { id: run };
            let well = plane.talk(place, async |way| watch(&way, &question).await)?;
            return Ok(well.unwrap_or(false));
        }
        WorkflowCommand::List { limit, output } => {
            let Some(asked) = plane.ask(place, &Question::Runs { limit })? else {
                return Ok(false);
            };
            let heads = ["ID", "WORKFLOW", "STATE", "STEPS", "SINCE"];
            print_list("runs", &asked.view, output, &heads, row)?;
        }
        WorkflowCommand::Cancel { run, reason } => {
            let Some(asked) = plane.ask(place, &Question::CancelRun { id: run, reason })? else {
                return Ok(false);
            };
            say(&format!("{} will be cancelled", text(&asked.view["id"])));
        }
        WorkflowCommand::Rerun { run, from } => {
            let Some(asked) = plane.ask(place, &Question::Rerun { id: run, from })? else {
                return Ok(false);
            };
            say(&format!("{} will run again", text(&asked.view["id"])));
        }
    }
    Ok(true)
}

/// Prints what happens to a run until it has ended, and says whether it ended well.
async fn watch(way: &Way, question: &Question) -> Result<bool, No> {
    let mut seen = 0;
    loop {
        let run = way.ask(question).await?.view;
        for event in items(&run["timeline"]) {
            let version = event["version"].as_u64().unwrap_or_default();
            if version > seen {
                print_line(&line(event)).map_err(No::Failed)?;
                seen = version;
            }
        }
        let state: RunState = text(&run["state"])
            .parse()
            .map_err(|invalid: Invalid| No::Failed(invalid.into()))?;
        if state.ended() {
            return Ok(state == RunState::Succeeded);
        }
        BootClock.sleep(LOOK).await;
    }
}

fn items(list: &Value) -> &[Value] {
    list.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// One event of a run, for people.
fn line(event: &Value) -> String {
    let steps = event["steps"].as_object().map_or_else(String::new, |steps| {
        let moved = |(id, to): (&String, &Value)| format!("{id} {}", to["to"].as_str().unwrap_or("?"));
        steps.iter().map(moved).collect::<Vec<_>>().join(", ")
    });
    format!("{:<10} {steps}  ({})", text(&event["to"]), text(&event["why"]))
}

fn row(run: &Value) -> Vec<String> {
    let steps = run["steps"].as_object();
    let all = steps.map_or(0, serde_json::Map::len);
    let over = |step: &&Value| {
        let status: Option<StepStatus> = serde_json::from_value(step["status"].clone()).ok();
        status.is_some_and(StepStatus::ended)
    };
    let ended = steps.map_or(0, |steps| steps.values().filter(over).count());
    vec![
        text(&run["id"]),
        text(&run["workflow"]["name"]),
        text(&run["state"]),
        format!("{ended}/{all}"),
        age(run),
    ]
}

fn show(run: &Value) -> anyhow::Result<()> {
    print_line(&format!(
        "{}  {}  {}",
        text(&run["id"]),
        text(&run["workflow"]["name"]),
        text(&run["state"])
    ))?;
    // In the order of the workflow's file.
    let row = |step: &Value| {
        let id = text(&step["id"]);
        let at = &run["steps"][&id];
        let why = at["why"].as_str().unwrap_or_default().to_owned();
        let [status, attempt, job] = ["status", "attempt", "job"].map(|field| text(&at[field]));
        vec![id, status, attempt, job, why]
    };
    let rows = items(&run["workflow"]["steps"]).iter().map(row).collect();
    print_table(&["STEP", "STATUS", "ATTEMPT", "JOB", "WHY"], rows)?;
    print_line("")?;
    let mut timeline = items(&run["timeline"]).iter();
    timeline.try_for_each(|event| print_line(&line(event)))
}
