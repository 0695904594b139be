//! The definition of a workflow: its steps, their dependencies and their work.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::job::{JobSpec, Work};
use crate::span::Span;

/// The work of a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum StepWork {
    /// Runs a command.
    Exec(Vec<String>),
    /// A handler for this topic does it.
    Handler(String),
    /// Workers that pull this topic do it.
    Pull(String),
    /// Asks a person this question.
    Approval(String),
    /// Waits for this time.
    Delay(Span),
}

/// One step of a workflow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Step {
    /// Unique in the workflow.
    pub id: String,
    /// The steps that must be done before this one begins.
    pub needs: Vec<String>,
    /// How its work is done.
    pub work: StepWork,
    /// Input of its job; the run's input if null.
    pub payload: Value,
    /// Resources that its job locks exclusively.
    pub resources: Vec<String>,
    /// A person must approve its job before it runs.
    pub requires_approval: bool,
    /// How many attempts of its job may fail.
    pub attempts: Option<u32>,
    /// The delay before the second attempt.
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub backoff: Option<Span>,
    /// How long one attempt may take.
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub timeout: Option<Span>,
}

/// A workflow. The steps keep the file's order, but only their `needs` decide when they begin.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Workflow {
    /// The workflow's name, under which runs are started.
    pub name: String,
    /// The lock class of its runs and their jobs: `workflow` goes on when the lock store fails,
    /// `workflow-critical` waits.
    pub class: String,
    /// The steps, in the order of the file.
    pub steps: Vec<Step>,
}

impl Workflow {
    /// Finds a step by its id.
    #[must_use]
    pub fn step(&self, id: &str) -> Option<&Step> {
        self.steps.iter().find(|step| step.id == id)
    }

    /// A step and all steps that depend on it, directly or through others.
    #[must_use]
    pub fn downstream<'a>(&'a self, from: &'a str) -> Vec<&'a str> {
        let mut found = vec![from];
        // Each pass finds at least one more step or is the last, so the loop ends.
        loop {
            let more: Vec<_> = self
                .steps
                .iter()
                .filter(|step| !found.contains(&step.id.as_str()))
                .filter(|step| step.needs.iter().any(|need| found.contains(&need.as_str())))
                .map(|step| step.id.as_str())
                .collect();
            if more.is_empty() {
                return found;
            }
            found.extend(more);
        }
    }

    /// A step that can never begin, because it depends on itself through others.
    #[must_use]
    pub fn find_cycle(&self) -> Option<&Step> {
        // Kahn's algorithm: steps that never become ready are on a cycle or behind one.
        let mut ready: Vec<&str> = Vec::new();
        loop {
            let more: Vec<_> = self
                .steps
                .iter()
                .filter(|step| !ready.contains(&step.id.as_str()))
                .filter(|step| step.needs.iter().all(|need| ready.contains(&need.as_str())))
                .map(|step| step.id.as_str())
                .collect();
            if more.is_empty() {
                return self.steps.iter().find(|step| !ready.contains(&step.id.as_str()));
            }
            ready.extend(more);
        }
    }
}

impl Step {
    /// The specification of its job; `None` for a delay, which needs no job.
    #[must_use]
    pub fn job_spec(&self, class: &str, tenant: &str) -> Option<JobSpec> {
        let (work, topic) = match &self.work {
            StepWork::Exec(argv) => (Work::Exec(argv.clone()), "default"),
            StepWork::Handler(topic) => (Work::Handler, topic.as_str()),
            StepWork::Pull(topic) => (Work::Pull, topic.as_str()),
            StepWork::Approval(_) => (Work::Gate, "approval"),
            StepWork::Delay(_) => return None,
        };
        let mut spec = JobSpec::new(work);
        topic.clone_into(&mut spec.topic);
        class.clone_into(&mut spec.class);
        tenant.clone_into(&mut spec.tenant);
        spec.payload = match &self.work {
            StepWork::Approval(question) => Value::String(question.clone()),
            _ => self.payload.clone(),
        };
        spec.resources.clone_from(&self.resources);
        spec.requires_approval = self.requires_approval;
        spec.timeout = self.timeout;
        spec.attempts = self.attempts.unwrap_or(spec.attempts);
        spec.backoff = self.backoff.unwrap_or(spec.backoff);
        spec.labels = BTreeMap::from([("step".to_owned(), self.id.clone())]);
        Some(spec)
    }
}
