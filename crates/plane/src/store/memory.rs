//! The reference: one process's memory. What the other stores answer, this one answers by reading plainly.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry::Vacant;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use leasehold_core::Fence;
use leasehold_core::clock::SharedClock;
use leasehold_core::store::Failure;

use super::{
    Doc, Entry, Event, Found, Kind, Mail, PlaneStore, Query, Queue, Settle, Taken, Write, Written, judge,
};

/// A plane store in memory, for tests and examples.
#[derive(Debug)]
pub struct MemoryPlane {
    clock: SharedClock,
    tables: Mutex<Tables>,
}

#[derive(Debug, Default)]
struct Tables {
    docs: BTreeMap<(Kind, String), Row>,
    keys: BTreeMap<(Kind, String), String>,
    fences: BTreeMap<String, Fence>,
    mail: BTreeMap<(Queue, String), Letter>,
}

#[derive(Debug)]
struct Row {
    state: &'static str,
    due: Option<u64>,
    shelf: String,
    created: u64,
    updated: u64,
    body: String,
    /// One for each version, with the id of the write that made it.
    events: Vec<(String, Event)>,
}

#[derive(Debug)]
struct Letter {
    to: String,
    body: String,
    due: u64,
    tries: u64,
}

impl MemoryPlane {
    /// An empty one.
    #[must_use]
    pub fn new(clock: SharedClock) -> Self {
        Self {
            clock,
            tables: Mutex::default(),
        }
    }

    fn now(&self) -> u64 {
        millis(self.clock.wall())
    }

