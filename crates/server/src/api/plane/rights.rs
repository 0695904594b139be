//! The rights that a request to the plane needs besides the one in its route's rule: on the topic, the
//! resources, the workflow and the organisation, and on a job that only the store can find.

use leasehold::Name;
use leasehold_plane::workflow::{Run, StartRunRequest, StepWork, Workflow};
use leasehold_plane::{Job, JobSpec, PlaneError, Work};

use crate::api::problem::Refusal;
use crate::auth::{Principal, Right, Target, name_of};
use crate::state::app::App;

/// The tenant and organisation of documents that name none.
const DEFAULT_TENANT: &str = "default";

// Full documents are read to filter them, and one may have a payload of 256 KiB. This bounds the memory of a list.
const MAX_SCANNED_DOCUMENTS: usize = 4000;

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

/// Requires what a job touches: its topic, its resources, and commands.
pub(super) fn require_job_rights(who: &Principal, target: &Target, spec: &JobSpec) -> Result<(), Refusal> {
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

/// Requires what the definition of a workflow touches besides its name.
pub(super) fn require_definition_rights(who: &Principal, workflow: &Workflow) -> Result<(), Refusal> {
    if workflow.steps.iter().any(|step| matches!(step.work, StepWork::Exec(_))) {
        let name = name_of("workflow", "workflow", &workflow.name)?;
        who.require(Right::Command, &Target::Name(name))?;
    }
    require_step_topics(who, workflow)
}

/// Requires the workflow and the organisation of a start. Checked before the workflow is read: the
/// answer is the same whether it exists or not.
pub(super) fn require_start_rights(who: &Principal, start: &StartRunRequest) -> Result<(), Refusal> {
    who.require(Right::Submit, &Target::Name(name_of("workflow", "workflow", &start.workflow)?))?;
    who.require(Right::Submit, &Target::Name(name_of("org", "org", org_of(start))?))
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

/// Whether the caller may read this job: by its id, or as a reader or worker of its topic. `submit` on a
/// topic does not show its jobs: tenants share topics, and must not read each other's payloads.
pub(super) fn reads_job(who: &Principal, job: &Job) -> bool {
    let through_topic = |right: Right| matches!(right, Right::Read | Right::Work | Right::Admin);
    covers(who, Right::Read, "job", &job.id)
        || Name::new(&format!("topic:{}", job.spec.topic)).is_ok_and(|topic| {
            who.grants().iter().any(|grant| through_topic(grant.right) && grant.scope.covers(&topic))
        })
}

/// Whether the caller may read this run.
pub(super) fn reads_run(who: &Principal, run: &Run) -> bool {
    covers(who, Right::Read, "run", &run.id)
}

/// Whether the caller may claim this job and report its result.
pub(super) fn works_on_job(who: &Principal, job: &Job) -> bool {
    covers(who, Right::Work, "job", &job.id) || covers(who, Right::Work, "topic", &job.spec.topic)
}

/// Whether the caller has a right on `kind:id`.
pub(super) fn covers(who: &Principal, right: Right, kind: &str, id: &str) -> bool {
    Name::new(&format!("{kind}:{id}")).is_ok_and(|name| who.covers(right, &name))
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

/// Lists what the caller may read, up to `limit`. Foreign documents must not use up the limit, so more are
/// fetched until enough are found.
pub(super) async fn list_readable<T, F: Future<Output = Result<Vec<T>, PlaneError>>>(
    limit: usize,
    reads: impl Fn(&T) -> bool,
    fetch: impl Fn(usize) -> F,
) -> Result<Vec<T>, Refusal> {
    let mut fetched = limit;
    loop {
        let found = fetch(fetched).await?;
        let complete = found.len() < fetched || fetched >= MAX_SCANNED_DOCUMENTS;
        let readable: Vec<T> = found.into_iter().filter(&reads).take(limit).collect();
        if complete || readable.len() == limit {
            return Ok(readable);
        }
        fetched = (fetched * 4).min(MAX_SCANNED_DOCUMENTS);
    }
}
