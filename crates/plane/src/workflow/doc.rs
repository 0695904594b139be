//! A workflow's definition: steps, what each needs, and what each does.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::job::{JobSpec, Work};
use crate::span::Span;

/// What a step does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum StepWork {
    /// Runs a command.
    Exec(Vec<String>),
    /// Is served by a handler for this topic.
    Handler(String),
    /// Is served by workers that pull this topic.
    Pull(String),
    /// Asks a person.
    Approval(String),
    /// Lets time pass.
    Delay(Span),
}

/// One step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Step {
    /// Unique in the workflow.
    pub id: String,
    /// The steps that must be done before.
    pub needs: Vec<String>,
    /// What it does.
    pub work: StepWork,
    /// What its job should know.
    pub payload: Value,
    /// What its job needs for itself alone.
    pub resources: Vec<String>,
    /// A person must say yes before its job runs.
    pub requires_approval: bool,
    /// How often its job may fail.
    pub attempts: Option<u32>,
    /// The pause before the second attempt.
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub backoff: Option<Span>,
    /// How long one attempt may take.
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub timeout: Option<Span>,
}

/// A workflow. Its order of steps is the file's; what matters is what each needs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Workflow {
    /// Its name.
    pub name: String,
    /// The class its runs and their jobs are locked under: `workflow` goes on when the lock store fails,
    /// `workflow-critical` waits.
    pub class: String,
    /// Its steps.
    pub steps: Vec<Step>,
}

impl Workflow {
    /// The step of this id.
    #[must_use]
    pub fn step(&self, id: &str) -> Option<&Step> {
        self.steps.iter().find(|step| step.id == id)
    }

    /// Everything that comes after a step, and the step itself.
    #[must_use]
    pub fn downstream<'a>(&'a self, from: &'a str) -> Vec<&'a str> {
        let mut found = vec![from];
        // Each pass finds at least one more step, or it was the last.
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

    /// A step that can never begin because it needs itself, by way of others.
    #[must_use]
    pub fn circle(&self) -> Option<&Step> {
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
    /// The job that does it; none for one that only lets time pass.
    #[must_use]
    pub fn job(&self, class: &str, tenant: &str) -> Option<JobSpec> {
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
