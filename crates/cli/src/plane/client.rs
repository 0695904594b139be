//! A control plane as the verbs use it: at its store, or behind a daemon that serves it.
//!
//! Both give the same typed responses to the same requests, so the verbs do not distinguish them.

use anyhow::{Context, bail};
use leasehold_plane::approval::DecisionRequest;
use leasehold_plane::store::DocumentEvent;
use leasehold_plane::store::DocumentPage;
use leasehold_plane::view::AppliedWorkflow;
use leasehold_plane::view::{
    ApprovalList, DecidedJob, EventList, EventView, JobList, JobView, ReasonRequest, RerunRequest, RunList,
    RunView, SCHEMA_VERSION,
};
use leasehold_plane::workflow::{StartRunRequest, Workflow};
use leasehold_plane::{JobSpec, JobState, Work};
use serde::Serialize;
use serde_json::{Value, json};

use super::PlaneStoreArg;
use super::through_daemon::DaemonPlane;
use super::through_store::StorePlane;
use crate::config::Settings;
use crate::daemon;
use crate::message::print_message;

/// An open control plane.
#[derive(Debug)]
pub(crate) enum PlaneClient {
    Store(Box<StorePlane>),
    Daemon(Box<DaemonPlane>),
}

/// A job with its events.
#[derive(Debug, Serialize)]
pub(crate) struct JobHistory {
    #[serde(flatten)]
    pub(crate) job: JobView,
    pub(crate) history: Vec<EventView>,
}

/// A run with its events.
#[derive(Debug, Serialize)]
pub(crate) struct RunTimeline {
    #[serde(flatten)]
    pub(crate) run: RunView,
    pub(crate) timeline: Vec<EventView>,
}

/// Why a request has no response.
#[derive(Debug)]
pub(crate) enum RequestError {
    /// The plane refused the request; exit code 1.
    Refused { code: String, detail: String },
    /// The plane could not be reached, or the request is invalid; exit code 2.
    Failed(anyhow::Error),
}

impl From<anyhow::Error> for RequestError {
    fn from(error: anyhow::Error) -> Self {
        Self::Failed(error)
    }
}

pub(crate) type PlaneResult<T> = Result<T, RequestError>;

/// Statuses that refuse what was requested, in contrast to a malformed or unauthorized request.
pub(super) fn is_refusal(status: u16) -> bool {
    // 429 is the admission limit of an organisation; rate limits of a daemon are errors.
    matches!(status, 404 | 409 | 412 | 429)
}

/// Advice for a request without a response. `unknown`: it may have been executed.
pub(super) fn retry_advice(unknown: bool) -> &'static str {
    if unknown {
        "check whether it was executed before you repeat it; with the same --id or --key, repeating it is harmless"
    } else {
        "start it, or check the network to it, and retry; `leasehold doctor` with the same --store shows more"
    }
}

fn event_views(events: &[DocumentEvent]) -> Vec<EventView> {
    events.iter().map(EventView::from).collect()
}

// Each method names its action as the rest of a sentence after "cannot".
impl PlaneClient {
    /// Submits a job. Returns also whether it had been submitted before.
    pub(crate) async fn submit(&self, spec: JobSpec) -> PlaneResult<(JobView, bool)> {
        let action = "submit the job";
        match self {
            Self::Store(store) => {
                let submitted = store.answer(action, store.plane.submit(spec)).await?;
                Ok((submitted.job.into(), submitted.repeated))
            }
            Self::Daemon(daemon) => {
                // Commands run on the replicas' hosts, so they have their own route and right.
                let path: &[&str] = match spec.work {
                    Work::Exec(_) => &["jobs", "commands"],
                    _ => &["jobs"],
                };
                let (status, job) = daemon.post(action, path, &spec).await?;
                // 201: created by this request. 200: created earlier.
                Ok((job, status != 201))
            }
        }
    }

    /// Submits a dead job again, as a new one.
    pub(crate) async fn retry(&self, id: &str) -> PlaneResult<JobView> {
        let action = format!("submit job {id} again");
        match self {
            Self::Store(store) => Ok(store.answer(&action, store.plane.replay(id)).await?.job.into()),
            Self::Daemon(daemon) => Ok(daemon.post(&action, &["jobs", id, "retry"], &json!({})).await?.1),
        }
    }

    pub(crate) async fn job(&self, id: &str) -> PlaneResult<JobHistory> {
        let action = format!("read job {id}");
        match self {
            Self::Store(store) => {
                let job = store.answer(&action, store.plane.job(id)).await?;
                let history = store.answer(&action, store.plane.job_history(id)).await?;
                Ok(JobHistory { job: job.into(), history: event_views(&history) })
            }
            Self::Daemon(daemon) => {
                let job = daemon.get(&action, &["jobs", id]).await?;
                let history: EventList = daemon.get(&action, &["jobs", id, "history"]).await?;
                Ok(JobHistory { job, history: history.events })
            }
        }
    }

