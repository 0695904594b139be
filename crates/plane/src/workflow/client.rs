//! The client API of workflows: define one, start a run, read it, cancel it, run it again from a step.

use std::time::Duration;

use leasehold_core::{Hold, InvalidInput, Name};
use leasehold_wire::ErrorCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::definition::Workflow;
use super::engine::{run_message, run_revision};
use super::run::{Run, RunState};
use crate::error::PlaneError;
use crate::job::{
    DEFAULT_TENANT, MAX_STEP_ATTEMPTS, check_json_size, check_key, check_name, check_tenant_prefix,
    job_lock_name, key_scope, step_job_id,
};
use crate::plane::Plane;
use crate::scheduler::while_held;
use crate::store::{
    DocumentEvent, DocumentKey, DocumentKind, DocumentPage, DocumentPosition, DocumentQuery, DocumentScope,
    Revision, WriteRefusal, WriteRequest, WriteResponse,
};

/// A run to be started.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = Start))]
pub struct StartRunRequest {
    /// The workflow to run.
    pub workflow: String,
    /// The run's id; generated if not given. With an organisation other than `default`, it begins with
    /// `<org>:`.
    pub id: Option<String>,
    /// The organisation that the run belongs to; `default` if not given.
    #[serde(default)]
    pub org: String,
    /// The input that is passed to the run's jobs.
    #[serde(default)]
    pub input: Value,
    /// Another start with the same key is the same run. It counts within the organisation only, or within the
    /// part of the id before the first `:`.
    #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 512))]
    pub key: Option<String>,
}

impl StartRunRequest {
    /// The scope of its idempotency key: its organisation, else the part of its id before the first `:`,
    /// else `default`. The same key in two scopes means two runs.
    #[must_use]
    pub fn key_scope(&self) -> &str {
        key_scope(&self.org, self.id.as_deref())
    }
}

/// The response to a start.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct StartRunResponse {
    /// The run, as read back from the store.
    pub run: Run,
    /// A run with the same id or key existed already; this start changed nothing.
    pub repeated: bool,
}

/// The size limit of all copies of a run's input together: one request must not store much more than it carries.
const MAX_INPUT_COPIES_BYTES: usize = 16 * 1024 * 1024;

/// What a start asks for.
pub(super) enum PreparedStart {
    /// A run that is there already.
    Repeated(Box<StartRunResponse>),
    /// A new run, with its idempotency key.
    New(Box<Run>, Option<DocumentKey>),
}

// Definitions must not change under a local-only hold, so the class is a fail-closed one.
const DEFINITION_CLASS: &str = "workflow-critical";

impl Plane {
    /// Stores a workflow, or its next version. Runs in progress keep the version they began with.
    ///
    /// # Errors
    /// A field is not allowed; another client is changing the workflow; or the store did not respond.
    pub async fn apply_workflow(&self, workflow: &Workflow) -> Result<u64, PlaneError> {
        workflow.check()?;
        let name = Name::new(&format!("workflow:{}", workflow.name))?;
        let hold = self.writer.lock(DEFINITION_CLASS, name, Some(Duration::from_secs(2))).await?;
        let apply = async {
            let there =
                self.writer.call(self.writer.store.read(DocumentKind::Workflow, &workflow.name)).await?;
            let body = serde_json::to_string(workflow).unwrap_or_default();
            // Applying an unchanged file must not make a new version.
            if let Some(same) = there.as_ref().filter(|doc| doc.body == body) {
                return Ok(same.version);
            }
            let revision = Revision {
                kind: DocumentKind::Workflow,
                id: workflow.name.clone(),
                state: "ACTIVE",
                due_in: None,
                index_key: String::new(),
                owner: self.owner().unwrap_or_default().to_owned(),
                key: None,
                body,
                event: json!({
                    "by": self.writer.holder_name(),
                    "principal": self.recorded_principal(),
                    "why": "applied",
                })
                .to_string(),
            };
            let write = WriteRequest {
                expected_version: there.map(|doc| doc.version),
                allowed_states: vec!["ACTIVE"],
                quota: self.quota(DocumentKind::Workflow),
                ..WriteRequest::new(self.writer.new_id(), revision)
            };
            Ok(self.writer.commit(&hold, write).await?.0)
        };
        let out = while_held(&hold, apply).await;
        hold.release().await;
        out
    }

