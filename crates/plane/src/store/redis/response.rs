//! Parses the script's responses. An unexpected response is an *unknown* outcome: the step may have
//! taken effect.

use leasehold_core::store::{StoreError, StoreErrorKind};
use redis::Value;

use crate::store::{
    Delivery, Document, DocumentEvent, DocumentPage, DocumentPosition, KEPT_FIRST_EVENTS, Queue,
    WriteRefusal, WriteRequest, WriteResponse,
};

// The largest integer that a Lua number (a double) represents exactly; `plane.lua` has the same value.
pub(super) const NEVER_DUE_SCORE: u64 = (1 << 53) - 1;

fn unexpected_value(what: &Value) -> StoreError {
    let kind = match what {
        Value::Nil => "nothing",
        Value::Array(_) => "a list of another length",
        _ => "a value of another kind",
    };
    StoreError::unknown(
        StoreErrorKind::Corrupt,
        format!("the plane's script answered {kind}, which it never does"),
    )
}

pub(super) fn parse_text(value: &Value) -> Result<String, StoreError> {
    match value {
        Value::BulkString(bytes) => Ok(String::from_utf8_lossy(bytes).into_owned()),
        Value::SimpleString(text) => Ok(text.clone()),
        other => Err(unexpected_value(other)),
    }
}

pub(super) fn parse_number(value: &Value) -> Result<u64, StoreError> {
    match value {
        Value::Int(number) => u64::try_from(*number).map_err(|_| unexpected_value(value)),
        _ => parse_text(value)?.parse().map_err(|_| unexpected_value(value)),
    }
}

pub(super) fn parse_list(value: Value) -> Result<Vec<Value>, StoreError> {
    match value {
        Value::Array(values) => Ok(values),
        other => Err(unexpected_value(&other)),
    }
}

pub(super) fn parse_document(value: Value) -> Result<Document, StoreError> {
    let fields = parse_list(value)?;
    let [id, version, state, due, created, updated, body, now] = fields.as_slice() else {
        return Err(unexpected_value(&Value::Array(fields)));
    };
    Ok(Document {
        id: parse_text(id)?,
        version: parse_number(version)?,
        state: parse_text(state)?,
        due: Some(parse_number(due)?).filter(|due| *due < NEVER_DUE_SCORE),
        created: parse_number(created)?,
        updated: parse_number(updated)?,
        body: parse_text(body)?,
        now: parse_number(now)?,
    })
}

pub(super) fn parse_page(value: Value) -> Result<DocumentPage, StoreError> {
    let mut fields = parse_list(value)?.into_iter();
    let documents = parse_list(fields.next().unwrap_or(Value::Nil))?;
    let next = match (fields.next(), fields.next()) {
        (Some(id), Some(due)) => {
            let due = Some(parse_number(&due)?).filter(|due| *due < NEVER_DUE_SCORE);
            Some(DocumentPosition { due, id: parse_text(&id)? })
        }
        _ => None,
    };
    Ok(DocumentPage { documents: documents.into_iter().map(parse_document).collect::<Result<_, _>>()?, next })
}

/// Parses the version of a document and its events.
pub(super) fn parse_history(value: Value) -> Result<Vec<DocumentEvent>, StoreError> {
    let mut fields = parse_list(value)?.into_iter();
    let newest = parse_number(&fields.next().unwrap_or(Value::Nil))?;
    let events = parse_list(fields.next().unwrap_or(Value::Nil))?;
    let dropped = newest.saturating_sub(events.len() as u64);
    // An element has no version of its own: one event per version, and those after the first ones may be dropped.
    let version = |place: u64| if place < KEPT_FIRST_EVENTS { place + 1 } else { place + 1 + dropped };
    (0..).zip(&events).map(|(place, event)| parse_event(version(place), event)).collect()
}

/// Parses one list element of the form `write id \n time \n body`.
fn parse_event(version: u64, value: &Value) -> Result<DocumentEvent, StoreError> {
    let line = parse_text(value)?;
    // Three parts at most: the body is JSON and may itself contain line breaks.
    let mut parts = line.splitn(3, '\n').skip(1);
    let (at, body) = (parts.next().and_then(|at| at.parse().ok()), parts.next());
    match (at, body) {
        (Some(at), Some(body)) => Ok(DocumentEvent { version, at, body: body.to_owned() }),
        _ => Err(unexpected_value(value)),
    }
}

pub(super) fn parse_delivery(queue: Queue, value: Value) -> Result<Delivery, StoreError> {
    let fields = parse_list(value)?;
    let [id, to, body, tries] = fields.as_slice() else {
        return Err(unexpected_value(&Value::Array(fields)));
    };
    Ok(Delivery {
        queue,
        id: parse_text(id)?,
        document_id: parse_text(to)?,
        body: parse_text(body)?,
        tries: parse_number(tries)?,
    })
}

pub(super) fn parse_write_response(value: Value, write: &WriteRequest) -> Result<WriteResponse, StoreError> {
    let fields = parse_list(value)?;
    let word = fields.first().map(parse_text).transpose()?.unwrap_or_default();
    let at = |index: usize| fields.get(index).ok_or_else(|| unexpected_value(&Value::Nil));
    let done = |repeated, skipped| {
        Ok(WriteResponse::Applied { version: parse_number(at(1)?)?, repeated, already_existing: skipped })
    };
    let refusal = match word.as_str() {
        "done" => {
            let skipped: Result<_, _> = fields.iter().skip(2).map(parse_text).collect();
            return done(false, skipped?);
        }
        "repeated" => return done(true, Vec::new()),
        "stale" => {
            let newest = parse_text(at(1)?)?.parse().map_err(|_| unexpected_value(&Value::Nil))?;
            let offered = write.fence.as_ref().map_or(newest, |(_, fence)| *fence);
            let state = Some(parse_text(at(2)?)?).filter(|state| !state.is_empty());
            WriteRefusal::StaleFence { offered, newest, state }
        }
        "version" => {
            WriteRefusal::VersionMismatch { found: parse_number(at(1)?)?, state: parse_text(at(2)?)? }
        }
        "transition" => {
            WriteRefusal::ForbiddenTransition { state: parse_text(at(1)?)?, to: write.revision.state }
        }
        "missing" => WriteRefusal::Missing,
        "exists" => WriteRefusal::Exists,
        "quota" => {
            let limit = write.quota.as_ref().map_or(0, |quota| quota.limit);
            WriteRefusal::QuotaReached { kind: write.revision.kind, limit }
        }
        "key" => WriteRefusal::KeyInUse { id: parse_text(at(1)?)? },
        _ => return Err(unexpected_value(&Value::Nil)),
    };
    Ok(WriteResponse::Refused(refusal))
}
