//! A store whose names all have a prefix.

use std::time::Duration;

use async_trait::async_trait;

use crate::store::{
    AcquireRequest, AcquireResponse, Capabilities, Document, DocumentList, DocumentOutcome, DocumentQuery,
    DocumentRead, DocumentWrite, Documents, ExpectedVersion, LeaseList, PromiseReport, ReleaseRequest,
    ReleaseResponse, RenewRequest, RenewResponse, SharedStore, Store, StoreError, StoreErrorKind,
    WakeListener,
};
use crate::types::{InvalidInput, Name, Token};

/// A store that puts every name under a prefix, so that tenants of one server are isolated.
///
/// Code that has only this value can neither lock nor list a name outside the prefix (invariant
/// I12). The listing is filtered here too, whatever the inner store lists.
#[derive(Debug, Clone)]
pub struct PrefixedStore {
    inner: SharedStore,
    prefix: Name,
}

impl PrefixedStore {
    /// Wraps `inner`. The prefix must end in `:` or `/`: otherwise the names of `team` would
    /// contain those of `team2`.
    ///
    /// # Errors
    /// The prefix is not valid in a name, or does not end in a separator.
    pub fn new(inner: SharedStore, prefix: &str) -> Result<Self, InvalidInput> {
        if !prefix.ends_with([':', '/']) {
            return Err(InvalidInput::new("prefix", prefix, "must end in `:` or `/`"));
        }
        let prefix =
            Name::new(prefix).map_err(|refused| InvalidInput { field: "prefix".into(), ..refused })?;
        Ok(Self { inner, prefix })
    }

    /// The name in the inner store.
    fn with_prefix(&self, name: &Name) -> Result<Name, StoreError> {
        Name::new(&format!("{}{name}", self.prefix)).map_err(|_| {
            // Prefix and name are both valid, so only the length can be wrong.
            StoreError::not_done(
                StoreErrorKind::Misconfigured,
                format!(
                    "the name is {} bytes long and stands under the prefix `{}` of {} bytes; together at most {} are \
                     allowed: shorten one of them",
                    name.as_str().len(),
                    self.prefix,
                    self.prefix.as_str().len(),
                    Name::MAX
                ),
            )
        })
    }

    /// The caller's name; `None` if it is not under the prefix.
    fn without_prefix(&self, name: &Name) -> Option<Name> {
        name.as_str().strip_prefix(self.prefix.as_str()).and_then(|rest| Name::new(rest).ok())
    }

    fn renewal_with_prefix(&self, renewal: &RenewRequest) -> Result<RenewRequest, StoreError> {
        let names = renewal.names.try_map(|name| self.with_prefix(name))?;
        Ok(RenewRequest { names, ..renewal.clone() })
    }
}

#[async_trait]
impl Store for PrefixedStore {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn describe(&self) -> String {
        format!("{} under {}", self.inner.describe(), self.prefix)
    }

    async fn acquire(
        &self,
        request: &AcquireRequest,
        within: Duration,
    ) -> Result<AcquireResponse, StoreError> {
        let names = request.names.try_map(|name| self.with_prefix(name))?;
        self.inner.acquire(&AcquireRequest { names, ..request.clone() }, within).await
    }

    async fn renew(
        &self,
        batch: &[RenewRequest],
        within: Duration,
    ) -> Vec<Result<RenewResponse, StoreError>> {
        let prefixed: Vec<_> = batch.iter().map(|item| self.renewal_with_prefix(item)).collect();
        let fitting: Vec<_> = prefixed.iter().filter_map(|item| item.as_ref().ok().cloned()).collect();
        // Items that do not fit are refused here; the rest must still be renewed in one batch.
        let mut answers =
            if fitting.is_empty() { Vec::new() } else { self.inner.renew(&fitting, within).await }
                .into_iter();
        prefixed
            .into_iter()
            .map(|item| match item {
                Err(refused) => Err(refused),
                Ok(_) => answers.next().unwrap_or_else(|| {
                    Err(StoreError::unknown(
                        StoreErrorKind::Corrupt,
                        "the store answered fewer renewals than it was asked",
                    ))
                }),
            })
            .collect()
    }

    async fn release(
        &self,
        request: &ReleaseRequest,
        within: Duration,
    ) -> Result<ReleaseResponse, StoreError> {
        let names = request.names.try_map(|name| self.with_prefix(name))?;
        self.inner.release(&ReleaseRequest { names, ..request.clone() }, within).await
    }

