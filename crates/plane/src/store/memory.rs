//! The reference store, in the memory of one process. The other stores must behave like this one.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry::Vacant;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use leasehold_core::Fence;
use leasehold_core::clock::SharedClock;
use leasehold_core::store::StoreError;

use super::{
    CurrentDocument, Delivery, Disposition, Document, DocumentEvent, DocumentKey, DocumentKind, DocumentPage,
    DocumentQuery, KEPT_FIRST_EVENTS, KEPT_NEWEST_EVENTS, KeptEnded, KeySpace, MAX_DELETED_PER_WRITE,
    Message, PlaneStore, Queue, Revision, WriteRequest, WriteResponse, check_write, document_scope,
    is_ended_job_of, step_jobs,
};

/// A plane store in memory, for tests and examples.
#[derive(Debug)]
pub struct MemoryPlane {
    clock: SharedClock,
    tables: Mutex<Tables>,
}

#[derive(Debug, Default)]
struct Tables {
    docs: BTreeMap<(DocumentKind, String), StoredDocument>,
    keys: BTreeMap<(DocumentKind, KeySpace, String), String>,
    fences: BTreeMap<String, Fence>,
    messages: BTreeMap<(Queue, String), StoredMessage>,
}

#[derive(Debug)]
struct StoredDocument {
    version: u64,
    state: &'static str,
    due: Option<u64>,
    index_key: String,
    owner: String,
    created: u64,
    updated: u64,
    body: String,
    // Each with the id of the write that made it: a repeated write is recognised by that id.
    events: Vec<(String, DocumentEvent)>,
}

#[derive(Debug)]
struct StoredMessage {
    document_id: String,
    body: String,
    due: u64,
    tries: u64,
}

impl MemoryPlane {
    /// An empty store that reads its times from this clock.
    #[must_use]
    pub fn new(clock: SharedClock) -> Self {
        Self { clock, tables: Mutex::default() }
    }

    fn now(&self) -> u64 {
        unix_millis(self.clock.wall())
    }

