//! A client that speaks to the daemon by itself, without the library: it asks, stays, works while it may, and lets go.
//!
//! It counts from before each request it sent, stops at its time, and asks again with the same id when it does not know what
//! became of a request. What it believes is written down like what the library's own client believes. How it asks, stays
//! and lets go is its [`Way`]: [`kept`](super::kept) or [`plain`](super::plain).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use leasehold_core::clock::{Clock, Moment};
use leasehold_core::policy::Class;
use leasehold_core::{Fence, Name};
use leasehold_http::{Asked, Daemon};

use super::drift::{MOST_DRIFT, MS, Nanos};
use super::worker::{REST, Worker};
use crate::history::{Answer, Entry, Transition, UNATTENDED};

/// How often one acquire is asked for.
const TRIES: usize = 4;
/// How often once nothing is wrong any more: the first may still go out on a connection whose other end vanished without a word,
/// the second must be answered.
const TRIES_HEALED: usize = 2;

/// A task of a process that takes locks from the daemon.
pub(super) struct Tenant<W> {
    /// Who writes, sends to the target and draws.
    pub(super) me: Arc<Worker>,
    pub(super) daemon: Arc<Daemon>,
    /// The class as the daemon's file has it.
    pub(super) class: Arc<Class>,
    /// Numbers what is told; shared by such tasks of a process.
    pub(super) told: Arc<AtomicU64>,
    pub(super) way: W,
}

/// A hold, as its client knows it.
pub(super) struct Held {
    pub(super) attempt: u64,
    /// What the daemon knows it by: its id, or its token.
    pub(super) key: String,
    pub(super) name: Name,
    pub(super) fence: Option<Fence>,
    /// Nobody else can be granted it until here.
    pub(super) proven: Option<Moment>,
    /// The client may go on until here.
    pub(super) deadline: Moment,
}

/// The client stops.
pub(super) struct Lost;

/// What one request for a lock came to.
pub(super) enum Told {
    Yes(Answer, Held),
    No(Answer),
    Unknown,
}

/// How a hold is asked for, kept and given back.
pub(super) trait Way: Sized + Send + Sync + 'static {
    /// Someone undoes what of its asks arrives after it has abandoned its hold.
    const UNDOES: bool;

    /// How much of what was confirmed its holder may use, by its own clock.
    fn usable(client: &Tenant<Self>) -> Duration;

    /// The class that its holds live by as it was at a moment and has become since, the newest last.
    fn classes(client: &Tenant<Self>, since: Nanos) -> Vec<Arc<Class>>;

    /// It may run without a lease.
    fn fail_open(class: &Class) -> bool;

    /// It may go on without a lease.
    fn continues(class: &Class) -> bool;

    /// One request for a lock; the id is the same each time.
    fn ask(
        client: &Tenant<Self>,
        attempt: u64,
        id: &str,
        name: &Name,
        by: Moment,
    ) -> impl Future<Output = Told> + Send;

    /// It does not want any more what it may have been granted.
    fn give_up(client: &Tenant<Self>, id: &str) -> impl Future<Output = ()> + Send;

    /// Says that it is still there; false if nobody knows whether that was heard.
    fn stay(client: &Tenant<Self>, held: &mut Held) -> impl Future<Output = Result<bool, Lost>> + Send;

    /// Gives it back once; true: it was there to give. Nothing: nobody knows.
    fn let_go(client: &Tenant<Self>, held: &Held) -> impl Future<Output = Option<bool>> + Send;
}

