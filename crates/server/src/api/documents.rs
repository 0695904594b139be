//! The documents of the store: small records that the processes of a fleet share.
//!
//! In grants the kind is `doc`: `read:doc:policy` reads the document `policy`, `admin:doc:policy` changes it.

use std::sync::Arc;

use axum::extract::State;
use leasehold::store::{
    DocumentOutcome, DocumentQuery, DocumentWrite, Documents, StoreError, StoreErrorKind,
};
use leasehold::{InvalidInput, Name};
use leasehold_wire::{
    DocumentChangeView, DocumentListView, DocumentPut, DocumentReadView, DocumentView, expected_version,
};
use serde::Deserialize;
use utoipa::IntoParams;

use super::policies::require_audited;
use crate::api::document::{Caller, JsonBody, LockName, QueryParams};
use crate::api::history::parse_list_limit;
use crate::api::locks::{DEFAULT_STORE_TIMEOUT, check_prefix, parse_duration};
use crate::api::problem::Refusal;
use crate::auth::{Principal, Right};
use crate::state::app::App;
use crate::state::audit::AuditEntry;

/// The first segment of documents' names in grants.
pub(crate) const KIND: &str = "doc";

/// The list length if the caller names none.
const DEFAULT_LIST_LIMIT: usize = 100;
const MAX_LIST_LIMIT: usize = leasehold::store::MAX_DOCUMENTS_LISTED;
// Documents of others are read and filtered out. This bounds the work of one request.
const MAX_SCANNED_DOCUMENTS: usize = 10_000;
// One page of the store at a time is in memory.
const SCAN_PAGE: usize = 100;
// A list is cut here, so that one response is bounded whatever the documents contain.
const MAX_LIST_BYTES: usize = 1024 * 1024;

/// A document may have 64 KiB, and JSON writes a control character in six bytes.
pub(crate) const MAX_PUT_BODY_BYTES: usize = 6 * leasehold::store::MAX_DOCUMENT_BYTES + 1024;

/// The query of the document list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListParams {
    /// Only names that begin with this prefix.
    #[param(max_length = 512)]
    prefix: Option<String>,
    /// Only names after this one, in byte order.
    #[param(max_length = 512)]
    after: Option<String>,
    /// The maximum number of documents; 100 if not given.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 1000)]
    limit: Option<String>,
}

/// The query of a deletion.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct DeleteParams {
    /// Delete only this version.
    #[param(value_type = Option<u64>, maximum = 9_007_199_254_740_991_u64)]
    if_version: Option<String>,
    /// Delete nothing, only report whether there is such a document.
    #[param(value_type = Option<bool>)]
    if_absent: Option<String>,
}

fn documents(app: &App) -> Result<&dyn Documents, StoreError> {
    app.store().documents().ok_or_else(|| {
        StoreError::not_done(StoreErrorKind::Unsupported, "the daemon's store has no documents")
    })
}

/// The document's own name: the authorized one without its kind.
fn document_name(authorized: &Name) -> Result<Name, InvalidInput> {
    let text = authorized.as_str();
    Name::new(text.strip_prefix(KIND).and_then(|rest| rest.strip_prefix(':')).unwrap_or(text))
}

fn may_read(who: &Principal, name: &Name) -> bool {
    Name::new(&format!("{KIND}:{name}")).is_ok_and(|target| who.covers(Right::Read, &target))
}

/// Read a document
#[utoipa::path(
    get, path = "/v1/documents/{name}", tag = "documents", operation_id = "readDocument",
    params(("name" = String, Path, description = "The document", min_length = 1, max_length = 508, pattern = "^[^\\s{}\\x00-\\x1f\\x7f-\\x9f]+$")),
    responses((status = 200, description = "The document, or that there is none", body = DocumentReadView)),
)]
pub(crate) async fn read(
    State(app): State<Arc<App>>,
    LockName(name): LockName,
) -> Result<JsonBody<DocumentReadView>, Refusal> {
    let name = document_name(&name)?;
    let call = documents(&app)?.read(&name, DEFAULT_STORE_TIMEOUT);
    Ok(JsonBody(app.with_timeout(DEFAULT_STORE_TIMEOUT, call).await?.into()))
}

