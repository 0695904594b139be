//! What people ask of workflows: put one there, start a run, look at it, call it off, run it again from a step.

use std::time::Duration;

use leasehold_core::{Hold, Name};
use serde_json::{Value, json};

use super::doc::Workflow;
use super::engine::{mail, run_entry};
use super::run::{Run, RunState};
use crate::error::PlaneError;
use crate::plane::Plane;
use crate::scheduler::guarded;
use crate::store::{Entry, Event, Kind, Query, Refusal, Write, Written};

/// A run to be started.
#[derive(Debug, Clone, Default)]
pub struct StartRun {
    /// Of which workflow.
    pub workflow: String,
    /// Its id; made up if not given.
    pub id: Option<String>,
    /// Whose it is; `default` if empty.
    pub org: String,
    /// What its jobs should know.
    pub input: Value,
    /// Another start with the same key is the same run.
    pub key: Option<String>,
}

/// What came of a start.
#[derive(Debug, Clone, PartialEq)]
pub struct Started {
    /// The run.
    pub run: Run,
    /// It had been started before, with the same id or key.
    pub repeated: bool,
}

/// Under which class definitions are changed.
const DEFINING: &str = "workflow-critical";

impl Plane {
    /// Puts a workflow there, or its next version. Runs under way keep the version they began with.
    ///
    /// # Errors
    /// Someone else changes it at this moment, or no answer.
    pub async fn apply_workflow(&self, workflow: &Workflow) -> Result<u64, PlaneError> {
        let name = Name::new(&format!("workflow:{}", workflow.name))?;
        let hold = self
            .ledger
            .lock(DEFINING, name, Some(Duration::from_secs(2)))
            .await?;
        let apply = async {
            let there = self
                .ledger
                .call(self.ledger.store.read(Kind::Workflow, &workflow.name))
                .await?;
            let body = serde_json::to_string(workflow).unwrap_or_default();
            if let Some(same) = there.as_ref().filter(|doc| doc.body == body) {
                return Ok(same.version);
            }
            let write = Write {
                id: self.ledger.fresh_id(),
                entry: Entry {
                    kind: Kind::Workflow,
                    id: workflow.name.clone(),
                    state: "ACTIVE",
                    due_in: None,
                    shelf: String::new(),
                    key: None,
                    body,
                    event: json!({"by": self.ledger.me(), "why": "applied"}).to_string(),
                },
                expect: there.map(|doc| doc.version),
                from: vec!["ACTIVE"],
                fence: None,
                also: Vec::new(),
                send: Vec::new(),
            };
            Ok(self.ledger.commit(&hold, write).await?.0)
        };
        let out = guarded(&hold, apply).await;
        hold.release().await;
        out
    }

    /// A workflow's definition.
    ///
    /// # Errors
    /// There is none, or no answer.
    pub async fn workflow(&self, name: &str) -> Result<Workflow, PlaneError> {
        let doc = self
            .ledger
            .call(self.ledger.store.read(Kind::Workflow, name))
            .await?;
        let doc = doc.ok_or_else(|| PlaneError::NotFound {
            kind: "workflow",
            id: name.to_owned(),
        })?;
        let bad =
            |error: serde_json::Error| leasehold_core::Invalid::new("workflow", name, error.to_string());
        Ok(serde_json::from_str(&doc.body).map_err(bad)?)
    }

    /// Starts a run, if the organisation may have one more.
    ///
    /// # Errors
    /// No such workflow or class; the limit is reached; the gate could not be asked; no answer.
    pub async fn start(&self, start: StartRun) -> Result<Started, PlaneError> {
        let workflow = self.workflow(&start.workflow).await?;
        let now = self.ledger.locks.clock().now();
        self.ledger.locks.policies().class(&workflow.class, now)?;
        let org = if start.org.is_empty() {
            "default".to_owned()
        } else {
            start.org
        };
        let id = start.id.unwrap_or_else(|| self.ledger.fresh_id());
        crate::ledger::run_lock(&id)?;
        let run = Run::new(id, workflow, org, start.input);
        let event = json!({"to": run.state, "by": self.ledger.me(), "why": "started"});
        let write = Write {
            id: self.ledger.fresh_id(),
            entry: Entry {
                key: start.key,
                ..run_entry(&run, None, &event)
            },
            expect: None,
            from: Vec::new(),
            fence: None,
            also: Vec::new(),
            send: vec![mail(
                &run.id,
                &format!("start:{}", run.id),
                &json!({"verb": "start"}),
                Duration::ZERO,
            )],
        };
        let made = match self.ledger.settings.admission {
            Some(limit) => self.admit(&run, write, limit).await,
            None => self.ledger.write_new(&write).await,
        };
        match made {
            Ok(repeated) => Ok(Started {
                run: self.ledger.run(&run.id).await?,
                repeated,
            }),
            Err(PlaneError::Refused(Refusal::Exists)) => self.started_before(&run.id, &run).await,
            Err(PlaneError::Refused(Refusal::Key { id })) => self.started_before(&id, &run).await,
            Err(error) => Err(error),
        }
    }

    async fn started_before(&self, id: &str, wanted: &Run) -> Result<Started, PlaneError> {
        let run = self.ledger.run(id).await?;
        if run.workflow.name != wanted.workflow.name {
            return Err(PlaneError::Conflict {
                code: "different_run",
                what: format!(
                    "run {id} has this id or key already and is one of {}",
                    run.workflow.name
                ),
            });
        }
        Ok(Started { run, repeated: true })
    }

