//! A client whose holds the daemon keeps: it asks, says that it is still there, works while it may, and lets go.
//!
//! It counts from before each request it sent, stops at the time the daemon gave it, and asks again with the same id when it does
//! not know what became of a request. What it believes is written down like what the library's own client believes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold_core::clock::{Clock, Moment, until};
use leasehold_core::policy::{Class, Enforcement, OnError, OnFailure};
use leasehold_core::{Fence, Name};
use leasehold_http::{Asked, Daemon};
use serde::Deserialize;
use serde_json::{Value, json};

use super::drift::{MOST_DRIFT, MS, Nanos};
use super::worker::{REST, Worker};
use crate::history::{Answer, Entry, Transition};

/// How often one acquire is asked for again.
const TRIES: usize = 4;

/// A task of a process that has the daemon keep its holds.
pub(super) struct Kept {
    /// Who writes, sends to the target and draws.
    pub(super) me: Arc<Worker>,
    pub(super) daemon: Arc<Daemon>,
    /// The class as the daemon has it.
    pub(super) class: Arc<Class>,
    /// A client that is not heard of for so long is gone.
    pub(super) heartbeat: Duration,
    /// Numbers what is told; shared by such tasks of a process.
    pub(super) told: Arc<AtomicU64>,
}

/// What the daemon says of a hold.
#[derive(Debug, Deserialize)]
struct View {
    #[serde(default)]
    fence: Option<Fence>,
    standing: String,
    valid_ms: u64,
}

/// A hold, as its client knows it.
struct Held {
    attempt: u64,
    id: String,
    name: Name,
    fence: Option<Fence>,
    proven: bool,
    /// The client may go on until here.
    deadline: Moment,
}

/// The client stops.
struct Lost;

impl Kept {
    /// Takes locks until told to stop.
    pub(super) async fn run(self) {
        loop {
            self.me.sleep(self.me.dice.between(0, REST)).await;
            let Some(name) = self.me.next_name() else { return };
            if let Some(held) = self.begin(&name).await {
                let careless = self.me.odds(|odds| odds.careless);
                self.hold(held, careless).await;
            }
        }
    }

    /// One acquire that must be granted, held for so long.
    pub(super) async fn probe(self, name: Name, lasts: Nanos) {
        let Some(held) = self.begin(&name).await else {
            return;
        };
        if let Ok(()) = self.look(&held)
            && let Some(fence) = held.fence
        {
            self.me.send(held.attempt, &name, fence, None);
        }
        self.me.sleep(lasts).await;
        let attempt = held.attempt;
        self.me.note(Entry::Releasing { attempt });
        self.let_go(&held).await;
    }

    fn note_class(&self) {
        let nanos = |span: Duration| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        let usable = nanos(self.heartbeat);
        let shadow = self.class.mode == Enforcement::Shadow;
        self.me.note(Entry::Class {
            class: self.me.class.clone(),
            ttl: nanos(self.class.ttl.get() + self.class.release.lock_delay),
            usable: usable + usable / 1_000_000 * (MOST_DRIFT + 100) + MS / 100,
            fail_open: self.fail_open(),
            // Its client stops when its time is over all the same, but that time is not the lease's.
            continues: shadow || self.class.renew.on_failure == OnFailure::Continue,
        });
    }

    fn fail_open(&self) -> bool {
        self.class.mode == Enforcement::Shadow || self.class.acquire.on_error == OnError::FailOpen
    }

    /// An event of the client's own, as the library's client would tell it.
    fn tell(&self, attempt: u64, event: &str, name: &Name, fence: Option<Fence>, span: Option<Nanos>) {
        self.me.note(Entry::Event(Transition {
            seq: self.told.fetch_add(1, Ordering::Relaxed),
            hold: attempt,
            event: event.to_owned(),
            name: Some(name.to_string()),
            class: self.me.class.clone(),
            fence,
            span,
            detail: None,
        }));
    }