    pub(crate) async fn jobs(
        &self,
        states: &[JobState],
        topic: Option<&str>,
        limit: u32,
    ) -> PlaneResult<Vec<JobView>> {
        let action = "list the jobs";
        match self {
            Self::Store(store) => {
                let page = store.plane.job_page(states, topic, None, None, limit as usize);
                Ok(listed(store.answer(action, page).await?))
            }
            Self::Daemon(daemon) => {
                let states: Vec<_> = states.iter().copied().map(JobState::as_str).collect();
                let (states, limit) = (states.join(","), limit.to_string());
                let mut query = vec![("limit", limit.as_str())];
                if !states.is_empty() {
                    query.push(("state", &states));
                }
                query.extend(topic.map(|topic| ("topic", topic)));
                let list = daemon.get_list::<JobList>(action, "jobs", &query).await?;
                report_truncated(list.truncated);
                Ok(list.jobs)
            }
        }
    }

    /// Cancels a job. Returns also whether its owner was only asked to stop.
    pub(crate) async fn cancel(&self, id: &str, reason: String) -> PlaneResult<(JobView, bool)> {
        let action = format!("cancel job {id}");
        match self {
            Self::Store(store) => {
                let cancel = async { store.plane.cancel(id, &reason).await?.into_job() };
                let (job, requested) = store.answer(&action, cancel).await?;
                Ok((job.into(), requested))
            }
            Self::Daemon(daemon) => {
                let path = &["jobs", id, "cancel"];
                let (status, job) = daemon.post(&action, path, &ReasonRequest { reason }).await?;
                // 202: the owner was asked to stop. 200: cancelled.
                Ok((job, status == 202))
            }
        }
    }

    /// Stores a workflow. `text` is its file, already checked.
    pub(crate) async fn apply(&self, workflow: &Workflow, text: String) -> PlaneResult<AppliedWorkflow> {
        let action = format!("apply workflow {}", workflow.name);
        match self {
            Self::Store(store) => {
                let version = store.answer(&action, store.plane.apply_workflow(workflow)).await?;
                Ok(AppliedWorkflow { schema_version: SCHEMA_VERSION, name: workflow.name.clone(), version })
            }
            Self::Daemon(daemon) => daemon.put_toml(&action, "workflows", text).await,
        }
    }

    pub(crate) async fn start(&self, start: StartRunRequest) -> PlaneResult<RunView> {
        let action = format!("start a run of {}", start.workflow);
        match self {
            Self::Store(store) => Ok(store.answer(&action, store.plane.start_run(start)).await?.run.into()),
            Self::Daemon(daemon) => Ok(daemon.post(&action, &["runs"], &start).await?.1),
        }
    }

    pub(crate) async fn run(&self, id: &str) -> PlaneResult<RunTimeline> {
        let action = format!("read run {id}");
        match self {
            Self::Store(store) => {
                let run = store.answer(&action, store.plane.run(id)).await?;
                let timeline = store.answer(&action, store.plane.run_history(id)).await?;
                Ok(RunTimeline { run: run.into(), timeline: event_views(&timeline) })
            }
            Self::Daemon(daemon) => {
                let run = daemon.get(&action, &["runs", id]).await?;
                let timeline: EventList = daemon.get(&action, &["runs", id, "timeline"]).await?;
                Ok(RunTimeline { run, timeline: timeline.events })
            }
        }
    }

    pub(crate) async fn runs(&self, limit: u32) -> PlaneResult<Vec<RunView>> {
        let action = "list the runs";
        match self {
            Self::Store(store) => {
                let page = store.plane.run_page(&[], None, None, limit as usize);
                Ok(listed(store.answer(action, page).await?))
            }
            Self::Daemon(daemon) => {
                let query = [("limit", &*limit.to_string())];
                let list = daemon.get_list::<RunList>(action, "runs", &query).await?;
                report_truncated(list.truncated);
                Ok(list.runs)
            }
        }
    }

    pub(crate) async fn cancel_run(&self, id: &str, reason: String) -> PlaneResult<RunView> {
        let action = format!("cancel run {id}");
        match self {
            Self::Store(store) => {
                Ok(store.answer(&action, store.plane.cancel_run(id, &reason)).await?.into())
            }
            Self::Daemon(daemon) => {
                Ok(daemon.post(&action, &["runs", id, "cancel"], &ReasonRequest { reason }).await?.1)
            }
        }
    }

