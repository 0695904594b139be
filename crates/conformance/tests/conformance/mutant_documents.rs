//! The documents of a memory store with one selected defect.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use leasehold_core::Name;
use leasehold_core::store::{
    DocumentList, DocumentOutcome, DocumentQuery, DocumentRead, DocumentWrite, Documents, ExpectedVersion,
    MAX_DOCUMENT_BYTES, MAX_DOCUMENTS_LISTED, SharedStore, StoreError, WakeListener,
};

/// The defect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DocumentBug {
    NoDocuments,
    ValueIsTrimmed,
    VersionsStartAgain,
    ExpectedIgnoredByWrite,
    ExpectedIgnoredByDelete,
    ConflictIsEmpty,
    LifetimeIgnored,
    FirstLifetimeStays,
    CaseIgnored,
    PrefixIgnored,
    AfterIgnored,
    TruncationNotReported,
    BoundsIgnored,
    StoreTimeStands,
    FollowersSleep,
    StrangersWake,
}

/// Documents with a [`DocumentBug`].
#[derive(Debug)]
pub(crate) struct MutantDocuments {
    pub(crate) bug: DocumentBug,
    pub(crate) inner: SharedStore,
    /// Shared by all handles of a fixture.
    pub(crate) memory: Arc<Mutex<DocumentMemory>>,
}

/// State that the defects need.
#[derive(Debug, Default)]
pub(crate) struct DocumentMemory {
    // Versions by name, of the defect that counts them anew after a deletion.
    versions: HashMap<Name, u64>,
    first_lifetime: HashMap<Name, Option<Duration>>,
    first_time: Option<SystemTime>,
}

impl MutantDocuments {
    fn inner(&self) -> &dyn Documents {
        self.inner.documents().unwrap()
    }

    fn name(&self, name: &Name) -> Name {
        match self.bug {
            DocumentBug::CaseIgnored => Name::new(&name.as_str().to_lowercase()).unwrap(),
            _ => name.clone(),
        }
    }

    fn expected(&self, expected: ExpectedVersion, ignored_by: DocumentBug) -> ExpectedVersion {
        if self.bug == ignored_by || self.bug == DocumentBug::VersionsStartAgain {
            return ExpectedVersion::Any;
        }
        expected
    }

    fn mutate_outcome(&self, outcome: DocumentOutcome) -> DocumentOutcome {
        match outcome {
            DocumentOutcome::Conflict(Some(_)) if self.bug == DocumentBug::ConflictIsEmpty => {
                DocumentOutcome::Conflict(None)
            }
            other => other,
        }
    }
}

#[async_trait]
impl Documents for MutantDocuments {
    async fn read(&self, name: &Name, within: Duration) -> Result<DocumentRead, StoreError> {
        let mut read = self.inner().read(&self.name(name), within).await?;
        let mut memory = self.memory.lock().unwrap();
        if let Some(document) = &mut read.document {
            document.name = name.clone();
            if self.bug == DocumentBug::ValueIsTrimmed {
                document.value = document.value.trim_end_matches("end").replace('\0', "");
            }
            if self.bug == DocumentBug::VersionsStartAgain {
                document.version = memory.versions.get(name).copied().unwrap_or(0);
            }
        }
        if self.bug == DocumentBug::StoreTimeStands {
            read.store_time = *memory.first_time.get_or_insert(read.store_time);
        }
        Ok(read)
    }

    async fn list(&self, query: &DocumentQuery, within: Duration) -> Result<DocumentList, StoreError> {
        let mut query = query.clone();
        match self.bug {
            DocumentBug::PrefixIgnored => query.prefix.clear(),
            DocumentBug::AfterIgnored => query.after = None,
            DocumentBug::BoundsIgnored => query.limit = query.limit.clamp(1, MAX_DOCUMENTS_LISTED),
            _ => {}
        }
        let mut page = self.inner().list(&query, within).await?;
        page.truncated &= self.bug != DocumentBug::TruncationNotReported;
        Ok(page)
    }

    async fn write(&self, request: &DocumentWrite, within: Duration) -> Result<DocumentOutcome, StoreError> {
        let mut request = request.clone();
        request.name = self.name(&request.name);
        request.expected = self.expected(request.expected, DocumentBug::ExpectedIgnoredByWrite);
        match self.bug {
            DocumentBug::LifetimeIgnored => request.ttl = None,
            DocumentBug::FirstLifetimeStays => {
                let mut memory = self.memory.lock().unwrap();
                request.ttl = *memory.first_lifetime.entry(request.name.clone()).or_insert(request.ttl);
            }
            DocumentBug::BoundsIgnored => {
                request.value.truncate(MAX_DOCUMENT_BYTES);
                request.ttl = None;
            }
            _ => {}
        }
        let outcome = self.inner().write(&request, within).await?;
        if self.bug == DocumentBug::VersionsStartAgain {
            let mut memory = self.memory.lock().unwrap();
            let version = memory.versions.entry(request.name).or_insert(0);
            *version += 1;
            return Ok(DocumentOutcome::Changed(*version));
        }
        Ok(self.mutate_outcome(outcome))
    }

    async fn delete(
        &self,
        name: &Name,
        expected: ExpectedVersion,
        within: Duration,
    ) -> Result<DocumentOutcome, StoreError> {
        let expected = self.expected(expected, DocumentBug::ExpectedIgnoredByDelete);
        let outcome = self.inner().delete(&self.name(name), expected, within).await?;
        if self.bug == DocumentBug::VersionsStartAgain {
            let ended = self.memory.lock().unwrap().versions.remove(name);
            return Ok(DocumentOutcome::Changed(ended.unwrap_or(0)));
        }
        Ok(self.mutate_outcome(outcome))
    }

    fn watch(&self, name: &Name) -> WakeListener {
        match self.bug {
            DocumentBug::FollowersSleep => WakeListener::never(),
            // Follows the document that the other followers of the case follow.
            DocumentBug::StrangersWake => self.inner().watch(&Name::new("policy").unwrap()),
            _ => self.inner().watch(name),
        }
    }
}
