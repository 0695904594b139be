//! Cancel requests for jobs whose lock another replica holds.
//!
//! A replica holds the lock of the job it works on, so no other process can cancel the job meanwhile.
//! The request is stored as a document of its own. The owner reads it within one poll, stops the work
//! and writes CANCELLED itself.

use leasehold_core::Hold;
use serde_json::{Value, json};

use crate::error::PlaneError;
use crate::fenced_writer::FencedWriter;
use crate::job::{Job, JobChange};
use crate::store::{
    Document, DocumentKind, DocumentQuery, Revision, WriteRefusal, WriteRequest, WriteResponse,
};

const OPEN_STATE: &str = "OPEN";
const DONE_STATE: &str = "DONE";

/// A stored request to cancel a job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CancelRequest {
    pub(crate) reason: String,
    /// The principal that requested it; none if the run of a step was cancelled.
    pub(crate) principal: Option<String>,
}

impl CancelRequest {
    pub(crate) fn read(doc: &Document) -> Self {
        let body: Value = serde_json::from_str(&doc.body).unwrap_or_default();
        Self {
            reason: body["cancel"].as_str().unwrap_or("cancelled").to_owned(),
            principal: body["principal"].as_str().map(str::to_owned),
        }
    }

    /// The change that carries the request out.
    pub(crate) fn change(self, job: &Job) -> JobChange {
        job.cancel(&self.reason).requested_by(self.principal)
    }

    fn in_state(&self, job: &str, state: &'static str) -> Revision {
        Revision {
            kind: DocumentKind::CancelRequest,
            id: job.to_owned(),
            state,
            due_in: None,
            index_key: String::new(),
            owner: String::new(),
            key: None,
            body: json!({"cancel": self.reason, "principal": self.principal}).to_string(),
            event: json!({"to": state, "principal": self.principal}).to_string(),
        }
    }
}

impl FencedWriter {
    /// Stores the request to cancel a job. A repeated request changes nothing.
    pub(crate) async fn request_cancel(&self, job: &str, request: &CancelRequest) -> Result<(), PlaneError> {
        // No fence: the requester holds no lock, and this document is not the job's own.
        let write = WriteRequest::new(self.new_id(), request.in_state(job, OPEN_STATE));
        match self.call(self.store.write(&write)).await? {
            WriteResponse::Applied { .. } | WriteResponse::Refused(WriteRefusal::Exists) => Ok(()),
            WriteResponse::Refused(refusal) => Err(refusal.into()),
        }
    }

    /// The open cancel request for the job, if there is one.
    pub(crate) async fn open_cancel_request(&self, job: &str) -> Result<Option<CancelRequest>, PlaneError> {
        let doc = self.call(self.store.read(DocumentKind::CancelRequest, job)).await?;
        Ok(doc.filter(|doc| doc.state == OPEN_STATE).map(|doc| CancelRequest::read(&doc)))
    }

    /// Cancel requests that are still open.
    pub(crate) async fn open_cancel_requests(&self, limit: usize) -> Result<Vec<Document>, PlaneError> {
        let query = DocumentQuery::new(DocumentKind::CancelRequest, [OPEN_STATE], limit);
        Ok(self.call(self.store.list(&query)).await?)
    }

    /// Marks a cancel request as done, because its job has ended.
    pub(crate) async fn close_cancel_request(&self, hold: &Hold, doc: &Document) -> Result<(), PlaneError> {
        let done = CancelRequest::read(doc).in_state(&doc.id, DONE_STATE);
        let write = WriteRequest {
            expected_version: Some(doc.version),
            allowed_states: vec![OPEN_STATE],
            ..WriteRequest::new(self.new_id(), done)
        };
        match self.commit(hold, write).await {
            // A version mismatch means that another replica has closed it: the same result.
            Ok(_) | Err(PlaneError::Refused(WriteRefusal::VersionMismatch { .. })) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// A cancel request to be created as part of another write.
pub(crate) fn cancel_request_revision(job: &str, request: &CancelRequest) -> Revision {
    request.in_state(job, OPEN_STATE)
}
