//! Workflows: graphs of steps, where one job does the work of each step.
//!
//! `definition` is a workflow's definition and `file` reads it from TOML. `run` is the document of one
//! run. `advance` computes its next version as a pure function, and `engine` applies that under the
//! run's lock. `client` is the client API, and `checks` says what it would refuse.

mod advance;
mod checks;
mod client;
mod definition;
mod engine;
mod file;
mod run;

pub use advance::{IgnoredInput, Progress, RunChange, RunInput};
pub use client::{StartRunRequest, StartRunResponse};
pub use definition::{Step, StepWork, Workflow};
pub use engine::Engine;
pub(crate) use engine::run_message;
pub use file::parse;
pub use run::{Run, RunState, StepRun, StepStatus};
