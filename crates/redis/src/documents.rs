//! Documents: small named records beside the locks.

use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use leasehold_core::store::{
    Document, DocumentList, DocumentOutcome, DocumentQuery, DocumentRead, DocumentWrite, Documents,
    ExpectedVersion, StoreError, StoreErrorKind, WakeListener,
};
use leasehold_core::types::Name;
use redis::Value;

use crate::backend::{Context, RedisStore};
use crate::connection::{CallDeadline, as_text};
use crate::error;
use crate::script::ScriptCall;

#[async_trait]
impl Documents for RedisStore {
    async fn read(&self, name: &Name, within: Duration) -> Result<DocumentRead, StoreError> {
        let limit = CallDeadline::new(self.context().clock(), within);
        let value = run(self.context(), vec!["read", name.as_str()], &limit).await;
        let (now, document) =
            parse_document(name, &value.map_err(error::into_not_done)?).ok_or_else(malformed)?;
        Ok(DocumentRead::new(document, SystemTime::UNIX_EPOCH + now))
    }

    async fn list(&self, query: &DocumentQuery, within: Duration) -> Result<DocumentList, StoreError> {
        query.check()?;
        let limit = CallDeadline::new(self.context().clock(), within);
        let start = match &query.after {
            Some(after) if after.as_str() >= query.prefix.as_str() => format!("({after}"),
            _ => format!("[{}", query.prefix),
        };
        let most = query.limit.to_string();
        loop {
            let args = vec!["list", &start, &query.prefix, &most];
            let value = run(self.context(), args, &limit).await.map_err(error::into_not_done)?;
            // The script has removed entries of documents that are gone, and there may be more.
            if value != Value::Int(0) {
                return parse_list(&value).ok_or_else(malformed);
            }
        }
    }

    async fn write(&self, request: &DocumentWrite, within: Duration) -> Result<DocumentOutcome, StoreError> {
        request.check()?;
        let ttl = request.ttl.map_or_else(String::new, |ttl| ttl.as_millis().to_string());
        change(self.context(), "write", &request.name, request.expected, &[&request.value, &ttl], within)
            .await
    }

    async fn delete(
        &self,
        name: &Name,
        expected: ExpectedVersion,
        within: Duration,
    ) -> Result<DocumentOutcome, StoreError> {
        change(self.context(), "delete", name, expected, &[], within).await
    }

    fn watch(&self, name: &Name) -> WakeListener {
        self.context().wake_subscription.follow(name)
    }
}

async fn change(
    store: &Context,
    operation: &str,
    name: &Name,
    expected: ExpectedVersion,
    more: &[&str],
    within: Duration,
) -> Result<DocumentOutcome, StoreError> {
    let limit = CallDeadline::new(store.clock(), within);
    let expected = match expected {
        ExpectedVersion::Any => "any".to_owned(),
        ExpectedVersion::Absent => "absent".to_owned(),
        ExpectedVersion::Exactly(version) => version.to_string(),
        _ => {
            return Err(StoreError::not_done(
                StoreErrorKind::Unsupported,
                "the Redis store does not know this kind of expected version",
            ));
        }
    };
    let channel = store.keys().document_channel();
    let mut args = vec![operation, name.as_str(), &expected, &channel];
    args.extend(more);
    let value = run(store, args, &limit).await?;
    if matches!(value, Value::Array(_)) {
        // Nothing was changed, so even a malformed document is a definite error.
        let (_, current) = parse_document(name, &value).ok_or_else(malformed)?;
        return Ok(DocumentOutcome::Conflict(current));
    }
    let version = as_text(&value).and_then(|version| version.parse().ok());
    version.map(DocumentOutcome::Changed).ok_or_else(|| error::unexpected_response("a change of a document"))
}

/// Uses the connection of acquires, because documents must not delay renewals.
async fn run(store: &Context, args: Vec<&str>, limit: &CallDeadline<'_>) -> Result<Value, StoreError> {
    let keys = store.keys().document_keys();
    let call = ScriptCall::documents(keys.iter().map(String::as_str).collect(), args);
    let connection = store.request_slot.get_or_connect(limit).await?;
    call.run(&store.request_slot, &connection, limit).await
}

/// The server's time, and the document if it has not expired by it. `None` if the response is malformed.
fn parse_document(name: &Name, value: &Value) -> Option<(Duration, Option<Document>)> {
    let Value::Array(parts) = value else { return None };
    let [time, stored] = parts.as_slice() else { return None };
    let now = parse_micros(as_text(time)?)?;
    let document = if *stored == Value::Nil { None } else { parse_stored(name, stored, now)? };
    Some((now, document))
}

fn parse_list(value: &Value) -> Option<DocumentList> {
    let Value::Array(parts) = value else { return None };
    let [time, Value::Int(more), rows @ ..] = parts.as_slice() else { return None };
    let now = parse_micros(as_text(time)?)?;
    let mut documents = Vec::with_capacity(rows.len() / 2);
    for row in rows.chunks(2) {
        let [name, stored] = row else { return None };
        documents.extend(parse_stored(&Name::new(as_text(name)?).ok()?, stored, now)?);
    }
    Some(DocumentList::new(documents, *more == 1))
}

/// Parses `version|expiry|value`. The inner `None` is an expired document, the outer one a field that
/// the store has not written.
fn parse_stored(name: &Name, stored: &Value, now: Duration) -> Option<Option<Document>> {
    let (version, rest) = as_text(stored)?.split_once('|')?;
    let (expiry, value) = rest.split_once('|')?;
    let remaining = match expiry {
        "" => None,
        expiry => match parse_micros(expiry)?.saturating_sub(now) {
            Duration::ZERO => return Some(None),
            remaining => Some(remaining),
        },
    };
    let document = Document::new(name.clone(), version.parse().ok()?, value.to_owned());
    Some(Some(document.with_remaining(remaining)))
}

fn parse_micros(text: &str) -> Option<Duration> {
    text.parse().ok().map(Duration::from_micros)
}

fn malformed() -> StoreError {
    StoreError::not_done(
        StoreErrorKind::Corrupt,
        "Redis answered with a document that is not of our form; something else writes under the reserved prefix lh1:",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn a_document_is_live_until_the_microsecond_of_its_expiry() {
        let name = Name::new("a").unwrap();
        let read = |now: &str, stored: &str| {
            parse_document(&name, &Value::Array(vec![text(now), text(stored)])).unwrap().1
        };
        let live = Document::new(name.clone(), 7, "x|y".to_owned());
        assert_eq!(read("5", "7||x|y"), Some(live.clone()));
        assert_eq!(read("5", "7|6|x|y"), Some(live.with_remaining(Some(Duration::from_micros(1)))));
        assert_eq!(read("6", "7|6|x|y"), None);
    }

    #[test]
    fn malformed_responses_are_no_documents() {
        let name = Name::new("a").unwrap();
        for stored in ["", "7", "7|", "x||y", "7|x|y", "-7||y"] {
            let response = Value::Array(vec![text("5"), text(stored)]);
            assert_eq!(parse_document(&name, &response), None, "{stored}");
        }
        for odd in [Value::Nil, Value::Int(1), Value::Array(vec![]), Value::Array(vec![text("5")])] {
            assert_eq!(parse_document(&name, &odd), None);
            assert_eq!(parse_list(&odd), None);
        }
        let unpaired = Value::Array(vec![text("5"), Value::Int(0), text("a")]);
        assert_eq!(parse_list(&unpaired), None);
    }
}