    fn lock(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Milliseconds since 1970.
pub(crate) fn millis(wall: SystemTime) -> u64 {
    let since = wall.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// The moment that lies `ahead` of `now`.
pub(crate) fn later(now: u64, ahead: Duration) -> u64 {
    now.saturating_add(u64::try_from(ahead.as_millis()).unwrap_or(u64::MAX))
}

impl Tables {
    fn put(&mut self, entry: &Entry, write: &str, now: u64) -> u64 {
        let row = self
            .docs
            .entry((entry.kind, entry.id.clone()))
            .or_insert_with(|| Row {
                state: entry.state,
                due: None,
                shelf: String::new(),
                created: now,
                updated: now,
                body: String::new(),
                events: Vec::new(),
            });
        row.state = entry.state;
        row.due = entry.due_in.map(|ahead| later(now, ahead));
        row.shelf.clone_from(&entry.shelf);
        row.updated = now;
        row.body.clone_from(&entry.body);
        let version = row.events.len() as u64 + 1;
        let event = Event {
            version,
            at: now,
            body: entry.event.clone(),
        };
        row.events.push((write.to_owned(), event));
        if let Some(key) = &entry.key {
            let key = (entry.kind, key.clone());
            self.keys.entry(key).or_insert_with(|| entry.id.clone());
        }
        version
    }

    /// Whether it was not there yet.
    fn post(&mut self, mail: &Mail, now: u64) -> bool {
        let Vacant(place) = self.mail.entry((mail.queue, mail.id.clone())) else {
            return false;
        };
        place.insert(Letter {
            to: mail.to.clone(),
            body: mail.body.clone(),
            due: later(now, mail.due_in),
            tries: 0,
        });
        true
    }

    fn matching<'a>(&'a self, query: &'a Query, now: u64) -> impl Iterator<Item = (&'a String, &'a Row)> {
        self.docs
            .iter()
            .filter(move |((kind, _), row)| {
                *kind == query.kind
                    && query.states.contains(&row.state)
                    && query.shelf.as_ref().is_none_or(|shelf| *shelf == row.shelf)
                    && (!query.due || row.due.is_some_and(|due| due <= now))
            })
            .map(|((_, id), row)| (id, row))
    }
}

fn doc(id: &str, row: &Row, now: u64) -> Doc {
    Doc {
        id: id.to_owned(),
        version: row.events.len() as u64,
        state: row.state.to_owned(),
        due: row.due,
        created: row.created,
        updated: row.updated,
        body: row.body.clone(),
        now,
    }
}

#[async_trait]
impl PlaneStore for MemoryPlane {
    async fn read(&self, kind: Kind, id: &str) -> Result<Option<Doc>, Failure> {
        let now = self.now();
        let tables = self.lock();
        Ok(tables
            .docs
            .get(&(kind, id.to_owned()))
            .map(|row| doc(id, row, now)))
    }

    async fn write(&self, write: &Write) -> Result<Written, Failure> {
        let now = self.now();
        let mut tables = self.lock();
        let entry = &write.entry;
        let at = usize::try_from(write.expect.unwrap_or(0)).unwrap_or(usize::MAX);
        let found = tables.docs.get(&(entry.kind, entry.id.clone())).map(|row| Found {
            version: row.events.len() as u64,
            state: row.state.to_owned(),
            after_expected: row.events.get(at).map(|(write, _)| write.clone()),
        });
        let mark = |(name, _): &(_, _)| tables.fences.get(leasehold_core::Name::as_str(name)).copied();
        let newest = write.fence.as_ref().and_then(mark);
        let key = entry.key.as_ref().map(|key| (entry.kind, key.clone()));
        let key_of = key.and_then(|key| tables.keys.get(&key).cloned());
        if let Some(answer) = judge(write, found.as_ref(), newest, key_of) {
            return Ok(answer);
        }
        if let Some((name, fence)) = &write.fence {
            tables.fences.insert(name.as_str().to_owned(), *fence);
        }
        let version = tables.put(entry, &write.id, now);
        let mut skipped = Vec::new();
        for entry in &write.also {
            if tables.docs.contains_key(&(entry.kind, entry.id.clone())) {
                skipped.push(entry.id.clone());
            } else {
                tables.put(entry, &write.id, now);
            }
        }
        for mail in &write.send {
            tables.post(mail, now);
        }
        Ok(Written::Done {
            version,
            repeated: false,
            skipped,
        })
    }

    async fn list(&self, query: &Query) -> Result<Vec<Doc>, Failure> {
        let now = self.now();
        let tables = self.lock();
        let mut found: Vec<_> = tables.matching(query, now).collect();
        found.sort_by_key(|(id, row)| (row.due.unwrap_or(u64::MAX), (*id).clone()));
        Ok(found
            .into_iter()
            .take(query.limit)
            .map(|(id, row)| doc(id, row, now))
            .collect())
    }

    async fn count(&self, query: &Query) -> Result<u64, Failure> {
        let now = self.now();
        let query = Query {
            due: false,
            ..query.clone()
        };
        Ok(self.lock().matching(&query, now).count() as u64)
    }

    async fn by_key(&self, kind: Kind, key: &str) -> Result<Option<String>, Failure> {
        Ok(self.lock().keys.get(&(kind, key.to_owned())).cloned())
    }

    async fn history(&self, kind: Kind, id: &str) -> Result<Vec<Event>, Failure> {
        let tables = self.lock();
        let row = tables.docs.get(&(kind, id.to_owned()));
        Ok(row.map_or_else(Vec::new, |row| {
            row.events.iter().map(|(_, event)| event.clone()).collect()
        }))
    }

    async fn take(&self, queue: Queue, limit: usize, visible: Duration) -> Result<Vec<Taken>, Failure> {
        let now = self.now();
        let mut tables = self.lock();
        let mut due: Vec<_> = tables
            .mail
            .iter_mut()
            .filter(|((of, _), letter)| *of == queue && letter.due <= now)
            .collect();
        due.sort_by_key(|((_, id), letter)| (letter.due, id.clone()));
        let taken = due.into_iter().take(limit).map(|((_, id), letter)| {
            letter.due = later(now, visible);
            letter.tries += 1;
            Taken {
                queue,
                id: id.clone(),
                to: letter.to.clone(),
                body: letter.body.clone(),
                tries: letter.tries,
            }
        });
        Ok(taken.collect())
    }

    async fn send(&self, mail: &Mail) -> Result<bool, Failure> {
        let now = self.now();
        Ok(self.lock().post(mail, now))
    }

    async fn settle(&self, taken: &Taken, settle: Settle) -> Result<bool, Failure> {
        let now = self.now();
        let mut tables = self.lock();
        let key = (taken.queue, taken.id.clone());
        let Some(letter) = tables
            .mail
            .get_mut(&key)
            .filter(|letter| letter.tries == taken.tries)
        else {
            return Ok(false);
        };
        match settle {
            Settle::Ack => {
                tables.mail.remove(&key);
            }
            Settle::Again(after) => letter.due = later(now, after),
        }
        Ok(true)
    }

    async fn purge(
        &self,
        kind: Kind,
        states: &[&'static str],
        keep: Duration,
        limit: usize,
    ) -> Result<u64, Failure> {
        let now = self.now();
        let mut tables = self.lock();
        let old = |row: &Row| later(row.updated, keep) <= now && states.contains(&row.state);
        let gone: Vec<_> = tables
            .docs
            .iter()
            .filter(|((of, _), row)| *of == kind && old(row))
            .map(|(key, _)| key.clone())
            .take(limit)
            .collect();
        for key in &gone {
            tables.docs.remove(key);
            tables.keys.retain(|(of, _), id| *of != kind || *id != key.1);
            tables.fences.remove(&format!("{}:{}", kind.word(), key.1));
        }
        Ok(gone.len() as u64)
    }
}
