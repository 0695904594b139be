//! What the script answers, read with suspicion: what makes no sense may have happened.

use leasehold_core::store::{Cause, Failure};
use redis::Value;

use crate::store::{Doc, Event, Queue, Refusal, Taken, Write, Written};

/// The score of what is never due.
const NEVER: u64 = (1 << 53) - 1;

fn nonsense(what: &Value) -> Failure {
    let kind = match what {
        Value::Nil => "nothing",
        Value::Array(_) => "a list of another length",
        _ => "a value of another kind",
    };
    Failure::unknown(
        Cause::Corrupt,
        format!("the plane's script answered {kind}, which it never does"),
    )
}

pub(super) fn text(value: &Value) -> Result<String, Failure> {
    match value {
        Value::BulkString(bytes) => Ok(String::from_utf8_lossy(bytes).into_owned()),
        Value::SimpleString(text) => Ok(text.clone()),
        other => Err(nonsense(other)),
    }
}

pub(super) fn number(value: &Value) -> Result<u64, Failure> {
    match value {
        Value::Int(number) => u64::try_from(*number).map_err(|_| nonsense(value)),
        _ => text(value)?.parse().map_err(|_| nonsense(value)),
    }
}

pub(super) fn list(value: Value) -> Result<Vec<Value>, Failure> {
    match value {
        Value::Array(values) => Ok(values),
        other => Err(nonsense(&other)),
    }
}

pub(super) fn doc(value: Value) -> Result<Doc, Failure> {
    let fields = list(value)?;
    let [id, version, state, due, created, updated, body, now] = fields.as_slice() else {
        return Err(nonsense(&Value::Array(fields)));
    };
    Ok(Doc {
        id: text(id)?,
        version: number(version)?,
        state: text(state)?,
        due: Some(number(due)?).filter(|due| *due < NEVER),
        created: number(created)?,
        updated: number(updated)?,
        body: text(body)?,
        now: number(now)?,
    })
}

/// `write id \n time \n body`.
pub(super) fn event(version: u64, value: &Value) -> Result<Event, Failure> {
    let line = text(value)?;
    let mut parts = line.splitn(3, '\n').skip(1);
    let (at, body) = (parts.next().and_then(|at| at.parse().ok()), parts.next());
    match (at, body) {
        (Some(at), Some(body)) => Ok(Event {
            version,
            at,
            body: body.to_owned(),
        }),
        _ => Err(nonsense(value)),
    }
}

pub(super) fn taken(queue: Queue, value: Value) -> Result<Taken, Failure> {
    let fields = list(value)?;
    let [id, to, body, tries] = fields.as_slice() else {
        return Err(nonsense(&Value::Array(fields)));
    };
    Ok(Taken {
        queue,
        id: text(id)?,
        to: text(to)?,
        body: text(body)?,
        tries: number(tries)?,
    })
}

pub(super) fn written(value: Value, write: &Write) -> Result<Written, Failure> {
    let fields = list(value)?;
    let word = fields.first().map(text).transpose()?.unwrap_or_default();
    let at = |index: usize| fields.get(index).ok_or_else(|| nonsense(&Value::Nil));
    let done = |repeated, skipped| {
        Ok(Written::Done {
            version: number(at(1)?)?,
            repeated,
            skipped,
        })
    };
    let refusal = match word.as_str() {
        "done" => {
            let skipped: Result<_, _> = fields.iter().skip(2).map(text).collect();
            return done(false, skipped?);
        }
        "repeated" => return done(true, Vec::new()),
        "stale" => {
            let newest = text(at(1)?)?.parse().map_err(|_| nonsense(&Value::Nil))?;
            let offered = write.fence.as_ref().map_or(newest, |(_, fence)| *fence);
            let state = Some(text(at(2)?)?).filter(|state| !state.is_empty());
            Refusal::Stale {
                offered,
                newest,
                state,
            }
        }
        "version" => Refusal::Version {
            found: number(at(1)?)?,
            state: text(at(2)?)?,
        },
        "transition" => Refusal::Transition {
            state: text(at(1)?)?,
            to: write.entry.state,
        },
        "missing" => Refusal::Missing,
        "exists" => Refusal::Exists,
        "key" => Refusal::Key { id: text(at(1)?)? },
        _ => return Err(nonsense(&Value::Nil)),
    };
    Ok(Written::Refused(refusal))
}