    /// Runs an ended run again, from the step `from` on.
    pub(crate) async fn rerun(&self, id: &str, from: String) -> PlaneResult<RunView> {
        let action = format!("run {id} again");
        match self {
            Self::Store(store) => Ok(store.answer(&action, store.plane.rerun(id, &from)).await?.into()),
            Self::Daemon(daemon) => {
                Ok(daemon.post(&action, &["runs", id, "rerun"], &RerunRequest { from }).await?.1)
            }
        }
    }

    /// Lists the jobs that wait for a decision.
    pub(crate) async fn approvals(&self, limit: u32) -> PlaneResult<Vec<JobView>> {
        let action = "list what waits for a person";
        match self {
            Self::Store(store) => {
                let states = [JobState::ApprovalRequired];
                let page = store.plane.job_page(&states, None, None, None, limit as usize);
                Ok(listed(store.answer(action, page).await?))
            }
            Self::Daemon(daemon) => {
                let query = [("limit", &*limit.to_string())];
                let list = daemon.get_list::<ApprovalList>(action, "approvals", &query).await?;
                report_truncated(list.truncated);
                Ok(list.approvals)
            }
        }
    }

    pub(crate) async fn decide(
        &self,
        id: &str,
        decision: &Decision,
        request: &DecisionRequest,
    ) -> PlaneResult<DecidedJob> {
        let verb = decision.as_str();
        let action = format!("{verb} job {id}");
        match self {
            Self::Store(store) => {
                let decided = match decision {
                    Decision::Approve => store.answer(&action, store.plane.approve(id, request)).await,
                    Decision::Reject => store.answer(&action, store.plane.reject(id, request)).await,
                    Decision::Repair(payload) => {
                        store.answer(&action, store.plane.repair(id, payload.clone(), request)).await
                    }
                };
                Ok(decided?.into())
            }
            Self::Daemon(daemon) => {
                let mut body = json!(request);
                if let Decision::Repair(payload) = decision {
                    body["payload"] = payload.clone();
                }
                Ok(daemon.post(&action, &["approvals", id, verb], &body).await?.1)
            }
        }
    }
}

/// The documents of a page as displayed.
fn listed<T, V: From<T>>(page: DocumentPage<T>) -> Vec<V> {
    report_truncated(page.next.is_some());
    page.documents.into_iter().map(V::from).collect()
}

fn report_truncated(truncated: bool) {
    if truncated {
        print_message("there may be more than these: ask for fewer states or one topic, or raise --limit");
    }
}

/// What a person decides about a job that waits.
#[derive(Debug)]
pub(crate) enum Decision {
    Approve,
    Reject,
    /// Replaces the payload; the job goes on waiting.
    Repair(Value),
}

impl Decision {
    /// The verb, as in the path of the daemon's route.
    fn as_str(&self) -> &'static str {
        match self {
            Self::Approve => "approve",
            Self::Reject => "reject",
            Self::Repair(_) => "repair",
        }
    }
}

impl PlaneStoreArg {
    /// Opens the plane and passes it to `verb`. A refusal is printed and is `false`.
    pub(crate) fn run(
        &self,
        settings: &Settings,
        verb: impl AsyncFnOnce(&PlaneClient) -> PlaneResult<bool>,
    ) -> anyhow::Result<bool> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .context("cannot start the runtime")?;
        runtime.block_on(async {
            match verb(&self.open_client(settings).await?).await {
                Ok(done) => Ok(done),
                Err(RequestError::Refused { code, detail }) => {
                    print_message(&format!("{code}: {detail}"));
                    Ok(false)
                }
                Err(RequestError::Failed(error)) => Err(error),
            }
        })
    }

    async fn open_client(&self, settings: &Settings) -> anyhow::Result<PlaneClient> {
        let url = settings.store_url()?;
        let Some(daemon) = daemon::open_client(&url)? else {
            let kept = self.plane_url(&url)?;
            if kept.daemon_url().is_some() {
                bail!(
                    "--plane-store (LEASEHOLD_PLANE_STORE) names a daemon, {kept}; jobs are kept in a store\n\
                     to ask a daemon about its jobs, name it with --store {}",
                    leasehold_core::shell::quote(&kept.to_string())
                );
            }
            let plane = self.open(settings).await?;
            return Ok(PlaneClient::Store(Box::new(StorePlane { plane, jobs: kept, locks: url })));
        };
        if self.configured().is_some() {
            bail!(
                "--plane-store (LEASEHOLD_PLANE_STORE) does not go with a daemon: {url} says itself where its jobs are\n\
                 leave it out, or name the store of the locks with --store instead of the daemon"
            );
        }
        Ok(PlaneClient::Daemon(Box::new(DaemonPlane { daemon, url, timeout: settings.timeout.value })))
    }
}