    /// Reads a workflow's definition.
    ///
    /// # Errors
    /// The workflow does not exist, or the store did not respond.
    pub async fn workflow(&self, name: &str) -> Result<Workflow, PlaneError> {
        let doc = self.writer.call(self.writer.store.read(DocumentKind::Workflow, name)).await?;
        let doc = doc.ok_or_else(|| PlaneError::NotFound { kind: "workflow", id: name.to_owned() })?;
        let bad =
            |error: serde_json::Error| leasehold_core::InvalidInput::new("workflow", name, error.to_string());
        Ok(serde_json::from_str(&doc.body).map_err(bad)?)
    }

    /// Starts a run if the organisation's limit allows one more.
    ///
    /// # Errors
    /// Unknown workflow or class; the input is too large; the limit is reached; the admission lock is busy or unavailable; the store
    /// did not respond.
    pub async fn start_run(&self, start: StartRunRequest) -> Result<StartRunResponse, PlaneError> {
        let workflow = self.workflow(&start.workflow).await?;
        self.start_run_of(workflow, start).await
    }

    /// Starts a run of this definition, as the caller has read it from the store. The definition's name
    /// counts, not the one in the request.
    ///
    /// # Errors
    /// The same as for [`start_run`](Self::start_run).
    pub async fn start_run_of(
        &self,
        workflow: Workflow,
        start: StartRunRequest,
    ) -> Result<StartRunResponse, PlaneError> {
        let (mut run, key) = match self.prepare_start(workflow, start).await? {
            PreparedStart::Repeated(found) => return Ok(*found),
            PreparedStart::New(run, key) => (*run, key),
        };
        run.started_by = Some(self.recorded_principal());
        let event = json!({
            "to": run.state,
            "by": self.writer.holder_name(),
            "principal": run.started_by,
            "why": "started",
        });
        let revision = Revision { key, ..run_revision(&run, None, &event) };
        let name = format!("start:{}", run.id);
        let message = run_message(&run.id, &name, &json!({"verb": "start"}), Duration::ZERO);
        let write = WriteRequest {
            messages: vec![message],
            quota: self.quota(DocumentKind::Run),
            ..WriteRequest::new(self.writer.new_id(), revision)
        };
        let made = match self.writer.settings.max_runs_per_org {
            Some(limit) => self.admit(&run, write, limit).await,
            None => self.writer.create_document(&write).await,
        };
        match made {
            Ok(repeated) => Ok(StartRunResponse { run: self.writer.run(&run.id).await?, repeated }),
            Err(PlaneError::Refused(WriteRefusal::Exists)) => {
                repeated_id(self.writer.run(&run.id).await?, &run)
            }
            // The store matches keys within one scope only, so this run is the caller's to see.
            Err(PlaneError::Refused(WriteRefusal::KeyInUse { id })) => {
                repeated_start(self.writer.run(&id).await?, &run)
            }
            Err(error) => Err(error),
        }
    }

    /// The run that a start would create, if its fields are allowed.
    pub(super) async fn prepare_start(
        &self,
        workflow: Workflow,
        start: StartRunRequest,
    ) -> Result<PreparedStart, PlaneError> {
        let now = self.writer.locks.clock().now();
        // The class may have left the policy file since the workflow was defined.
        self.writer.locks.policies().class(&workflow.class, now)?;
        check_key(start.key.as_deref())?;
        check_input(&workflow, &start.input)?;
        let key = start.key.as_deref().map(|key| DocumentKey::scoped(start.key_scope(), key));
        let org = if start.org.is_empty() { DEFAULT_TENANT.to_owned() } else { start.org };
        // The organisation is part of lock names: those of its resources, and of the run.
        check_name("org", &org, &org)?;
        if let Some(id) = &start.id {
            check_name("id", id, &format!("run:{id}"))?;
            if let Err(refused) = check_tenant_prefix("org", &org, id) {
                // Earlier versions allowed such ids: a start that is repeated still finds its run.
                let there = self.writer.find_run(id).await?.ok_or(refused)?;
                let found = repeated_id(there, &Run::new(id.clone(), workflow, org, start.input))?;
                return Ok(PreparedStart::Repeated(Box::new(found)));
            }
        }
        let id = start.id.unwrap_or_else(|| self.writer.new_id_in(&org));
        // Only checks that the id can be part of a lock name; the engine locks the run later.
        crate::fenced_writer::run_lock_name(&id)?;
        check_job_names(&id, &workflow)?;
        Ok(PreparedStart::New(Box::new(Run::new(id, workflow, org, start.input)), key))
    }

