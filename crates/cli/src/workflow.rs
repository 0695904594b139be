//! `leasehold workflow`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Subcommand};
use leasehold::clock::{BootClock, ClockExt};
use leasehold_plane::workflow::{Run, StartRun, parse};
use leasehold_plane::{Plane, PlaneError, view};
use serde_json::{Value, json};

use crate::args::{Output, Place};
use crate::job::age;
use crate::plane::{PlaneStoreArg, print_json, print_table};
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
        /// At most this many
        #[arg(long, default_value_t = 100)]
        limit: usize,
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
            let workflow = match parse(&shown, &text) {
                Ok(workflow) => workflow,
                Err(invalid) => {
                    say(&invalid.to_string());
                    return Ok(false);
                }
            };
            let asked = plane.ask(place, |plane| async move {
                Ok((plane.apply_workflow(&workflow).await?, workflow))
            })?;
            let Some((version, workflow)) = asked else {
                return Ok(false);
            };
            say(&format!(
                "{} has {} steps, version {version}",
                workflow.name,
                workflow.steps.len()
            ));
            Ok(true)
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
            let asked = plane.ask(place, |plane| async move { plane.start(start).await })?;
            let Some(started) = asked else { return Ok(false) };
            println!("{}", started.run.id);
            Ok(true)
        }
        WorkflowCommand::Get { run, output } => {
            let asked = plane.ask(place, |plane| async move {
                Ok((plane.run(&run).await?, plane.timeline(&run).await?))
            })?;
            let Some((run, timeline)) = asked else {
                return Ok(false);
            };
            let timeline: Vec<_> = timeline.iter().map(view::event).collect();
            if output == Output::Table {
                show(&run, &timeline)?;
            } else {
                let mut whole = view::run(&run);
                whole["timeline"] = json!(timeline);
                print_json(&whole)?;
            }
            Ok(true)
        }
        WorkflowCommand::Watch { run } => {
            let asked = plane.ask(place, |plane| async move { watch(&plane, &run).await })?;
            Ok(asked.unwrap_or(false))
        }
        WorkflowCommand::List { limit, output } => {
            let asked = plane.ask(place, |plane| async move { plane.runs(&[], limit).await })?;
            list(&asked.unwrap_or_default(), output).map(|()| true)
        }
        WorkflowCommand::Cancel { run, reason } => {
            let asked = plane.ask(
                place,
                |plane| async move { plane.cancel_run(&run, &reason).await },
            )?;
            Ok(asked
                .inspect(|run| say(&format!("{} will be cancelled", run.id)))
                .is_some())
        }
        WorkflowCommand::Rerun { run, from } => {
            let asked = plane.ask(place, |plane| async move { plane.rerun(&run, &from).await })?;
            Ok(asked
                .inspect(|run| say(&format!("{} will run again", run.id)))
                .is_some())
        }
    }
}

async fn watch(plane: &Plane, id: &str) -> Result<bool, PlaneError> {
    let mut seen = 0;
    loop {
        let run = plane.run(id).await?;
        for event in plane
            .timeline(id)
            .await?
            .iter()
            .filter(|event| event.version > seen)
        {
            println!("{}", line(&view::event(event)));
        }
        seen = seen.max(run.version);
        if run.state.ended() {
            return Ok(run.state == leasehold_plane::workflow::RunState::Succeeded);
        }
        BootClock.sleep(LOOK).await;
    }
}

/// One event of a run, for people.
fn line(event: &Value) -> String {
    let steps = event["steps"].as_object().map_or_else(String::new, |steps| {
        let moved = |(id, to): (&String, &Value)| format!("{id} {}", to["to"].as_str().unwrap_or("?"));
        steps.iter().map(moved).collect::<Vec<_>>().join(", ")
    });
    let text = |field: &str| event[field].as_str().unwrap_or("-").to_owned();
    format!("{:<10} {steps}  ({})", text("to"), text("why"))
}

fn list(runs: &[Run], output: Output) -> anyhow::Result<()> {
    match output {
        Output::Table | Output::Wide => {
            let row = |run: &Run| {
                let ended = run.steps.values().filter(|step| step.status.ended()).count();
                vec![
                    run.id.clone(),
                    run.workflow.name.clone(),
                    run.state.to_string(),
                    format!("{ended}/{}", run.steps.len()),
                    age(run.now, run.updated),
                ]
            };
            print_table(
                &["ID", "WORKFLOW", "STATE", "STEPS", "SINCE"],
                runs.iter().map(row).collect(),
            )
        }
        Output::Json => {
            let all: Vec<_> = runs.iter().map(view::run).collect();
            print_json(&json!({"schema_version": 1, "runs": all}))
        }
        Output::Jsonl => {
            runs.iter().for_each(|run| println!("{}", view::run(run)));
            Ok(())
        }
        Output::Name => {
            runs.iter().for_each(|run| println!("{}", run.id));
            Ok(())
        }
    }
}

fn show(run: &Run, timeline: &[Value]) -> anyhow::Result<()> {
    println!("{}  {}  {}", run.id, run.workflow.name, run.state);
    let row = |step: &leasehold_plane::workflow::Step| {
        let at = run.steps.get(&step.id).cloned().unwrap_or_default();
        let status = serde_json::to_value(at.status).unwrap_or_default();
        vec![
            step.id.clone(),
            status.as_str().unwrap_or("?").to_owned(),
            at.attempt.to_string(),
            at.job.unwrap_or_else(|| "-".into()),
            at.why.unwrap_or_default(),
        ]
    };
    let rows = run.workflow.steps.iter().map(row).collect();
    print_table(&["STEP", "STATUS", "ATTEMPT", "JOB", "WHY"], rows)?;
    println!();
    timeline.iter().for_each(|event| println!("{}", line(event)));
    Ok(())
}
