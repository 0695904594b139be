//! The rights that a request to the plane needs besides the one in its route's rule: on the topic, the
//! resources, the workflow and the organisation, and on a job that only the store can find.

use leasehold_plane::workflow::{Run, StartRunRequest, StepWork, Workflow};
use leasehold_plane::{Job, JobSpec, PlaneError, Work};

use super::visible::covers;
use crate::api::problem::Refusal;
use crate::auth::{Principal, Right, Target, name_of};
use crate::state::app::App;

/// The tenant and organisation of documents that name none.
const DEFAULT_TENANT: &str = "default";

/// The target of a new document: its id, else all ids of its tenant, else all ids of its kind.
fn new_document(kind: &str, id: Option<&str>, tenant: &str) -> Result<Target, Refusal> {
    match id {
        Some(id) => name_of("id", kind, id).map(Target::Name),
        // A generated id begins with the tenant.
        None if tenant != DEFAULT_TENANT => name_of("tenant", kind, tenant).map(Target::Name),
        None => Ok(Target::Namespace(kind.to_owned())),
    }
}

/// What a submit is about.
pub(super) fn new_job(spec: &JobSpec) -> Result<Target, Refusal> {
    new_document("job", spec.id.as_deref(), &spec.tenant)
}

/// What a start is about.
pub(super) fn new_run(start: &StartRunRequest) -> Result<Target, Refusal> {
    new_document("run", start.id.as_deref(), org_of(start))
}

fn org_of(start: &StartRunRequest) -> &str {
    if start.org.is_empty() { DEFAULT_TENANT } else { &start.org }
}

/// Requires the whole scope of an idempotency key: a key can find each document of its scope, or take the
/// place of a later one. All documents without a namespace share the scope `default`.
fn require_key_scope(who: &Principal, kind: &str, key: Option<&str>, scope: &str) -> Result<(), Refusal> {
    if key.is_none() {
        return Ok(());
    }
    who.require(Right::Submit, &new_document(kind, None, scope)?)
}

/// Requires what a submit of this job touches.
pub(super) fn require_submit_rights(who: &Principal, spec: &JobSpec) -> Result<(), Refusal> {
    require_job_rights(who, &new_job(spec)?, spec)?;
    require_key_scope(who, "job", spec.key.as_deref(), spec.key_scope())
}

/// Requires what another submit of this job touches. The new job gets an id of the old one's scope.
pub(super) fn require_retry_rights(who: &Principal, job: &Job) -> Result<(), Refusal> {
    let target = name_of("id", "job", &job.id).map(Target::Name)?;
    require_job_rights(who, &target, &job.spec)?;
    who.require(Right::Submit, &new_document("job", None, job.key_scope())?)
}

/// Requires what a job touches: its topic, its resources, and commands.
fn require_job_rights(who: &Principal, target: &Target, spec: &JobSpec) -> Result<(), Refusal> {
    who.require(Right::Submit, target)?;
    require_topic(who, &spec.topic)?;
    for resource in &spec.resources {
        who.require(Right::Hold, &Target::Name(spec.resource_lock_name(resource)?))?;
    }
    if matches!(spec.work, Work::Exec(_)) {
        who.require(Right::Command, target)?;
    }
    Ok(())
}

fn require_topic(who: &Principal, topic: &str) -> Result<(), Refusal> {
    who.require(Right::Submit, &Target::Name(name_of("topic", "topic", topic)?))
}

/// Requires the topics that the steps name. Commands and questions to people have no workers to reach.
fn require_step_topics(who: &Principal, workflow: &Workflow) -> Result<(), Refusal> {
    let mut topics = workflow.steps.iter().filter_map(|step| match &step.work {
        StepWork::Handler(topic) | StepWork::Pull(topic) => Some(topic),
        _ => None,
    });
    topics.try_for_each(|topic| require_topic(who, topic))
}

/// Whether a step of the workflow runs a command.
pub(super) fn runs_commands(workflow: &Workflow) -> bool {
    workflow.steps.iter().any(|step| matches!(step.work, StepWork::Exec(_)))
}

/// Requires what the definition of a workflow touches besides its name.
pub(super) fn require_definition_rights(who: &Principal, workflow: &Workflow) -> Result<(), Refusal> {
    if runs_commands(workflow) {
        let name = name_of("workflow", "workflow", &workflow.name)?;
        who.require(Right::Command, &Target::Name(name))?;
    }
    require_step_topics(who, workflow)
}

/// Requires the workflow, the organisation and the key of a start. Checked before the workflow is read: the
/// answer is the same whether it exists or not.
pub(super) fn require_start_rights(who: &Principal, start: &StartRunRequest) -> Result<(), Refusal> {
    who.require(Right::Submit, &Target::Name(name_of("workflow", "workflow", &start.workflow)?))?;
    who.require(Right::Submit, &Target::Name(name_of("org", "org", org_of(start))?))?;
    require_key_scope(who, "run", start.key.as_deref(), start.key_scope())
}

/// Requires what the steps of a run touch. Only the workflow knows it, so the gate cannot check it.
pub(super) fn require_steps_rights(
    who: &Principal,
    workflow: &Workflow,
    start: &StartRunRequest,
) -> Result<(), Refusal> {
    require_step_topics(who, workflow)?;
    for resource in workflow.steps.iter().flat_map(|step| &step.resources) {
        let name = format!("{}:{resource}", org_of(start));
        who.require(Right::Hold, &Target::Name(name_of("resources", "res", &name)?))?;
    }
    Ok(())
}

/// Requires for a rerun what a start of the same run would need.
pub(super) fn require_rerun_rights(who: &Principal, run: &Run) -> Result<(), Refusal> {
    let start = StartRunRequest {
        workflow: run.workflow.name.clone(),
        org: run.org.clone(),
        ..StartRunRequest::default()
    };
    require_start_rights(who, &start)?;
    require_steps_rights(who, &run.workflow, &start)
}

/// Requires that `allows` holds for a job, for callers whose grants do not name its id. To them a job that
/// does not exist and a foreign one give the same answer.
pub(super) async fn require_found_job(
    app: &App,
    who: &Principal,
    right: Right,
    id: &str,
    allows: fn(&Principal, &Job) -> bool,
) -> Result<(), Refusal> {
    if covers(who, right, "job", id) {
        return Ok(());
    }
    match app.served()?.plane.job(id).await {
        Ok(job) if allows(who, &job) => Ok(()),
        Ok(_) | Err(PlaneError::NotFound { .. }) => Err(Refusal::forbidden(right.as_str())),
        Err(error) => Err(error.into()),
    }
}
