//! A plane's answers through a daemon: one request for each question, two where something is shown with its history.

use std::time::Duration;

use anyhow::anyhow;
use leasehold::StoreUrl;
use leasehold::clock::{BootClock, Clock, until};
use leasehold::http::wire::Problem;
use leasehold::http::{Asked, Daemon, HttpOptions};
use leasehold::policy::duration::human;
use leasehold::store::{Cause, Failure};
use leasehold_plane::approval::Verdict;
use leasehold_plane::{JobState, Work};
use serde_json::{Value, json};

use super::super::question::Question;
use super::{Answer, Came, No, refuses, then};
use crate::args::Place;
use crate::config::Config;

/// A daemon asks its own store, may have to wait for a lock there, and asks again: so long more than it may take itself.
const INSIDE: Duration = Duration::from_secs(10);

/// A daemon that serves a plane.
#[derive(Debug)]
pub(crate) struct Served {
    daemon: Daemon,
    url: StoreUrl,
    within: Duration,
}

impl Served {
    pub(super) fn open(url: StoreUrl, place: &Place) -> anyhow::Result<Self> {
        let StoreUrl::Http { url: text } = &url else {
            return Err(anyhow!("{url} is not a daemon"));
        };
        Ok(Self {
            daemon: Daemon::open(HttpOptions::parse(text)?)?,
            within: Config::load(place)?.timeout.value,
            url,
        })
    }

    pub(super) async fn ask(&self, question: &Question) -> Result<Answer, No> {
        let within = if question.looks() {
            self.within
        } else {
            self.within + INSIDE
        };
        let answer = until(&BootClock, BootClock.now() + within, self.send(question)).await;
        let answer = answer.unwrap_or_else(|| {
            let mut late = Failure::unknown(Cause::TimedOut, format!("no answer in {}", human(within)));
            late.unknown = !question.looks();
            Err(late)
        });
        match answer {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(problem)) => Err(self.refused(question, &problem)),
            Err(failure) => Err(self.unanswered(question, &failure)),
        }
    }

    async fn send(&self, question: &Question) -> Asked<Answer> {
        let daemon = &self.daemon;
        match question {
            Question::Submit(spec) => {
                let path: &[&str] = match spec.work {
                    Work::Exec(_) => &["jobs", "commands"],
                    _ => &["jobs"],
                };
                Ok(daemon.post_told(path, spec.as_ref()).await?.map(made))
            }
            Question::Retry { id } => Ok(daemon
                .post_told(&["jobs", id, "retry"], &json!({}))
                .await?
                .map(made)),
            Question::Start(start) => {
                let start = json!({
                    "workflow": start.workflow, "id": start.id, "org": start.org, "input": start.input, "key": start.key,
                });
                Ok(daemon.post_told(&["runs"], &start).await?.map(made))
            }
            Question::Job { id } => self.with("jobs", id, "history").await,
            Question::Run { id } => self.with("runs", id, "timeline").await,
            Question::Jobs { states, topic, limit } => {
                let states: Vec<_> = states.iter().copied().map(JobState::word).collect();
                let (states, limit) = (states.join(","), limit.to_string());
                let mut query = vec![("limit", limit.as_str())];
                if !states.is_empty() {
                    query.push(("state", &states));
                }
                query.extend(topic.as_deref().map(|topic| ("topic", topic)));
                self.list("jobs", &query).await
            }
            Question::Runs { limit } => self.list("runs", &[("limit", &limit.to_string())]).await,
            Question::Approvals { limit } => self.list("approvals", &[("limit", &limit.to_string())]).await,
            Question::Cancel { id, reason } => Ok(daemon
                .post_told(&["jobs", id, "cancel"], &json!({"reason": reason}))
                .await?
                .map(|(status, view)| Answer {
                    view,
                    came: if status == 202 { Came::Later } else { Came::Now },
                })),
            Question::Apply { text, .. } => Ok(daemon
                .put(&["workflows"], "application/toml", text.clone())
                .await?
                .map(now)),
            Question::CancelRun { id, reason } => {
                self.post(&["runs", id, "cancel"], json!({"reason": reason}))
                    .await
            }
            Question::Rerun { id, from } => self.post(&["runs", id, "rerun"], json!({"from": from})).await,
            Question::Approve { id, verdict } => {
                self.post(&["approvals", id, "approve"], decide(verdict)).await
            }
            Question::Reject { id, verdict } => {
                self.post(&["approvals", id, "reject"], decide(verdict)).await
            }
            Question::Repair { id, payload, verdict } => {
                let mut repair = decide(verdict);
                repair["payload"] = payload.clone();
                self.post(&["approvals", id, "repair"], repair).await
            }
        }
    }

    async fn post(&self, path: &[&str], document: Value) -> Asked<Answer> {
        Ok(self.daemon.post(path, &document).await?.map(now))
    }

    /// The documents under `kind` in the answer of the route of that name.
    async fn list(&self, kind: &str, query: &[(&str, &str)]) -> Asked<Answer> {
        let found: Result<Value, _> = self.daemon.get_where(&[kind], query).await?;
        Ok(found.map(|mut found| now(found[kind].take())))
    }

    /// One document, with what happened to it under the name of the route that tells it.
    async fn with(&self, kind: &str, id: &str, story: &str) -> Asked<Answer> {
        let mut whole: Value = match self.daemon.get(&[kind, id]).await? {
            Ok(whole) => whole,
            Err(problem) => return Ok(Err(problem)),
        };
        let mut told: Value = match self.daemon.get(&[kind, id, story]).await? {
            Ok(told) => told,
            Err(problem) => return Ok(Err(problem)),
        };
        whole[story] = told["events"].take();
        Ok(Ok(now(whole)))
    }

    /// What a daemon's refusal means to whoever asked.
    fn refused(&self, question: &Question, problem: &Problem) -> No {
        let (url, what, detail) = (&self.url, question.what(), brief(&problem.detail));
        let grant = question.grant();
        let (role, scope) = grant.split_once(':').unwrap_or((&grant, "*"));
        No::Failed(match (problem.status, problem.code.as_str()) {
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
            (_, "rate_limited" | "too_many_waiters") => {
                anyhow!("cannot {what}: the daemon at {url} refuses: {detail}")
            }
            (status, code) if refuses(status) => {
                return No::Refused {
                    code: code.to_owned(),
                    detail,
                };
            }
            // Bad input is told as the store's own check tells it.
            (400 | 413 | 422, _) => anyhow!("{detail}"),
            (_, _) => anyhow!(
                "cannot {what}: the daemon at {url} answered: {detail}\n\
                 the daemon is there, but what is behind it fails: `leasehold doctor` with the same --store looks closer"
            ),
        })
    }

    /// No answer came.
    fn unanswered(&self, question: &Question, failure: &Failure) -> No {
        No::Failed(anyhow!(
            "cannot {} at {}: {failure}\n{}",
            question.what(),
            self.url,
            then(failure.unknown)
        ))
    }
}

fn now(view: Value) -> Answer {
    Answer {
        view,
        came: Came::Now,
    }
}

/// 201: made by this request. 200: it had been made before.
fn made((status, view): (u16, Value)) -> Answer {
    Answer {
        view,
        came: Came::before(status != 201),
    }
}

fn decide(verdict: &Verdict) -> Value {
    json!({"by": verdict.by, "reason": verdict.reason, "snapshot": verdict.snapshot})
}

/// A daemon's words, on one line.
fn brief(text: &str) -> String {
    let text = text.lines().next().unwrap_or_default();
    text.chars().filter(|ch| !ch.is_control()).collect()
}