    fn lock(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn unix_millis(wall: SystemTime) -> u64 {
    let since = wall.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

pub(crate) fn add_to_millis(now: u64, ahead: Duration) -> u64 {
    now.saturating_add(u64::try_from(ahead.as_millis()).unwrap_or(u64::MAX))
}

impl Tables {
    fn store_revision(&mut self, entry: &Revision, write: &str, now: u64) -> u64 {
        let row = self.docs.entry((entry.kind, entry.id.clone())).or_insert_with(|| StoredDocument {
            version: 0,
            state: entry.state,
            due: None,
            index_key: String::new(),
            owner: String::new(),
            created: now,
            updated: now,
            body: String::new(),
            events: Vec::new(),
        });
        row.state = entry.state;
        row.due = entry.due_in.map(|ahead| add_to_millis(now, ahead));
        row.index_key.clone_from(&entry.index_key);
        row.owner.clone_from(&entry.owner);
        row.updated = now;
        row.body.clone_from(&entry.body);
        row.version += 1;
        let version = row.version;
        let event = DocumentEvent { version, at: now, body: entry.event.clone() };
        row.events.push((write.to_owned(), event));
        if row.events.len() as u64 > KEPT_FIRST_EVENTS + KEPT_NEWEST_EVENTS {
            row.events.remove(KEPT_FIRST_EVENTS as usize);
        }
        if let Some(key) = &entry.key {
            let key = (entry.kind, key.space(), key.text().to_owned());
            self.keys.entry(key).or_insert_with(|| entry.id.clone());
        }
        version
    }

    fn find_id_by_key(&self, kind: DocumentKind, key: &DocumentKey) -> Option<String> {
        let found = self.keys.get(&(kind, key.space(), key.text().to_owned()));
        let earlier = || {
            let earlier = key.earlier()?;
            let id = self.keys.get(&(kind, KeySpace::Unscoped, earlier.text.clone()))?;
            let row = self.docs.get(&(kind, id.clone()))?;
            (document_scope(kind, id, &row.body) == earlier.scope).then_some(id)
        };
        found.or_else(earlier).cloned()
    }

    /// Deletes a document with all that belongs to it.
    fn forget(&mut self, kind: DocumentKind, id: &str) {
        let Some(row) = self.docs.remove(&(kind, id.to_owned())) else { return };
        self.keys.retain(|(of, ..), other| *of != kind || other != id);
        // The lock name of the document. Fence marks would otherwise accumulate for ever.
        self.fences.remove(&format!("{}:{id}", kind.as_str()));
        match kind {
            DocumentKind::Run => {
                for job in step_jobs(id, &row.body) {
                    let found = self.docs.get(&(DocumentKind::Job, job.clone()));
                    if found.is_some_and(|found| is_ended_job_of(id, found.state, &found.body)) {
                        self.forget(DocumentKind::Job, &job);
                    }
                }
            }
            DocumentKind::Job => self.forget(DocumentKind::CancelRequest, id),
            DocumentKind::Workflow | DocumentKind::CancelRequest => {}
        }
    }

    /// Deletes the oldest ended documents of an owner beyond those that are kept.
    fn forget_ended(&mut self, kind: DocumentKind, owner: &str, kept: &KeptEnded) {
        let of = |row: &StoredDocument| row.owner == owner && kept.states.contains(&row.state);
        let all = self.docs.iter().filter(|((of_kind, _), row)| *of_kind == kind && of(row));
        let mut ended: Vec<_> = all.map(|((_, id), row)| (row.updated, id.clone())).collect();
        ended.sort();
        let extra = (ended.len() as u64).saturating_sub(kept.limit).min(MAX_DELETED_PER_WRITE);
        for (_, id) in ended.into_iter().take(extra as usize) {
            self.forget(kind, &id);
        }
    }

    /// Queues the message. False if one with this id is queued already.
    fn enqueue(&mut self, message: &Message, now: u64) -> bool {
        // An existing message keeps its due time and count: a repeated send must not restart it.
        let Vacant(place) = self.messages.entry((message.queue, message.id.clone())) else {
            return false;
        };
        place.insert(StoredMessage {
            document_id: message.document_id.clone(),
            body: message.body.clone(),
            due: add_to_millis(now, message.due_in),
            tries: 0,
        });
        true
    }

    fn count_owned(&self, write: &WriteRequest, now: u64) -> u64 {
        let Some(quota) = &write.quota else { return 0 };
        let mut query = DocumentQuery::new(write.revision.kind, quota.states.iter().copied(), 0);
        query.owner = Some(write.revision.owner.clone());
        self.matching(&query, now).count() as u64
    }

    fn matching<'a>(
        &'a self,
        query: &'a DocumentQuery,
        now: u64,
    ) -> impl Iterator<Item = (&'a String, &'a StoredDocument)> {
        self.docs
            .iter()
            .filter(move |((kind, _), row)| {
                *kind == query.kind
                    && query.states.contains(&row.state)
                    && query.index_key.as_ref().is_none_or(|shelf| *shelf == row.index_key)
                    && query.owner.as_ref().is_none_or(|owner| *owner == row.owner)
                    && (!query.due_only || row.due.is_some_and(|due| due <= now))
            })
            .map(|((_, id), row)| (id, row))
    }
}

fn to_document(id: &str, row: &StoredDocument, now: u64) -> Document {
    Document {
        id: id.to_owned(),
        version: row.version,
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
    async fn read(&self, kind: DocumentKind, id: &str) -> Result<Option<Document>, StoreError> {
        let now = self.now();
        let tables = self.lock();
        Ok(tables.docs.get(&(kind, id.to_owned())).map(|row| to_document(id, row, now)))
    }

    async fn write(&self, write: &WriteRequest) -> Result<WriteResponse, StoreError> {
        let now = self.now();
        let mut tables = self.lock();
        let entry = &write.revision;
        // The event after the expected version: if this write made it, the write is a repetition.
        let after_expected = write.expected_version.unwrap_or(0) + 1;
        let found = tables.docs.get(&(entry.kind, entry.id.clone())).map(|row| CurrentDocument {
            version: row.version,
            state: row.state.to_owned(),
            write_after_expected: row
                .events
                .iter()
                .find(|(_, event)| event.version == after_expected)
                .map(|(write, _)| write.clone()),
        });
        let mark = |(name, _): &(_, _)| tables.fences.get(leasehold_core::Name::as_str(name)).copied();
        let newest = write.fence.as_ref().and_then(mark);
        let key_of = entry.key.as_ref().and_then(|key| tables.find_id_by_key(entry.kind, key));
        let owned = tables.count_owned(write, now);
        if let Some(answer) = check_write(write, found.as_ref(), newest, key_of, owned) {
            return Ok(answer);
        }
        if let Some((name, fence)) = &write.fence {
            tables.fences.insert(name.as_str().to_owned(), *fence);
        }
        if write.only_due_time {
            if let Some(row) = tables.docs.get_mut(&(entry.kind, entry.id.clone())) {
                row.due = entry.due_in.map(|ahead| add_to_millis(now, ahead));
            }
            let version = write.expected_version.unwrap_or(0);
            return Ok(WriteResponse::Applied { version, repeated: false, already_existing: Vec::new() });
        }
        let version = tables.store_revision(entry, &write.id, now);
        let mut skipped = Vec::new();
        for entry in &write.new_documents {
            if tables.docs.contains_key(&(entry.kind, entry.id.clone())) {
                skipped.push(entry.id.clone());
            } else {
                tables.store_revision(entry, &write.id, now);
            }
        }
        for message in &write.messages {
            tables.enqueue(message, now);
        }
        if let Some(kept) = write.quota.as_ref().and_then(|quota| quota.kept_ended.as_ref()) {
            tables.forget_ended(entry.kind, &entry.owner, kept);
        }
        Ok(WriteResponse::Applied { version, repeated: false, already_existing: skipped })
    }

    async fn page(&self, query: &DocumentQuery) -> Result<DocumentPage, StoreError> {
        let now = self.now();
        let tables = self.lock();
        let position = |id: &str, due: Option<u64>| (due.unwrap_or(u64::MAX), id.to_owned());
        let after = query.after.as_ref().map(|after| position(&after.id, after.due));
        let mut found: Vec<_> = tables
            .matching(query, now)
            .filter(|(id, row)| query.scope.as_ref().is_none_or(|scope| scope.contains(id, &row.index_key)))
            .map(|(id, row)| (position(id, row.due), row))
            .filter(|(at, _)| after.as_ref().is_none_or(|after| at > after))
            .collect();
        found.sort_by(|(one, _), (other, _)| one.cmp(other));
        let some = found.into_iter().take(query.limit.saturating_add(1));
        let documents = some.map(|((_, id), row)| to_document(&id, row, now)).collect();
        Ok(DocumentPage::cut(documents, query.limit))
    }

    async fn count(&self, query: &DocumentQuery) -> Result<u64, StoreError> {
        let now = self.now();
        let query = DocumentQuery { due_only: false, ..query.clone() };
        Ok(self.lock().matching(&query, now).count() as u64)
    }

    async fn find_id_by_key(
        &self,
        kind: DocumentKind,
        key: &DocumentKey,
    ) -> Result<Option<String>, StoreError> {
        Ok(self.lock().find_id_by_key(kind, key))
    }

    async fn history(&self, kind: DocumentKind, id: &str) -> Result<Vec<DocumentEvent>, StoreError> {
        let tables = self.lock();
        let row = tables.docs.get(&(kind, id.to_owned()));
        Ok(row.map_or_else(Vec::new, |row| row.events.iter().map(|(_, event)| event.clone()).collect()))
    }

    async fn receive(
        &self,
        queue: Queue,
        limit: usize,
        visible: Duration,
    ) -> Result<Vec<Delivery>, StoreError> {
        let now = self.now();
        let mut tables = self.lock();
        let mut due: Vec<_> = tables
            .messages
            .iter_mut()
            .filter(|((of, _), letter)| *of == queue && letter.due <= now)
            .collect();
        due.sort_by_key(|((_, id), letter)| (letter.due, id.clone()));
        let taken = due.into_iter().take(limit).map(|((_, id), letter)| {
            // Hidden by its due time, not removed: if the receiver dies, the message becomes due again.
            letter.due = add_to_millis(now, visible);
            letter.tries += 1;
            Delivery {
                queue,
                id: id.clone(),
                document_id: letter.document_id.clone(),
                body: letter.body.clone(),
                tries: letter.tries,
            }
        });
        Ok(taken.collect())
    }

    async fn send(&self, message: &Message) -> Result<bool, StoreError> {
        let now = self.now();
        Ok(self.lock().enqueue(message, now))
    }

    async fn settle(&self, taken: &Delivery, settle: Disposition) -> Result<bool, StoreError> {
        let now = self.now();
        let mut tables = self.lock();
        let key = (taken.queue, taken.id.clone());
        let Some(letter) = tables
            .messages
            .get_mut(&key)
            // An older delivery's receiver was too slow; the message belongs to a later one.
            .filter(|letter| letter.tries == taken.tries)
        else {
            return Ok(false);
        };
        match settle {
            Disposition::Ack => {
                tables.messages.remove(&key);
            }
            Disposition::Redeliver(after) => letter.due = add_to_millis(now, after),
        }
        Ok(true)
    }

    async fn purge(
        &self,
        kind: DocumentKind,
        states: &[&'static str],
        keep: Duration,
        limit: usize,
    ) -> Result<u64, StoreError> {
        let now = self.now();
        let mut tables = self.lock();
        let old =
            |row: &StoredDocument| add_to_millis(row.updated, keep) <= now && states.contains(&row.state);
        let gone: Vec<_> = tables
            .docs
            .iter()
            .filter(|((of, _), row)| *of == kind && old(row))
            .map(|(key, _)| key.clone())
            .take(limit)
            .collect();
        for key in &gone {
            tables.forget(kind, &key.1);
        }
        Ok(gone.len() as u64)
    }
}