    /// One acquire.
    async fn begin(&self, name: &Name) -> Option<Held> {
        self.note_class();
        let attempt = self.me.attempts.fetch_add(1, Ordering::Relaxed) + 1;
        let began = self.me.now();
        self.me.note(Entry::Asked {
            attempt,
            name: name.to_string(),
            class: self.me.class.clone(),
        });
        let id = format!("{}-{attempt}", self.me.who);
        let (answer, held) = self.ask(attempt, &id, name).await;
        let fence = held.as_ref().and_then(|held| held.fence);
        self.me.note(Entry::Answered {
            attempt,
            sent: began,
            answer,
            fence,
        });
        let event = match answer {
            Answer::Held => "acquired",
            Answer::LocalOnly => "fell_back",
            Answer::Busy => "busy",
            Answer::Unavailable => "unavailable",
            Answer::Cancelled => "cancelled",
            Answer::Closed | Answer::Unknown => return held,
        };
        self.tell(attempt, event, name, fence, Some(self.me.now() - began));
        held
    }

    /// Asks, and asks again with the same id as long as nobody knows.
    async fn ask(&self, attempt: u64, id: &str, name: &Name) -> (Answer, Option<Held>) {
        let class = &self.class;
        let ask = json!({
            "name": name.as_str(),
            "id": id,
            "class": self.me.class,
            "holder": self.me.who.as_ref(),
            "heartbeat_ms": self.heartbeat.as_millis(),
        });
        let patience = class.acquire.wait + class.acquire.timeout * 2 + Duration::from_millis(500);
        let patience = if self.me.odds(|odds| odds.cancel) {
            Duration::from_nanos(self.me.dice.between(0, 2_000 * MS))
        } else {
            patience
        };
        // Once a request may have been granted, only a grant is a clear answer.
        let mut unknown = false;
        for _ in 0..TRIES {
            let sent = self.me.clock.now();
            let asked: Option<Asked<View>> = until(
                &self.me.clock,
                sent + patience,
                self.daemon.post(&["holds"], &ask),
            )
            .await;
            let no = match asked {
                Some(Ok(Ok(view))) => {
                    let held = Held {
                        attempt,
                        id: id.to_owned(),
                        name: name.clone(),
                        fence: view.fence,
                        proven: view.standing == "proven",
                        deadline: sent + Duration::from_millis(view.valid_ms),
                    };
                    let local = view.standing == "local_only";
                    let answer = if local { Answer::LocalOnly } else { Answer::Held };
                    return (answer, Some(held));
                }
                Some(Ok(Err(problem))) => match problem.code.as_str() {
                    "busy" => Some(Answer::Busy),
                    "unavailable" if !self.fail_open() => Some(Answer::Unavailable),
                    "in_progress" | "internal" => None,
                    _ => Some(Answer::Cancelled),
                },
                Some(Err(failure)) if !failure.unknown => Some(Answer::Cancelled),
                _ => None,
            };
            match no {
                Some(no) if !unknown => return (no, None),
                Some(_) => break,
                None => unknown = true,
            }
            if self.me.dice.chance(250) {
                break;
            }
            self.me.sleep(self.me.dice.between(10 * MS, 300 * MS)).await;
        }
        // It does not want it any more; if this is not heard, the daemon misses its client and ends it.
        let _ = self.end(id).await;
        (Answer::Unknown, None)
    }

    async fn hold(&self, mut held: Held, careless: bool) {
        let attempt = held.attempt;
        let worked = self.work(&mut held).await;
        let (value, lost) = match &worked {
            Ok(()) => (Some(attempt), false),
            Err(_) => (None, true),
        };
        if let Some(value) = value {
            self.me.note(Entry::Returned { attempt, value });
        }
        self.me.note(Entry::Reported { attempt, value, lost });
        if let Err(Lost) = worked {
            return self.tell(attempt, "abandoned", &held.name, held.fence, None);
        }
        self.me.note(Entry::Releasing { attempt });
        // One that just goes is missed by the daemon.
        if !careless {
            self.let_go(&held).await;
        }
    }

