//! Workflows: graphs of steps, each the work of one job.
//!
//! `doc` is a workflow's definition, `file` reads it from TOML, `run` is one run of it as a document, `advance` takes a run
//! one step further as a pure function, `engine` does so under the run's lock, `client` is what people ask for.

mod advance;
mod client;
mod doc;
mod engine;
mod file;
mod run;

pub use advance::{Advance, Dropped, Input, Progress};
pub use client::{StartRun, Started};
pub use doc::{Step, StepWork, Workflow};
pub use engine::Engine;
pub(crate) use engine::mail;
pub use file::parse;
pub use run::{Run, RunState, StepRun, StepStatus};