/// List documents
///
/// Lists the documents that the caller may read, ordered by name. A response has at most 1 MiB of values.
#[utoipa::path(
    get, path = "/v1/documents", tag = "documents", operation_id = "listDocuments", params(ListParams),
    responses((status = 200, description = "The documents", body = DocumentListView)),
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    Caller(who): Caller,
    QueryParams(which): QueryParams<ListParams>,
) -> Result<JsonBody<DocumentListView>, Refusal> {
    let limit = parse_list_limit(which.limit, DEFAULT_LIST_LIMIT, MAX_LIST_LIMIT)?;
    let mut query = DocumentQuery::new(check_prefix(which.prefix)?, SCAN_PAGE);
    query.after = which.after.map(|after| Name::new(&after)).transpose()?;
    let _share = app.take_list_share(&who)?;
    let mut list = DocumentListView { documents: Vec::new(), truncated: false };
    let (mut bytes, mut scanned) = (0, 0);
    loop {
        let call = documents(&app)?.list(&query, DEFAULT_STORE_TIMEOUT);
        let page = app.with_timeout(DEFAULT_STORE_TIMEOUT, call).await?;
        scanned += page.documents.len();
        query.after = page.documents.last().map(|document| document.name.clone());
        for document in page.documents {
            if !may_read(&who, &document.name) {
                continue;
            }
            bytes += document.value.len();
            // The first one is listed whatever its size, so that each page makes progress.
            if list.documents.len() == limit || (bytes > MAX_LIST_BYTES && !list.documents.is_empty()) {
                list.truncated = true;
                return Ok(JsonBody(list));
            }
            list.documents.push(DocumentView::from(document));
        }
        if !page.truncated {
            return Ok(JsonBody(list));
        }
        if scanned >= MAX_SCANNED_DOCUMENTS {
            list.truncated = true;
            return Ok(JsonBody(list));
        }
    }
}

/// Write a document
///
/// Creates or replaces it, if it is in the expected state. The value and its lifetime are replaced as a whole.
#[utoipa::path(
    put, path = "/v1/documents/{name}", tag = "documents", operation_id = "writeDocument",
    params(("name" = String, Path, description = "The document", min_length = 1, max_length = 508, pattern = "^[^\\s{}\\x00-\\x1f\\x7f-\\x9f]+$")),
    request_body = DocumentPut,
    responses((status = 200, description = "Written, or not in the expected state", body = DocumentChangeView)),
)]
pub(crate) async fn write(
    State(app): State<Arc<App>>,
    Caller(who): Caller,
    LockName(target): LockName,
    JsonBody(want): JsonBody<DocumentPut>,
) -> Result<JsonBody<DocumentChangeView>, Refusal> {
    let name = document_name(&target)?;
    name.check_visible()?;
    let expected = expected_version(want.if_version, want.if_absent)?;
    let ttl =
        parse_duration("ttl_ms", want.ttl_ms, 1, leasehold_wire::millis(leasehold::store::MAX_DOCUMENT_TTL))?;
    let mut request = DocumentWrite::new(name, want.value).expecting(expected);
    request.ttl = ttl;
    request.check().map_err(|refused| Refusal::invalid("value", refused.message().to_owned()))?;
    change(app, &who, "document.write", &target, move |app| async move {
        let call = documents(&app)?.write(&request, DEFAULT_STORE_TIMEOUT);
        app.with_timeout(DEFAULT_STORE_TIMEOUT, call).await
    })
    .await
}

/// Delete a document
#[utoipa::path(
    delete, path = "/v1/documents/{name}", tag = "documents", operation_id = "deleteDocument",
    params(
        ("name" = String, Path, description = "The document", min_length = 1, max_length = 508, pattern = "^[^\\s{}\\x00-\\x1f\\x7f-\\x9f]+$"),
        DeleteParams,
    ),
    responses((status = 200, description = "Deleted, or not in the expected state", body = DocumentChangeView)),
)]
pub(crate) async fn delete(
    State(app): State<Arc<App>>,
    Caller(who): Caller,
    LockName(target): LockName,
    QueryParams(which): QueryParams<DeleteParams>,
) -> Result<JsonBody<DocumentChangeView>, Refusal> {
    let name = document_name(&target)?;
    let version = match which.if_version.as_deref().map(str::parse::<u64>) {
        None => None,
        Some(Ok(version)) => Some(version),
        Some(Err(_)) => {
            return Err(Refusal::invalid("if_version", "if_version: must be a version, a whole number"));
        }
    };
    let absent = match which.if_absent.as_deref() {
        None | Some("false") => false,
        Some("true") => true,
        Some(_) => return Err(Refusal::invalid("if_absent", "if_absent: must be true or false")),
    };
    let expected = expected_version(version, absent)?;
    change(app, &who, "document.delete", &target, move |app| async move {
        let call = documents(&app)?.delete(&name, expected, DEFAULT_STORE_TIMEOUT);
        app.with_timeout(DEFAULT_STORE_TIMEOUT, call).await
    })
    .await
}

/// Records a change and makes it, to its end also if the caller disconnects.
async fn change<F>(
    app: Arc<App>,
    who: &Principal,
    action: &'static str,
    target: &Name,
    make: impl FnOnce(Arc<App>) -> F,
) -> Result<JsonBody<DocumentChangeView>, Refusal>
where
    F: Future<Output = Result<DocumentOutcome, StoreError>> + Send + 'static,
{
    documents(&app)?;
    let act = AuditEntry::new(action, who).name(target);
    // As for a policy: a change without a durable record must not happen.
    require_audited(app.audit.record_before(act).await)?;
    let work = make(Arc::clone(&app));
    Ok(JsonBody(app.run_to_end(work).await??.into()))
}
