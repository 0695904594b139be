//! Access to a control plane through a daemon.
//!
//! One HTTP request per request, and a second one where history is shown.

use std::time::Duration;

use anyhow::anyhow;
use leasehold::StoreUrl;
use leasehold::clock::{BootClock, Clock, run_until};
use leasehold::http::wire::Problem;
use leasehold::http::{DaemonClient, DaemonResult};
use leasehold::policy::duration::human;
use leasehold::store::{StoreError, StoreErrorKind};
use leasehold_plane::approval::DecisionRequest;
use leasehold_plane::{JobState, Work};
use serde_json::{Value, json};

use super::super::request::PlaneRequest;
use super::{EffectTime, PlaneResponse, RequestError, is_refusal, retry_advice};
use crate::config::Settings;

// Added to the timeout of a write: the daemon calls its own store, may wait for a lock, and retries.
const DAEMON_WRITE_ALLOWANCE: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct DaemonAccess {
    daemon: DaemonClient,
    url: StoreUrl,
    timeout: Duration,
}

impl DaemonAccess {
    pub(super) fn open(daemon: DaemonClient, url: StoreUrl, settings: &Settings) -> anyhow::Result<Self> {
        Ok(Self { daemon, timeout: settings.timeout.value, url })
    }

    pub(super) async fn request(&self, question: &PlaneRequest) -> Result<PlaneResponse, RequestError> {
        let within =
            if question.is_read_only() { self.timeout } else { self.timeout + DAEMON_WRITE_ALLOWANCE };
        let answer = run_until(&BootClock, BootClock.now() + within, self.send_http(question)).await;
        let answer = answer.unwrap_or_else(|| {
            let mut late =
                StoreError::unknown(StoreErrorKind::TimedOut, format!("no answer in {}", human(within)));
            // A read changes nothing, so a timeout leaves nothing unknown.
            late.unknown = !question.is_read_only();
            Err(late)
        });
        match answer {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(problem)) => Err(self.refusal_error(question, &problem)),
            Err(failure) => Err(self.no_response_error(question, &failure)),
        }
    }

    async fn send_http(&self, question: &PlaneRequest) -> DaemonResult<PlaneResponse> {
        let daemon = &self.daemon;
        match question {
            PlaneRequest::Submit(spec) => {
                // Commands run on the replicas' hosts, so they have their own route, for role admin only.
                let path: &[&str] = match spec.work {
                    Work::Exec(_) => &["jobs", "commands"],
                    _ => &["jobs"],
                };
                Ok(daemon.post_with_status(path, spec.as_ref()).await?.map(created_response))
            }
            PlaneRequest::Retry { id } => {
                Ok(daemon.post_with_status(&["jobs", id, "retry"], &json!({})).await?.map(created_response))
            }
            PlaneRequest::Start(start) => {
                let start = json!({
                    "workflow": start.workflow, "id": start.id, "org": start.org, "input": start.input, "key": start.key,
                });
                Ok(daemon.post_with_status(&["runs"], &start).await?.map(created_response))
            }
            PlaneRequest::Job { id } => self.get_with_events("jobs", id, "history").await,
            PlaneRequest::Run { id } => self.get_with_events("runs", id, "timeline").await,
            PlaneRequest::Jobs { states, topic, limit } => {
                let states: Vec<_> = states.iter().copied().map(JobState::as_str).collect();
                let (states, limit) = (states.join(","), limit.to_string());
                let mut query = vec![("limit", limit.as_str())];
                if !states.is_empty() {
                    query.push(("state", &states));
                }
                query.extend(topic.as_deref().map(|topic| ("topic", topic)));
                self.list("jobs", &query).await
            }
            PlaneRequest::Runs { limit } => self.list("runs", &[("limit", &limit.to_string())]).await,
            PlaneRequest::Approvals { limit } => {
                self.list("approvals", &[("limit", &limit.to_string())]).await
            }
            PlaneRequest::Cancel { id, reason } => Ok(daemon
                .post_with_status(&["jobs", id, "cancel"], &json!({"reason": reason}))
                .await?
                .map(|(status, view)| PlaneResponse {
                    view,
                    // 202: the owner was asked to stop. 200: cancelled.
                    effect: if status == 202 { EffectTime::Later } else { EffectTime::Now },
                })),
            PlaneRequest::Apply { text, .. } => {
                Ok(daemon.put(&["workflows"], "application/toml", text.clone()).await?.map(effective_now))
            }
            PlaneRequest::CancelRun { id, reason } => {
                self.post(&["runs", id, "cancel"], json!({"reason": reason})).await
            }
            PlaneRequest::Rerun { id, from } => {
                self.post(&["runs", id, "rerun"], json!({"from": from})).await
            }
            PlaneRequest::Approve { id, verdict } => {
                self.post(&["approvals", id, "approve"], verdict_json(verdict)).await
            }
            PlaneRequest::Reject { id, verdict } => {
                self.post(&["approvals", id, "reject"], verdict_json(verdict)).await
            }
            PlaneRequest::Repair { id, payload, verdict } => {
                let mut repair = verdict_json(verdict);
                repair["payload"] = payload.clone();
                self.post(&["approvals", id, "repair"], repair).await
            }
        }
    }

    async fn post(&self, path: &[&str], document: Value) -> DaemonResult<PlaneResponse> {
        Ok(self.daemon.post(path, &document).await?.map(effective_now))
    }

    /// The list under `kind` in the response of the route of that name.
    async fn list(&self, kind: &str, query: &[(&str, &str)]) -> DaemonResult<PlaneResponse> {
        let found: Result<Value, _> = self.daemon.get_with_query(&[kind], query).await?;
        Ok(found.map(|mut found| effective_now(found[kind].take())))
    }

    /// One document, with its events from the route `story`.
    async fn get_with_events(&self, kind: &str, id: &str, story: &str) -> DaemonResult<PlaneResponse> {
        let mut whole: Value = match self.daemon.get(&[kind, id]).await? {
            Ok(whole) => whole,
            Err(problem) => return Ok(Err(problem)),
        };
        let mut told: Value = match self.daemon.get(&[kind, id, story]).await? {
            Ok(told) => told,
            Err(problem) => return Ok(Err(problem)),
        };
        whole[story] = told["events"].take();
        Ok(Ok(effective_now(whole)))
    }

    /// Converts a daemon's refusal to an error with advice.
    fn refusal_error(&self, question: &PlaneRequest, problem: &Problem) -> RequestError {
        let (url, what, detail) = (&self.url, question.description(), first_line(&problem.detail));
        let grant = question.required_grant();
        let (role, scope) = grant.split_once(':').unwrap_or((&grant, "*"));
        RequestError::Failed(match (problem.status, problem.code.as_str()) {
            (_, "no_plane") => anyhow!(
                "cannot {what}: the daemon at {url} serves no control plane\n\
                 start it as `leasehold serve --plane` (or `leasehold dev`), or name the store of the jobs with --store"
            ),
            (401, _) => anyhow!(
                "cannot {what}: the daemon at {url} does not know you: {detail}\n\
                 it takes an API token with the role {role} on {scope}: put it into a file that only you can read, and \
                 add ?token_file=FILE to the URL"
            ),
            (403, _) => anyhow!(
                "cannot {what}: the daemon at {url} refuses: {detail}\n\
                 it takes the role {role} on {scope}: ask for a token with `--grant {grant}`"
            ),
            // A limit of the daemon and no refusal of this request: exit code 2 instead of 1.
            (_, "rate_limited" | "too_many_waiters") => {
                anyhow!("cannot {what}: the daemon at {url} refuses: {detail}")
            }
            (status, code) if is_refusal(status) => {
                return RequestError::Refused { code: code.to_owned(), detail };
            }
            // The detail is the same text as the local check of the input.
            (400 | 413 | 422, _) => anyhow!("{detail}"),
            (_, _) => anyhow!(
                "cannot {what}: the daemon at {url} answered: {detail}\n\
                 the daemon is there, but what is behind it fails: `leasehold doctor` with the same --store looks closer"
            ),
        })
    }

    fn no_response_error(&self, question: &PlaneRequest, failure: &StoreError) -> RequestError {
        RequestError::Failed(anyhow!(
            "cannot {} at {}: {failure}\n{}",
            question.description(),
            self.url,
            retry_advice(failure.unknown)
        ))
    }
}

fn effective_now(view: Value) -> PlaneResponse {
    PlaneResponse { view, effect: EffectTime::Now }
}

/// Status 201: created by this request. 200: created earlier.
fn created_response((status, view): (u16, Value)) -> PlaneResponse {
    PlaneResponse { view, effect: EffectTime::from_repeated(status != 201) }
}

fn verdict_json(verdict: &DecisionRequest) -> Value {
    json!({"by": verdict.by, "reason": verdict.reason, "snapshot": verdict.snapshot})
}

/// The first line of a daemon's text, without control characters.
fn first_line(text: &str) -> String {
    let text = text.lines().next().unwrap_or_default();
    text.chars().filter(|ch| !ch.is_control()).collect()
}
