//! The definition of a workflow: its steps, their dependencies and their work.

use std::collections::{BTreeMap, HashMap, HashSet};

use leasehold_core::InvalidInput;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::job::{JobSpec, Work, check_name};
use crate::span::Span;

/// The most steps of one workflow, and the most that one step may need. Each run carries a copy of all steps.
pub(super) const MAX_STEPS: usize = 200;

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

    /// Checks the number of steps, their names and what they need. Only for new definitions: a stored one may
    /// have been allowed by an earlier version.
    ///
    /// # Errors
    /// The first field that is not allowed.
    pub fn check(&self) -> Result<(), InvalidInput> {
        check_name("name", &self.name, &format!("workflow:{}", self.name))?;
        check_step_count(self.steps.len())
            .map_err(|why| InvalidInput::new("step", self.steps.len().to_string(), why))?;
        let mut known = HashSet::new();
        for step in &self.steps {
            check_name("step.id", &step.id, &format!("job:{}", step.id))?;
            check_no_dot(&step.id).map_err(|why| InvalidInput::new("step.id", &step.id, why))?;
            if !known.insert(step.id.as_str()) {
                return Err(InvalidInput::new("step.id", &step.id, "is the id of another step too"));
            }
        }
        for step in &self.steps {
            check_needs(&step.needs).map_err(|why| InvalidInput::new("step.needs", &step.id, why))?;
        }
        match self.find_cycle() {
            None => Ok(()),
            Some(step) => Err(InvalidInput::new("step.needs", &step.id, step.cycle_text())),
        }
    }

    /// The positions of the steps that need a step, by its id.
    fn dependents(&self) -> HashMap<&str, Vec<usize>> {
        let mut dependents: HashMap<&str, Vec<usize>> = HashMap::new();
        for (at, step) in self.steps.iter().enumerate() {
            for need in &step.needs {
                dependents.entry(need).or_default().push(at);
            }
        }
        dependents
    }

    /// A step and all steps that depend on it, directly or through others.
    #[must_use]
    pub fn downstream<'a>(&'a self, from: &'a str) -> Vec<&'a str> {
        let dependents = self.dependents();
        let (mut found, mut known) = (vec![from], HashSet::from([from]));
        let mut next = 0;
        while let Some(id) = found.get(next) {
            let more = dependents.get(id).into_iter().flatten().map(|at| self.steps[*at].id.as_str());
            found.extend(more.filter(|id| known.insert(*id)));
            next += 1;
        }
        found
    }

    /// A step that can never begin, because it depends on itself through others or needs a step that is not
    /// there.
    #[must_use]
    pub fn find_cycle(&self) -> Option<&Step> {
        // Kahn's algorithm: steps that never become ready are on a cycle or behind one.
        let mut dependents = self.dependents();
        let mut missing: Vec<usize> = self.steps.iter().map(|step| step.needs.len()).collect();
        let mut ready: Vec<&Step> = self.steps.iter().filter(|step| step.needs.is_empty()).collect();
        while let Some(step) = ready.pop() {
            // Removed, so that a second step of the same id does not count again.
            for at in dependents.remove(step.id.as_str()).unwrap_or_default() {
                missing[at] -= 1;
                if missing[at] == 0 {
                    ready.push(&self.steps[at]);
                }
            }
        }
        let stuck = self.steps.iter().zip(missing).filter(|(_, missing)| *missing > 0).map(|(step, _)| step);
        let stuck: HashMap<&str, &Step> = stuck.rev().map(|step| (step.id.as_str(), step)).collect();
        let mut step = self.steps.iter().find(|step| stuck.contains_key(step.id.as_str()))?;
        // From a step behind a cycle, the steps that it needs lead to one on the cycle.
        let mut passed = HashSet::new();
        while passed.insert(step.id.as_str()) {
            match step.needs.iter().find_map(|need| stuck.get(need.as_str())) {
                Some(need) => step = need,
                None => break,
            }
        }
        Some(step)
    }
}

/// Why a step cannot have this id: `Run::job_id` joins run, step and attempt with dots.
pub(super) fn check_no_dot(id: &str) -> Result<(), &'static str> {
    if id.contains('.') { Err("must not contain a dot: it parts the names of jobs") } else { Ok(()) }
}

/// Why a workflow cannot have so many steps.
pub(super) fn check_step_count(steps: usize) -> Result<(), String> {
    match steps {
        0 => Err("there is none; write [[step]] and give it an id and its work".to_owned()),
        1..=MAX_STEPS => Ok(()),
        _ => Err(format!(
            "there are {steps}; at most {MAX_STEPS} are allowed: start another workflow for the rest"
        )),
    }
}

/// Why a step cannot need these steps.
pub(super) fn check_needs(needs: &[String]) -> Result<(), String> {
    if needs.len() > MAX_STEPS {
        return Err(format!("names {} steps; at most {MAX_STEPS} are allowed", needs.len()));
    }
    let mut known = HashSet::new();
    match needs.iter().find(|need| !known.insert(need.as_str())) {
        Some(twice) => Err(format!("names {twice:?} more than once; name each step once")),
        None => Ok(()),
    }
}

impl Step {
    /// Why a step that [`Workflow::find_cycle`] has found is refused.
    pub(super) fn cycle_text(&self) -> String {
        format!("step {:?} needs itself, by way of {:?}; it could never begin", self.id, self.needs)
    }

    /// Whether its job gets the run's input.
    pub(super) fn takes_input(&self) -> bool {
        self.payload.is_null() && !matches!(self.work, StepWork::Approval(_) | StepWork::Delay(_))
    }

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