    pub(super) async fn count_running(&self, org: &str) -> Result<u64, PlaneError> {
        let states = [RunState::Pending.as_str(), RunState::Running.as_str()];
        let query = DocumentQuery {
            index_key: Some(org.to_owned()),
            ..DocumentQuery::new(DocumentKind::Run, states, 0)
        };
        Ok(self.writer.call(self.writer.store.count(&query)).await?)
    }

    // Count and start happen under one lock per organisation. Otherwise two starts could both see the
    // last free place.
    async fn admit(&self, run: &Run, write: WriteRequest, limit: u64) -> Result<bool, PlaneError> {
        let name = Name::new(&format!("admission:{}", run.org))?;
        let hold = match self.writer.lock("admission", name, None).await {
            Err(PlaneError::Busy { busy, retry_after, .. }) => {
                return Err(PlaneError::Busy { code: ErrorCode::AdmissionBusy, busy, retry_after });
            }
            other => other?,
        };
        let out = while_held(&hold, self.admit_locked(&hold, run, write, limit)).await;
        hold.release().await;
        out
    }

    async fn admit_locked(
        &self,
        hold: &Hold,
        run: &Run,
        write: WriteRequest,
        limit: u64,
    ) -> Result<bool, PlaneError> {
        let running = self.count_running(&run.org).await?;
        if running >= limit {
            // A repeated start of a run that was admitted gets that run, not the limit error.
            let store = &self.writer.store;
            if self.writer.call(store.read(DocumentKind::Run, &run.id)).await?.is_some() {
                return Err(WriteRefusal::Exists.into());
            }
            if let Some(key) = &write.revision.key
                && let Some(id) = self.writer.call(store.find_id_by_key(DocumentKind::Run, key)).await?
            {
                return Err(WriteRefusal::KeyInUse { id }.into());
            }
            return Err(PlaneError::LimitReached { org: run.org.clone(), running, limit });
        }
        self.writer.commit(hold, write).await.map(|_| false)
    }

    /// Reads a run.
    ///
    /// # Errors
    /// The run does not exist, or the store did not respond.
    pub async fn run(&self, id: &str) -> Result<Run, PlaneError> {
        self.writer.run(id).await
    }

    /// The events of a run, oldest first.
    ///
    /// # Errors
    /// The store did not respond.
    pub async fn run_history(&self, id: &str) -> Result<Vec<DocumentEvent>, PlaneError> {
        Ok(self.writer.call(self.writer.store.history(DocumentKind::Run, id)).await?)
    }

    /// Runs in these states; all states if none is given.
    ///
    /// # Errors
    /// The store did not respond.
    pub async fn runs(&self, states: &[RunState], limit: usize) -> Result<Vec<Run>, PlaneError> {
        Ok(self.run_page(states, None, None, limit).await?.documents)
    }

    /// A page of these runs: only those in the scope, and after the position, if given.
    ///
    /// # Errors
    /// The store did not respond.
    pub async fn run_page(
        &self,
        states: &[RunState],
        scope: Option<&DocumentScope>,
        after: Option<DocumentPosition>,
        limit: usize,
    ) -> Result<DocumentPage<Run>, PlaneError> {
        let states = if states.is_empty() { &RunState::ALL } else { states };
        let query = DocumentQuery {
            scope: scope.cloned(),
            after,
            ..DocumentQuery::new(DocumentKind::Run, states.iter().map(|state| state.as_str()), limit)
        };
        let page = self.writer.call(self.writer.store.page(&query)).await?;
        page.try_map(|doc| Ok(Run::read(doc)?))
    }

    /// Requests the cancellation of a run, which the engine performs. A repeated request changes nothing.
    ///
    /// # Errors
    /// `terminal`: the run has ended. Or it does not exist, or the store did not respond.
    pub async fn cancel_run(&self, id: &str, why: &str) -> Result<Run, PlaneError> {
        let run = self.writer.run(id).await?;
        if run.state.is_terminal() {
            return Err(PlaneError::Conflict {
                code: ErrorCode::Terminal,
                what: format!("run {id} has ended as {}", run.state),
            });
        }
        self.send_to_engine(id, &format!("cancel:{id}"), json!({"verb": "cancel", "why": why})).await?;
        Ok(run)
    }

    /// Runs an ended run again from a step on.
    ///
    /// # Errors
    /// `still_running` or `no_such_step`. Or the run does not exist, or the store did not respond.
    pub async fn rerun(&self, id: &str, from: &str) -> Result<Run, PlaneError> {
        let run = self.check_rerun(id, from).await?;
        // The version in the message id: two requests after the same end make one rerun.
        let name = format!("rerun:{id}:{}", run.version);
        self.send_to_engine(id, &name, json!({"verb": "rerun", "from": from, "version": run.version}))
            .await?;
        Ok(run)
    }