    /// The gate: count and start are one step under the organisation's lock, so that a limit is a limit.
    async fn admit(&self, run: &Run, write: Write, limit: u64) -> Result<bool, PlaneError> {
        let name = Name::new(&format!("admission:{}", run.org))?;
        let hold = match self.ledger.lock("admission", name, None).await {
            Err(PlaneError::Busy {
                busy, retry_after, ..
            }) => {
                return Err(PlaneError::Busy {
                    code: "admission_busy",
                    busy,
                    retry_after,
                });
            }
            other => other?,
        };
        let out = guarded(&hold, self.admit_under(&hold, run, write, limit)).await;
        hold.release().await;
        out
    }

    async fn admit_under(
        &self,
        hold: &Hold,
        run: &Run,
        write: Write,
        limit: u64,
    ) -> Result<bool, PlaneError> {
        let query = Query {
            kind: Kind::Run,
            states: vec![RunState::Pending.word(), RunState::Running.word()],
            due: false,
            shelf: Some(run.org.clone()),
            limit: 0,
        };
        let running = self.ledger.call(self.ledger.store.count(&query)).await?;
        if running >= limit {
            // Whoever says again what was admitted is answered with it, not with the limit.
            let store = &self.ledger.store;
            if self.ledger.call(store.read(Kind::Run, &run.id)).await?.is_some() {
                return Err(Refusal::Exists.into());
            }
            if let Some(key) = &write.entry.key
                && let Some(id) = self.ledger.call(store.by_key(Kind::Run, key)).await?
            {
                return Err(Refusal::Key { id }.into());
            }
            return Err(PlaneError::Limit {
                org: run.org.clone(),
                running,
                limit,
            });
        }
        self.ledger.commit(hold, write).await.map(|_| false)
    }

    /// Reads a run.
    ///
    /// # Errors
    /// There is none, or no answer.
    pub async fn run(&self, id: &str) -> Result<Run, PlaneError> {
        self.ledger.run(id).await
    }

    /// A run's timeline, oldest first.
    ///
    /// # Errors
    /// No answer.
    pub async fn timeline(&self, id: &str) -> Result<Vec<Event>, PlaneError> {
        Ok(self.ledger.call(self.ledger.store.history(Kind::Run, id)).await?)
    }

    /// Runs in these states; all if none is named.
    ///
    /// # Errors
    /// No answer.
    pub async fn runs(&self, states: &[RunState], limit: usize) -> Result<Vec<Run>, PlaneError> {
        let states = if states.is_empty() { &RunState::ALL } else { states };
        let query = Query {
            kind: Kind::Run,
            states: states.iter().map(|state| state.word()).collect(),
            due: false,
            shelf: None,
            limit,
        };
        let docs = self.ledger.call(self.ledger.store.list(&query)).await?;
        docs.iter().map(|doc| Ok(Run::read(doc)?)).collect()
    }

    /// Calls a run off. The engine does it; said twice, it counts once.
    ///
    /// # Errors
    /// `terminal`: it has ended. Or there is none, or no answer.
    pub async fn cancel_run(&self, id: &str, why: &str) -> Result<Run, PlaneError> {
        let run = self.ledger.run(id).await?;
        if run.state.ended() {
            return Err(PlaneError::Conflict {
                code: "terminal",
                what: format!("run {id} has ended as {}", run.state),
            });
        }
        self.ask(
            id,
            &format!("cancel:{id}"),
            &json!({"verb": "cancel", "why": why}),
        )
        .await?;
        Ok(run)
    }

    /// Runs an ended run again, from a step on.
    ///
    /// # Errors
    /// `still_running`, `no_such_step`. Or there is none, or no answer.
    pub async fn rerun(&self, id: &str, from: &str) -> Result<Run, PlaneError> {
        let run = self.ledger.run(id).await?;
        let refuse = |code, what| Err(PlaneError::Conflict { code, what });
        if run.workflow.step(from).is_none() {
            let known: Vec<_> = run.workflow.steps.iter().map(|step| step.id.as_str()).collect();
            return refuse(
                "no_such_step",
                format!("run {id} has no step {from}; it has {}", known.join(", ")),
            );
        }
        if !run.state.ended() {
            return refuse(
                "still_running",
                format!("run {id} is {} and not over yet", run.state),
            );
        }
        // The version in the name: asked twice for the same end, it is one rerun.
        let name = format!("rerun:{id}:{}", run.version);
        self.ask(id, &name, &json!({"verb": "rerun", "from": from}))
            .await?;
        Ok(run)
    }

    async fn ask(&self, run: &str, name: &str, order: &Value) -> Result<(), PlaneError> {
        let mail = mail(run, name, order, Duration::ZERO);
        self.ledger.call(self.ledger.store.send(&mail)).await?;
        Ok(())
    }
}

impl crate::ledger::Ledger {
    /// A write that needs no hold because it makes what is not there. Answers whether it had been made before.
    pub(crate) async fn write_new(&self, write: &Write) -> Result<bool, PlaneError> {
        debug_assert!(write.expect.is_none());
        match self.send_new(write).await? {
            Written::Done { repeated, .. } => Ok(repeated),
            Written::Refused(refusal) => Err(refusal.into()),
        }
    }
}
