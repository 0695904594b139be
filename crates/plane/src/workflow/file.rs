//! Reads workflows from TOML files; errors name the line and the field.

use leasehold_core::InvalidInput;
use leasehold_core::Name;
use leasehold_core::policy::PolicyBook;
use serde::Deserialize;
use serde_json::Value;
use toml::Spanned;

use super::definition::{MAX_STEPS, Step, StepWork, Workflow, check_needs, check_no_dot, check_step_count};
use crate::job::check_name;
use crate::span::Span;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileText {
    name: Spanned<String>,
    class: Option<Spanned<String>>,
    #[serde(default)]
    step: Vec<Spanned<StepText>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StepText {
    id: Spanned<String>,
    #[serde(default)]
    needs: Vec<Spanned<String>>,
    exec: Option<Vec<String>>,
    handler: Option<String>,
    pull: Option<String>,
    approval: Option<String>,
    delay: Option<Span>,
    #[serde(default)]
    payload: Value,
    #[serde(default)]
    resources: Vec<String>,
    #[serde(default)]
    requires_approval: bool,
    attempts: Option<u32>,
    backoff: Option<Span>,
    timeout: Option<Span>,
}

/// The source text, for positions in error messages.
struct SourceText<'a> {
    file: &'a str,
    text: &'a str,
}

impl SourceText<'_> {
    /// `file:line: field: why`.
    fn error(&self, at: usize, field: &str, why: &str) -> InvalidInput {
        let line = 1 + self.text.get(..at).map_or(0, |before| before.matches('\n').count());
        InvalidInput::new("workflow", format!("{}:{line}", self.file), format!("{field}: {why}"))
    }

    // TOML's own errors give a position but not the key.
    fn key_at(&self, at: usize) -> String {
        let start = self.text.get(..at).and_then(|before| before.rfind('\n')).map_or(0, |end| end + 1);
        let line = self.text.get(start..).and_then(|rest| rest.lines().next()).unwrap_or_default();
        let key = line.split('=').next().unwrap_or_default().trim();
        if key.is_empty() { "file".to_owned() } else { key.to_owned() }
    }
}

/// Reads and checks a workflow. `file` is the name of the text in errors.
///
/// # Errors
/// The first error, as `file:line: field: why`.
pub fn parse(file: &str, text: &str) -> Result<Workflow, InvalidInput> {
    let place = SourceText { file, text };
    let read: FileText = toml::from_str(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        place.error(at, &place.key_at(at), error.message())
    })?;
    let (at, name) = (read.name.span().start, read.name.into_inner());
    check_name("name", &name, &format!("workflow:{name}"))
        .map_err(|error| place.error(at, "name", &error.to_string()))?;
    let class = match read.class {
        Some(class) => check_class(&place, &class)?,
        None => "workflow".to_owned(),
    };
    // Before the steps are compared with each other, which takes time by the square of their number.
    check_step_count(read.step.len()).map_err(|why| {
        let at = read.step.get(MAX_STEPS).map_or(0, |step| step.span().start);
        place.error(at, "step", &why)
    })?;
    let known: Vec<String> = read.step.iter().map(|step| step.get_ref().id.get_ref().clone()).collect();
    let mut steps = Vec::new();
    for (number, step) in read.step.into_iter().enumerate() {
        steps.push(check_step(&place, &known, number, step)?);
    }
    let workflow = Workflow { name, class, steps };
    if let Some(step) = workflow.find_cycle() {
        let at = text.find(&format!("\"{}\"", step.id)).unwrap_or(0);
        return Err(place.error(at, "needs", &step.cycle_text()));
    }
    Ok(workflow)
}

// Only built-in classes are known here. A class from a policy file is checked when a run starts.
fn check_class(place: &SourceText<'_>, class: &Spanned<String>) -> Result<String, InvalidInput> {
    let name = class.get_ref();
    let moment = leasehold_core::clock::Moment::ZERO;
    if ["reconciler", "replayer", "admission"].contains(&name.as_str()) {
        let why = format!("{name:?} is for loops and gates; use workflow or workflow-critical");
        return Err(place.error(class.span().start, "class", &why));
    }
    let custom = PolicyBook::builtin().class(name, moment).is_err();
    if custom && Name::new(name).is_err() {
        return Err(place.error(class.span().start, "class", "must be the name of a class"));
    }
    Ok(name.clone())
}

fn check_step(
    place: &SourceText<'_>,
    known: &[String],
    number: usize,
    step: Spanned<StepText>,
) -> Result<Step, InvalidInput> {
    let whole = step.span().start;
    let text = step.into_inner();
    let field = |name: &str| format!("step[{number}].{name}");
    let (at, id) = (text.id.span().start, text.id.into_inner());
    check_name("id", &id, &format!("job:{id}"))
        .map_err(|error| place.error(at, &field("id"), &error.to_string()))?;
    check_no_dot(&id).map_err(|why| place.error(at, &field("id"), why))?;
    if known.iter().filter(|other| **other == id).count() > 1 {
        return Err(place.error(at, &field("id"), &format!("{id:?} is the id of another step too")));
    }
    let needs_at = text.needs.first().map_or(whole, |need| need.span().start);
    let (places, needs): (Vec<_>, Vec<_>) =
        text.needs.into_iter().map(|need| (need.span().start, need.into_inner())).unzip();
    check_needs(&needs).map_err(|why| place.error(needs_at, &field("needs"), &why))?;
    for (at, need) in places.into_iter().zip(&needs) {
        if !known.contains(need) {
            let why = format!("{need:?} is not a step; there are {}", known.join(", "));
            return Err(place.error(at, &field("needs"), &why));
        }
    }
    let works: Vec<StepWork> = [
        text.exec.map(StepWork::Exec),
        text.handler.map(StepWork::Handler),
        text.pull.map(StepWork::Pull),
        text.approval.map(StepWork::Approval),
        text.delay.map(StepWork::Delay),
    ]
    .into_iter()
    .flatten()
    .collect();
    let [work] = <[StepWork; 1]>::try_from(works).map_err(|works| {
        let why = format!(
            "step {id:?} says {} times what it does; write exactly one of exec, handler, pull, approval, delay",
            works.len()
        );
        place.error(whole, &format!("step[{number}]"), &why)
    })?;
    let step = Step {
        id,
        needs,
        work,
        payload: text.payload,
        resources: text.resources,
        requires_approval: text.requires_approval,
        attempts: text.attempts,
        backoff: text.backoff,
        timeout: text.timeout,
    };
    if let Some(spec) = step.job_spec("workflow", "default") {
        spec.check().map_err(|error| place.error(whole, &format!("step[{number}]"), &error.to_string()))?;
    }
    Ok(step)
}
