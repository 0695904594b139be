//! Documents in memory: the reference semantics as a pure table, and the store's operations on it.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;

use async_trait::async_trait;

use super::MemoryStore;
use crate::clock::Moment;
use crate::store::{
    Document, DocumentList, DocumentOutcome, DocumentQuery, DocumentRead, DocumentWrite, Documents,
    ExpectedVersion, StoreError, WakeListener,
};
use crate::types::Name;

/// All documents of one store.
#[derive(Debug, Default)]
pub(super) struct DocumentTable {
    rows: BTreeMap<Name, StoredDocument>,
    // One counter for all names: a deleted name needs no record to continue its versions.
    last_version: u64,
}

#[derive(Debug)]
struct StoredDocument {
    version: u64,
    value: String,
    expires: Option<Moment>,
}

impl StoredDocument {
    fn is_live(&self, now: Moment) -> bool {
        self.expires.is_none_or(|expires| expires > now)
    }

    fn show(&self, name: &Name, now: Moment) -> Document {
        Document::new(name.clone(), self.version, self.value.clone())
            .with_remaining(self.expires.map(|expires| expires.since(now)))
    }
}

impl DocumentTable {
    fn read(&self, name: &Name, now: Moment) -> Option<Document> {
        self.rows.get(name).filter(|row| row.is_live(now)).map(|row| row.show(name, now))
    }

    fn list(&self, query: &DocumentQuery, now: Moment) -> DocumentList {
        let after = query.after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut found = self
            .rows
            .range((after, Bound::Unbounded))
            .filter(|(name, row)| name.as_str().starts_with(&query.prefix) && row.is_live(now))
            .map(|(name, row)| row.show(name, now));
        let documents: Vec<_> = found.by_ref().take(query.limit).collect();
        DocumentList::new(documents, found.next().is_some())
    }

    fn write(&mut self, request: &DocumentWrite, now: Moment, micros: u64) -> DocumentOutcome {
        let current = self.read(&request.name, now);
        if !request.expected.allows(current.as_ref().map(|document| document.version)) {
            return DocumentOutcome::Conflict(current);
        }
        // Expired documents are removed with each write, so that they do not accumulate.
        self.rows.retain(|_, row| row.is_live(now));
        self.last_version = micros.max(self.last_version.saturating_add(1));
        let stored = StoredDocument {
            version: self.last_version,
            value: request.value.clone(),
            expires: request.ttl.map(|ttl| now + ttl),
        };
        self.rows.insert(request.name.clone(), stored);
        DocumentOutcome::Changed(self.last_version)
    }

    fn delete(&mut self, name: &Name, expected: ExpectedVersion, now: Moment) -> DocumentOutcome {
        let current = self.read(name, now);
        let version = current.as_ref().map(|document| document.version);
        if !expected.allows(version) {
            return DocumentOutcome::Conflict(current);
        }
        self.rows.remove(name);
        DocumentOutcome::Changed(version.unwrap_or(0))
    }
}

#[async_trait]
impl Documents for MemoryStore {
    async fn read(&self, name: &Name, _within: Duration) -> Result<DocumentRead, StoreError> {
        let (now, store_time) = (self.clock.now(), self.clock.wall());
        Ok(DocumentRead::new(self.document_table().read(name, now), store_time))
    }

    async fn list(&self, query: &DocumentQuery, _within: Duration) -> Result<DocumentList, StoreError> {
        query.check()?;
        let now = self.clock.now();
        Ok(self.document_table().list(query, now))
    }

    async fn write(&self, request: &DocumentWrite, _within: Duration) -> Result<DocumentOutcome, StoreError> {
        request.check()?;
        let (now, micros) = (self.clock.now(), self.wall_micros());
        let outcome = self.document_table().write(request, now, micros);
        self.notify_followers(&request.name, &outcome);
        Ok(outcome)
    }

    async fn delete(
        &self,
        name: &Name,
        expected: ExpectedVersion,
        _within: Duration,
    ) -> Result<DocumentOutcome, StoreError> {
        let now = self.clock.now();
        let outcome = self.document_table().delete(name, expected, now);
        self.notify_followers(name, &outcome);
        Ok(outcome)
    }

    fn watch(&self, name: &Name) -> WakeListener {
        self.followers.listen_in_group(name.as_str())
    }
}

impl MemoryStore {
    fn notify_followers(&self, name: &Name, outcome: &DocumentOutcome) {
        if matches!(outcome, DocumentOutcome::Changed(_)) {
            self.followers.wake_group(name.as_str());
        }
    }
}
