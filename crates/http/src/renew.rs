//! Renewals: one by one, or many of a namespace in one request.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::store::{Cause, Failure, Renewal, Renewed};

use crate::connection::Connections;
use crate::error;
use crate::store::{route, segment};
use crate::wire::{Renew, RenewBatch, RenewItem, Renewals, RenewedView, Secret, millis};

/// The most bytes of items in one request: a daemon reads no more than 16 KiB.
const BYTES: usize = 14 * 1024;
/// The most items in one request.
const ITEMS: usize = 200;

/// One result per item, in order. Items of one namespace share requests, since a right is a namespace's.
pub(crate) async fn renew(
    connections: &Connections,
    batch: &[Renewal],
    within: Duration,
) -> Vec<Result<Renewed, Failure>> {
    if let [only] = batch {
        return vec![one(connections, only, within).await];
    }
    let mut parts: Vec<Part<'_>> = Vec::new();
    let mut open: BTreeMap<&str, usize> = BTreeMap::new();
    for (at, renewal) in batch.iter().enumerate() {
        let (namespace, size) = (renewal.name.namespace(), size(renewal));
        let fits = open.get(namespace).copied().filter(|part| {
            let part = &parts[*part];
            part.items.len() < ITEMS && part.bytes + size <= BYTES
        });
        let part = fits.unwrap_or_else(|| {
            parts.push(Part {
                namespace,
                items: Vec::new(),
                bytes: 0,
            });
            open.insert(namespace, parts.len() - 1);
            parts.len() - 1
        });
        parts[part].items.push((at, renewal));
        parts[part].bytes += size;
    }
    let sent = join_all(parts.iter().map(|part| many(connections, part, within))).await;
    let mut results: Vec<_> = (0..batch.len()).map(|_| Err(unanswered())).collect();
    for (part, answers) in parts.iter().zip(sent) {
        for ((at, _), answer) in part.items.iter().zip(answers) {
            results[*at] = answer;
        }
    }
    results
}

/// Items that travel together.
struct Part<'a> {
    namespace: &'a str,
    items: Vec<(usize, &'a Renewal)>,
    bytes: usize,
}

/// At least what the item takes as JSON: every byte of a name may become six (`\u0000`), most stay one.
fn size(renewal: &Renewal) -> usize {
    let quoted = |text: &str| serde_json::to_string(text).map_or(usize::MAX / 2, |json| json.len());
    quoted(renewal.name.as_str()) + quoted(renewal.token.expose()) + 120
}

async fn one(connections: &Connections, renewal: &Renewal, within: Duration) -> Result<Renewed, Failure> {
    let document = Renew {
        token: Secret::new(renewal.token.expose()),
        fence: renewal.fence,
        ttl_ms: Some(renewal.ttl.as_millis()),
        lock_delay_ms: Some(millis(renewal.lock_delay)),
        within_ms: Some(millis(within).max(1)),
    };
    let answer = connections
        .post(&route(&renewal.name, "/renew"), &document)
        .await?;
    if answer.status == 200 {
        return outcome(answer.document("renew")?);
    }
    match answer.code().as_deref() {
        Some("not_owned") if answer.status == 410 => Ok(Renewed::NotOwned),
        _ => Err(error::refused(&answer)),
    }
}

async fn many(connections: &Connections, part: &Part<'_>, within: Duration) -> Vec<Result<Renewed, Failure>> {
    let item = |(_, renewal): &(usize, &Renewal)| RenewItem {
        name: renewal.name.to_string(),
        token: Secret::new(renewal.token.expose()),
        fence: renewal.fence,
        ttl_ms: renewal.ttl.as_millis(),
        lock_delay_ms: Some(millis(renewal.lock_delay)),
    };
    let document = RenewBatch {
        items: part.items.iter().map(item).collect(),
        within_ms: Some(millis(within).max(1)),
    };
    let path = format!("/v1/namespaces/{}/renew", segment(part.namespace));
    let asked = async {
        let answer = connections.post(&path, &document).await?;
        if answer.status != 200 {
            return Err(error::refused(&answer));
        }
        answer.document::<Renewals>("renew")
    };
    match asked.await {
        // Fewer than were asked leave the rest unknown.
        Ok(renewals) => renewals.results.into_iter().map(outcome).collect(),
        Err(failure) => part.items.iter().map(|_| Err(again(&failure))).collect(),
    }
}

fn outcome(view: RenewedView) -> Result<Renewed, Failure> {
    match view {
        RenewedView::Extended { was_left_ms, .. } => Ok(Renewed::Extended {
            was_left: was_left_ms.map(Duration::from_millis),
        }),
        RenewedView::NotOwned => Ok(Renewed::NotOwned),
        RenewedView::Failed {
            cause,
            unknown,
            detail,
        } => {
            let cause = error::cause(&cause).unwrap_or(Cause::Unreachable);
            Err(if unknown {
                Failure::unknown(cause, detail)
            } else {
                Failure::not_done(cause, detail)
            })
        }
    }
}

fn unanswered() -> Failure {
    Failure::unknown(Cause::Corrupt, "the daemon did not answer this renewal")
}

/// One request, one fate.
fn again(failure: &Failure) -> Failure {
    let repeat = if failure.unknown {
        Failure::unknown
    } else {
        Failure::not_done
    };
    repeat(failure.cause, failure.message().to_owned())
}
