//! Renewals: a single one, or many of a namespace in one request.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::store::{RenewRequest, RenewResponse, StoreError, StoreErrorKind};

use crate::connection::Connections;
use crate::error;
use crate::store::{CAPABILITIES, escape_segment, lock_path};
use crate::wire::{ErrorCode, Renew, RenewBatch, RenewItem, Renewals, RenewedView, Secret, millis};

// The daemon reads bodies of up to 16 KiB; the rest is room for the JSON around the items.
const MAX_BATCH_BYTES: usize = 14 * 1024;
// The daemon refuses more.
const MAX_BATCH_ITEMS: usize = 200;

/// Renews a batch and returns one result per item, in order. Only items of one namespace share a
/// request, because rights are per namespace.
pub(crate) async fn renew(
    connections: &Connections,
    batch: &[RenewRequest],
    within: Duration,
) -> Vec<Result<RenewResponse, StoreError>> {
    // The route of a single lock needs a right on that name only, not on the namespace.
    if let [only] = batch {
        return vec![renew_one(connections, only, within).await];
    }
    // Every item starts as unknown, so that a missing result stays unknown.
    let mut results: Vec<_> = (0..batch.len()).map(|_| Err(missing_result())).collect();
    let mut parts: Vec<RenewChunk<'_>> = Vec::new();
    let mut open: BTreeMap<&str, usize> = BTreeMap::new();
    for (at, renewal) in batch.iter().enumerate() {
        if let Err(refused) = CAPABILITIES.check_names(&renewal.names) {
            results[at] = Err(refused);
            continue;
        }
        let (namespace, size) = (renewal.names.first().namespace(), json_size(renewal));
        let fits = open.get(namespace).copied().filter(|part| {
            let part = &parts[*part];
            part.items.len() < MAX_BATCH_ITEMS && part.bytes + size <= MAX_BATCH_BYTES
        });
        let part = fits.unwrap_or_else(|| {
            parts.push(RenewChunk { namespace, items: Vec::new(), bytes: 0 });
            open.insert(namespace, parts.len() - 1);
            parts.len() - 1
        });
        parts[part].items.push((at, renewal));
        parts[part].bytes += size;
    }
    let sent = join_all(parts.iter().map(|part| renew_chunk(connections, part, within))).await;
    for (part, answers) in parts.iter().zip(sent) {
        for ((at, _), answer) in part.items.iter().zip(answers) {
            results[*at] = answer;
        }
    }
    results
}

/// The items of one request.
struct RenewChunk<'a> {
    namespace: &'a str,
    items: Vec<(usize, &'a RenewRequest)>,
    bytes: usize,
}

/// An upper bound for the item's JSON. A byte of a name may take six (`\u0000`), most take one.
fn json_size(renewal: &RenewRequest) -> usize {
    let quoted = |text: &str| serde_json::to_string(text).map_or(usize::MAX / 2, |json| json.len());
    // 120 bytes cover the other fields and the punctuation.
    quoted(renewal.names.first().as_str()) + quoted(renewal.token.expose()) + 120
}

async fn renew_one(
    connections: &Connections,
    renewal: &RenewRequest,
    within: Duration,
) -> Result<RenewResponse, StoreError> {
    CAPABILITIES.check_names(&renewal.names)?;
    let document = Renew {
        token: Secret::new(renewal.token.expose()),
        fence: renewal.fence,
        ttl_ms: Some(renewal.ttl.as_millis()),
        lock_delay_ms: Some(millis(renewal.lock_delay)),
        within_ms: Some(millis(within).max(1)),
    };
    let answer = connections.post(&lock_path(renewal.names.first(), "/renew"), &document).await?;
    if answer.status == 200 {
        return renew_result(answer.parse_document("renew")?);
    }
    match answer.error_code() {
        Some(ErrorCode::NotOwned) => Ok(RenewResponse::NotOwned),
        _ => Err(error::error_from_response(&answer)),
    }
}

async fn renew_chunk(
    connections: &Connections,
    part: &RenewChunk<'_>,
    within: Duration,
) -> Vec<Result<RenewResponse, StoreError>> {
    let item = |(_, renewal): &(usize, &RenewRequest)| RenewItem {
        name: renewal.names.first().to_string(),
        token: Secret::new(renewal.token.expose()),
        fence: renewal.fence,
        ttl_ms: renewal.ttl.as_millis(),
        lock_delay_ms: Some(millis(renewal.lock_delay)),
    };
    let document =
        RenewBatch { items: part.items.iter().map(item).collect(), within_ms: Some(millis(within).max(1)) };
    let path = format!("/v1/namespaces/{}/renew", escape_segment(part.namespace));
    let asked = async {
        let answer = connections.post(&path, &document).await?;
        if answer.status != 200 {
            return Err(error::error_from_response(&answer));
        }
        answer.parse_document::<Renewals>("renew")
    };
    match asked.await {
        // If the daemon returns too few results, the rest stay unknown.
        Ok(renewals) => renewals.results.into_iter().map(renew_result).collect(),
        Err(failure) => part.items.iter().map(|_| Err(copy_error(&failure))).collect(),
    }
}

fn renew_result(view: RenewedView) -> Result<RenewResponse, StoreError> {
    match view {
        RenewedView::Extended { was_left_ms, .. } => {
            Ok(RenewResponse::extended(was_left_ms.map(Duration::from_millis)))
        }
        RenewedView::NotOwned => Ok(RenewResponse::NotOwned),
        RenewedView::Failed { cause, unknown, detail } => {
            let cause = error::parse_cause(&cause).unwrap_or(StoreErrorKind::Unreachable);
            Err(if unknown {
                StoreError::unknown(cause, detail)
            } else {
                StoreError::not_done(cause, detail)
            })
        }
    }
}

fn missing_result() -> StoreError {
    StoreError::unknown(StoreErrorKind::Corrupt, "the daemon did not answer this renewal")
}

/// A copy of the error, because all items of a failed request share it.
fn copy_error(failure: &StoreError) -> StoreError {
    let repeat = if failure.unknown { StoreError::unknown } else { StoreError::not_done };
    repeat(failure.kind, failure.message().to_owned())
}