    async fn let_go(&self, held: &Held) {
        for _ in 0..2 {
            let how = match self.end(&held.id).await {
                Some(Ok(Ok(_))) => "released",
                Some(Ok(Err(problem))) if matches!(problem.code.as_str(), "lost" | "not_found") => {
                    "already_lost"
                }
                _ => continue,
            };
            return self.tell(held.attempt, how, &held.name, held.fence, None);
        }
    }

    async fn end(&self, id: &str) -> Option<Asked<Value>> {
        let patience = self.me.clock.now() + Duration::from_secs(1);
        until(&self.me.clock, patience, self.daemon.delete(&["holds", id])).await
    }

    /// Some steps with a write each.
    async fn work(&self, held: &mut Held) -> Result<(), Lost> {
        let most = u64::try_from(self.heartbeat.as_nanos()).unwrap_or(MS);
        let mut beat = self.me.clock.now() + self.heartbeat / 3;
        let steps = self.me.dice.between(1, 6);
        for step in 1..=steps {
            if self.me.stopping() {
                break;
            }
            self.look(held)?;
            if let Some(fence) = held.fence {
                let task = (step == steps).then_some(held.attempt);
                self.me.send(held.attempt, &held.name, fence, task);
            }
            let rest = Duration::from_nanos(self.me.dice.between(most / 20, most));
            self.rest(held, &mut beat, rest).await?;
        }
        Ok(())
    }

    /// The time is not over; writes down what is believed.
    fn look(&self, held: &Held) -> Result<(), Lost> {
        if self.me.clock.now() >= held.deadline {
            return Err(Lost);
        }
        self.me.note(Entry::Claimed {
            attempt: held.attempt,
            until: self.me.clock.when(held.deadline),
            proven: held.proven,
            fence: held.fence,
        });
        Ok(())
    }

    /// Until the next step, saying meanwhile that it is still there.
    async fn rest(&self, held: &mut Held, beat: &mut Moment, rest: Duration) -> Result<(), Lost> {
        let end = self.me.clock.now() + rest;
        loop {
            self.me.clock.sleep_until(end.min(*beat).min(held.deadline)).await;
            let now = self.me.clock.now();
            if now >= held.deadline {
                return Err(Lost);
            }
            if now >= *beat {
                let heard = self.beat(held).await?;
                let next = self.heartbeat / if heard { 3 } else { 8 };
                *beat = self.me.clock.now() + next;
            }
            if self.me.clock.now() >= end {
                return Ok(());
            }
        }
    }

    /// One heartbeat; false if nobody knows whether it was heard.
    async fn beat(&self, held: &mut Held) -> Result<bool, Lost> {
        let (sent, began) = (self.me.clock.now(), self.me.now());
        let path = ["holds", &held.id, "heartbeat"];
        let nothing = json!({});
        let asked: Option<Asked<View>> =
            until(&self.me.clock, held.deadline, self.daemon.post(&path, &nothing)).await;
        match asked {
            Some(Ok(Ok(view))) => {
                let healed = held.fence.is_none() && view.fence.is_some();
                // Another grant under the same id: what was begun under the first is over.
                if held.fence.is_some() && view.fence != held.fence {
                    return Err(Lost);
                }
                held.fence = view.fence;
                held.proven = view.standing == "proven";
                held.deadline = held.deadline.max(sent + Duration::from_millis(view.valid_ms));
                let event = if healed { "healed" } else { "renewed" };
                let span = self.me.now() - began;
                self.tell(held.attempt, event, &held.name, held.fence, Some(span));
                Ok(true)
            }
            Some(Ok(Err(problem))) if matches!(problem.code.as_str(), "lost" | "not_found") => Err(Lost),
            _ => Ok(false),
        }
    }
}