    /// Checks that a run can be run again from this step, and changes nothing. Returns the run.
    ///
    /// # Errors
    /// The same as for [`rerun`](Self::rerun).
    pub async fn check_rerun(&self, id: &str, from: &str) -> Result<Run, PlaneError> {
        let run = self.writer.run(id).await?;
        let refuse = |code, what| Err(PlaneError::Conflict { code, what });
        if run.workflow.step(from).is_none() {
            let known: Vec<_> = run.workflow.steps.iter().map(|step| step.id.as_str()).collect();
            return refuse(
                ErrorCode::NoSuchStep,
                format!("run {id} has no step {from}; it has {}", known.join(", ")),
            );
        }
        if !run.state.is_terminal() {
            return refuse(ErrorCode::StillRunning, format!("run {id} is {} and not over yet", run.state));
        }
        let steps = run.workflow.downstream(from);
        if steps.iter().any(|step| run.steps.get(*step).is_some_and(|at| at.attempt >= MAX_STEP_ATTEMPTS)) {
            let why = format!("was begun {MAX_STEP_ATTEMPTS} times, or a step after it; start a new run");
            return Err(InvalidInput::new("from", from, why).into());
        }
        self.check_quota(DocumentKind::Run).await?;
        Ok(run)
    }

    async fn send_to_engine(&self, run: &str, name: &str, mut order: Value) -> Result<(), PlaneError> {
        order["principal"] = json!(self.recorded_principal());
        let message = run_message(run, name, &order, Duration::ZERO);
        self.writer.call(self.writer.store.send(&message)).await?;
        Ok(())
    }
}

/// Checks what a run's input takes: one copy in the run, and one in the job of each step that gets it.
/// Refuses an id with which a step's job could not be locked: the job would be delivered again and again.
fn check_job_names(id: &str, workflow: &Workflow) -> Result<(), InvalidInput> {
    for step in &workflow.steps {
        if job_lock_name(&step_job_id(id, &step.id, MAX_STEP_ATTEMPTS)).is_err() {
            let why = format!(
                "is too long: with the longest attempt number, `job:ID.{}.{MAX_STEP_ATTEMPTS}` must have at most {} bytes",
                step.id,
                Name::MAX
            );
            return Err(InvalidInput::new("id", id, why));
        }
    }
    Ok(())
}

fn check_input(workflow: &Workflow, input: &Value) -> Result<(), InvalidInput> {
    let long = check_json_size("input", input)?;
    let steps = workflow.steps.iter().filter(|step| step.takes_input()).count();
    if long.saturating_mul(steps) > MAX_INPUT_COPIES_BYTES {
        let why = format!(
            "is {long} bytes long, and the jobs of {steps} steps get a copy each; at most {MAX_INPUT_COPIES_BYTES} \
             bytes are allowed for all copies: put the data elsewhere and name it here, or give the steps their \
             own payload"
        );
        return Err(InvalidInput::new("input", "…", why));
    }
    Ok(())
}

/// The response to a start whose id a run has already.
pub(super) fn repeated_id(there: Run, wanted: &Run) -> Result<StartRunResponse, PlaneError> {
    // A run of another scope is not described to this caller.
    if there.key_scope() != wanted.key_scope() {
        let what = format!("the id {} is taken; choose another one", wanted.id);
        return Err(PlaneError::Conflict { code: ErrorCode::DifferentRun, what });
    }
    repeated_start(there, wanted)
}

pub(super) fn repeated_start(there: Run, wanted: &Run) -> Result<StartRunResponse, PlaneError> {
    if there.workflow.name != wanted.workflow.name {
        let (id, workflow) = (there.id, there.workflow.name);
        return Err(PlaneError::Conflict {
            code: ErrorCode::DifferentRun,
            what: format!("run {id} has this id or key already and is one of {workflow}"),
        });
    }
    Ok(StartRunResponse { run: there, repeated: true })
}

impl crate::fenced_writer::FencedWriter {
    /// Creates a document without a hold: a document that does not exist has no owner. Returns whether it is
    /// a repetition.
    pub(crate) async fn create_document(&self, write: &WriteRequest) -> Result<bool, PlaneError> {
        debug_assert!(write.expected_version.is_none());
        match self.write_without_hold(write).await? {
            WriteResponse::Applied { repeated, .. } => Ok(repeated),
            WriteResponse::Refused(refusal) => Err(refusal.into()),
        }
    }
}