    async fn inspect(&self, name: &Name, within: Duration) -> Result<LeaseList, StoreError> {
        let mut found = self.inner.inspect(&self.with_prefix(name)?, within).await?;
        found.leases.iter_mut().for_each(|lease| lease.name = name.clone());
        Ok(found)
    }

    async fn list(&self, prefix: &str, limit: usize, within: Duration) -> Result<LeaseList, StoreError> {
        let whole = format!("{}{prefix}", self.prefix);
        // One more than the limit: a name equal to the prefix is not shown and must not take a
        // place.
        let found = self.inner.list(&whole, limit.saturating_add(1), within).await?;
        let mut leases: Vec<_> = found
            .leases
            .into_iter()
            .filter_map(|mut lease| {
                lease.name = self.without_prefix(&lease.name)?;
                lease.name.as_str().starts_with(prefix).then_some(lease)
            })
            .collect();
        let truncated = found.truncated || leases.len() > limit;
        leases.truncate(limit);
        Ok(LeaseList::new(leases).with_truncated(truncated))
    }

    fn listen(&self, name: &Name, token: &Token) -> WakeListener {
        // A name that is too long is refused by `acquire`; until then there is no wake-up to wait
        // for.
        self.with_prefix(name).map_or_else(|_| WakeListener::never(), |name| self.inner.listen(&name, token))
    }

    fn documents(&self) -> Option<&dyn Documents> {
        self.inner.documents().map(|_| self as &dyn Documents)
    }

    async fn promise(&self, within: Duration) -> Result<PromiseReport, StoreError> {
        self.inner.promise(within).await
    }
}

impl PrefixedStore {
    fn inner_documents(&self) -> Result<&dyn Documents, StoreError> {
        self.inner
            .documents()
            .ok_or_else(|| StoreError::not_done(StoreErrorKind::Unsupported, "the store has no documents"))
    }

    fn shown_document(&self, mut document: Document) -> Option<Document> {
        document.name = self.without_prefix(&document.name)?;
        Some(document)
    }

    fn shown_outcome(&self, outcome: DocumentOutcome) -> DocumentOutcome {
        match outcome {
            DocumentOutcome::Conflict(current) => {
                DocumentOutcome::Conflict(current.and_then(|document| self.shown_document(document)))
            }
            changed @ DocumentOutcome::Changed(_) => changed,
        }
    }
}

#[async_trait]
impl Documents for PrefixedStore {
    async fn read(&self, name: &Name, within: Duration) -> Result<DocumentRead, StoreError> {
        let mut read = self.inner_documents()?.read(&self.with_prefix(name)?, within).await?;
        read.document = read.document.and_then(|document| self.shown_document(document));
        Ok(read)
    }

    async fn list(&self, query: &DocumentQuery, within: Duration) -> Result<DocumentList, StoreError> {
        query.check()?;
        // A document named exactly like the prefix takes a place of the first page and is not shown.
        // It sorts before all others, so the page starts after it.
        let after = match &query.after {
            Some(name) => self.with_prefix(name)?,
            None => self.prefix.clone(),
        };
        let inner = DocumentQuery::new(format!("{}{}", self.prefix, query.prefix), query.limit).after(after);
        let found = self.inner_documents()?.list(&inner, within).await?;
        // Filtered here too, whatever the inner store lists.
        let documents = found
            .documents
            .into_iter()
            .filter_map(|document| self.shown_document(document))
            .filter(|document| document.name.as_str().starts_with(&query.prefix))
            .collect();
        Ok(DocumentList::new(documents, found.truncated))
    }

    async fn write(&self, request: &DocumentWrite, within: Duration) -> Result<DocumentOutcome, StoreError> {
        let request = DocumentWrite { name: self.with_prefix(&request.name)?, ..request.clone() };
        Ok(self.shown_outcome(self.inner_documents()?.write(&request, within).await?))
    }

    async fn delete(
        &self,
        name: &Name,
        expected: ExpectedVersion,
        within: Duration,
    ) -> Result<DocumentOutcome, StoreError> {
        let name = self.with_prefix(name)?;
        Ok(self.shown_outcome(self.inner_documents()?.delete(&name, expected, within).await?))
    }

    fn watch(&self, name: &Name) -> WakeListener {
        match (self.inner.documents(), self.with_prefix(name)) {
            (Some(documents), Ok(name)) => documents.watch(&name),
            _ => WakeListener::never(),
        }
    }
}