impl<W: Way> Tenant<W> {
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
        self.give_back(&held).await;
    }

    /// Writes down what the class is now.
    fn note_class(&self) {
        if let Some(class) = W::classes(self, self.me.now()).pop() {
            self.me.note(self.terms(&class, W::fail_open(&class)));
            *self.me.said.lock().unwrap_or_else(PoisonError::into_inner) = Some(class);
        }
    }

    /// Writes down what the class is now, if that is not what was last written.
    fn note_change(&self) {
        let said = self
            .me
            .said
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        if W::classes(self, self.me.now()).pop() != said {
            self.note_class();
        }
    }

    /// An operator changed the class while its daemon was asked: nobody knows under which of its terms the daemon answered, so
    /// those count that allow the answer.
    fn note_doubt(&self, began: Nanos, answer: Answer) {
        let classes = W::classes(self, began);
        let Some(class) = classes.last().filter(|_| classes.len() > 1) else {
            return;
        };
        let mut open = classes.iter().map(|class| W::fail_open(class));
        let fail_open = match answer {
            Answer::LocalOnly => open.any(|open| open),
            Answer::Unavailable => open.all(|open| open),
            _ => return,
        };
        let terms = self.terms(class, fail_open);
        self.me.world.lock().tape.note(began, &self.me.who, terms);
    }

    fn terms(&self, class: &Class, fail_open: bool) -> Entry {
        let nanos = |span: Duration| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        let usable = nanos(W::usable(self));
        Entry::Class {
            class: self.me.class.clone(),
            ttl: nanos(class.ttl.get() + class.release.lock_delay),
            // In true time: the slowest clock makes the most of it.
            usable: usable + usable / 1_000_000 * (MOST_DRIFT + 100) + MS / 100,
            fail_open,
            continues: W::continues(class),
        }
    }

    /// An event of the client's own, as the library's client would tell it.
    pub(super) fn tell(&self, held: (u64, &Name), event: &str, fence: Option<Fence>, span: Option<Nanos>) {
        self.me.note(Entry::Event(Transition {
            span,
            ..self.event(held, event, fence)
        }));
    }

    fn event(&self, held: (u64, &Name), event: &str, fence: Option<Fence>) -> Transition {
        Transition {
            seq: self.told.fetch_add(1, Ordering::Relaxed),
            hold: held.0,
            event: event.to_owned(),
            name: Some(held.1.to_string()),
            class: self.me.class.clone(),
            fence,
            span: None,
            detail: None,
        }
    }

    /// Its lease is left alone.
    fn abandon(&self, held: &Held) {
        self.me.note(Entry::Event(Transition {
            detail: (!W::UNDOES).then(|| UNATTENDED.to_owned()),
            ..self.event((held.attempt, &held.name), "abandoned", held.fence)
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
        let (answer, held) = self.insist(attempt, &id, name).await;
        self.note_doubt(began, answer);
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
        self.tell((attempt, name), event, fence, Some(self.me.now() - began));
        held
    }

    /// Asks, and asks again with the same id as long as nobody knows.
    async fn insist(&self, attempt: u64, id: &str, name: &Name) -> (Answer, Option<Held>) {
        let acquire = &self.class.acquire;
        let patience = if self.me.odds(|odds| odds.cancel) {
            Duration::from_nanos(self.me.dice.between(0, 2_000 * MS))
        } else {
            acquire.wait + acquire.timeout * 2 + Duration::from_millis(500)
        };
        // Once a request may have been granted, only a grant is a clear answer.
        let mut unknown = false;
        let healed = self.me.world.lock().healed;
        for _ in 0..if healed { TRIES_HEALED } else { TRIES } {
            let by = self.me.clock.now() + patience;
            match W::ask(self, attempt, id, name, by).await {
                Told::Yes(answer, held) => return (answer, Some(held)),
                Told::No(answer) if !unknown => return (answer, None),
                Told::No(_) => break,
                Told::Unknown => unknown = true,
            }
            // Some give up early, but not when they must be granted it.
            if self.me.dice.chance(250) && !healed {
                break;
            }
            self.me.sleep(self.me.dice.between(10 * MS, 300 * MS)).await;
        }
        W::give_up(self, id).await;
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
            return self.abandon(&held);
        }
        self.me.note(Entry::Releasing { attempt });
        // One that just goes is missed, or its lease runs out.
        if !careless {
            self.give_back(&held).await;
        }
    }

    async fn give_back(&self, held: &Held) {
        for tries in 0..2 {
            let how = match W::let_go(self, held).await {
                Some(true) => "released",
                // The first try may have done it.
                Some(false) if tries > 0 => "released",
                Some(false) => "already_lost",
                None => continue,
            };
            return self.tell((held.attempt, &held.name), how, held.fence, None);
        }
    }

    /// Some steps with a write each.
    async fn work(&self, held: &mut Held) -> Result<(), Lost> {
        let usable = W::usable(self);
        let most = u64::try_from(usable.as_nanos()).unwrap_or(MS);
        let now = self.me.clock.now();
        // Who has waited for it may have little time left.
        let mut stay = now + (usable / 3).min(held.deadline.since(now) / 2);
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
            self.rest(held, &mut stay, rest).await?;
        }
        Ok(())
    }

    /// The time is not over; writes down what is believed.
    fn look(&self, held: &Held) -> Result<(), Lost> {
        if self.me.clock.now() >= held.deadline {
            return Err(Lost);
        }
        self.note_change();
        self.me.note(Entry::Claimed {
            attempt: held.attempt,
            until: self.me.clock.when(held.deadline),
            proven_until: held.proven.map(|until| self.me.clock.when(until)),
            fence: held.fence,
        });
        Ok(())
    }

    /// Until the next step, saying meanwhile that it is still there.
    async fn rest(&self, held: &mut Held, stay: &mut Moment, rest: Duration) -> Result<(), Lost> {
        let end = self.me.clock.now() + rest;
        loop {
            self.me.clock.sleep_until(end.min(*stay).min(held.deadline)).await;
            let now = self.me.clock.now();
            if now >= held.deadline {
                return Err(Lost);
            }
            if now >= *stay {
                let heard = W::stay(self, held).await?;
                let next = W::usable(self) / if heard { 3 } else { 8 };
                *stay = self.me.clock.now() + next;
            }
            if self.me.clock.now() >= end {
                return Ok(());
            }
        }
    }
}

/// A refusal, or silence.
pub(super) fn refused<T>(asked: Option<Asked<T>>) -> Result<T, Told> {
    let problem = match asked {
        Some(Ok(Ok(said))) => return Ok(said),
        Some(Ok(Err(problem))) => problem,
        Some(Err(failure)) if !failure.unknown => return Err(Told::No(Answer::Cancelled)),
        _ => return Err(Told::Unknown),
    };
    Err(match problem.code.as_str() {
        "busy" => Told::No(Answer::Busy),
        "unavailable" if problem.unknown == Some(true) => Told::Unknown,
        "unavailable" => Told::No(Answer::Unavailable),
        "in_progress" | "internal" => Told::Unknown,
        _ => Told::No(Answer::Cancelled),
    })
}

#[cfg(test)]
mod tests {
    use leasehold_http::wire::Problem;

    use super::*;

    /// Whether that was right is for the oracle to say: in a fail-open class it is not.
    #[test]
    fn an_unavailable_lock_is_told_as_that_in_every_class() {
        let problem = Problem {
            code: "unavailable".to_owned(),
            ..Problem::default()
        };
        let told = refused::<()>(Some(Ok(Err(Box::new(problem)))));
        assert!(matches!(told, Err(Told::No(Answer::Unavailable))));
    }
}
