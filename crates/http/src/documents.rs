//! Documents of the daemon's store, for processes that have no access to the store itself.

use std::time::Duration;

use async_trait::async_trait;
use http::Method;
use hyper::body::Bytes;
use leasehold_core::Name;
use leasehold_core::store::{
    DocumentList, DocumentOutcome, DocumentQuery, DocumentRead, DocumentWrite, Documents, ExpectedVersion,
    StoreError,
};

use crate::connection::to_json;
use crate::error;
use crate::inspect::read_document;
use crate::store::{HttpStore, escape_segment};
use crate::wire::{DocumentChangeView, DocumentListView, DocumentPut, DocumentReadView, millis};

fn document_path(name: &Name) -> String {
    format!("/v1/documents/{}", escape_segment(name.as_str()))
}

// The fields of a request that state what must be there.
fn expected_fields(expected: ExpectedVersion) -> (Option<u64>, bool) {
    match expected {
        ExpectedVersion::Exactly(version) => (Some(version), false),
        ExpectedVersion::Absent => (None, true),
        _ => (None, false),
    }
}

#[async_trait]
impl Documents for HttpStore {
    async fn read(&self, name: &Name, _within: Duration) -> Result<DocumentRead, StoreError> {
        let read = async {
            let view: DocumentReadView =
                read_document(self.connections.get(&document_path(name)).await?, "document")?;
            view.into_read().map_err(|_| error::malformed_response("a read of a document"))
        };
        read.await.map_err(error::mark_read_only)
    }

    async fn list(&self, query: &DocumentQuery, _within: Duration) -> Result<DocumentList, StoreError> {
        query.check()?;
        let mut path =
            format!("/v1/documents?prefix={}&limit={}", escape_segment(&query.prefix), query.limit);
        if let Some(after) = &query.after {
            path.push_str(&format!("&after={}", escape_segment(after.as_str())));
        }
        let list = async {
            let view: DocumentListView = read_document(self.connections.get(&path).await?, "documents")?;
            view.into_list().map_err(|_| error::malformed_response("a list of documents"))
        };
        list.await.map_err(error::mark_read_only)
    }

    async fn write(&self, request: &DocumentWrite, _within: Duration) -> Result<DocumentOutcome, StoreError> {
        request.check()?;
        let (if_version, if_absent) = expected_fields(request.expected);
        let ttl_ms = request.ttl.map(|ttl| millis(ttl).max(1));
        let body = DocumentPut { value: request.value.clone(), if_version, if_absent, ttl_ms };
        let sent = self
            .connections
            .call(
                Method::PUT,
                &document_path(&request.name),
                "application/json",
                Bytes::from(to_json(&body)?),
            )
            .await?;
        change_outcome(read_document(sent, "document")?)
    }

    async fn delete(
        &self,
        name: &Name,
        expected: ExpectedVersion,
        _within: Duration,
    ) -> Result<DocumentOutcome, StoreError> {
        let path = document_path(name);
        let path = match expected_fields(expected) {
            (Some(version), _) => format!("{path}?if_version={version}"),
            (None, true) => format!("{path}?if_absent=true"),
            (None, false) => path,
        };
        let sent = self.connections.call(Method::DELETE, &path, "application/json", Bytes::new()).await?;
        change_outcome(read_document(sent, "document")?)
    }
}

fn change_outcome(view: DocumentChangeView) -> Result<DocumentOutcome, StoreError> {
    // The change may have been made, and the response does not say so.
    view.into_outcome().map_err(|_| error::malformed_response("a change of a document"))
}
