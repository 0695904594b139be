//! The JSON form of an event.

use std::time::Duration;

use jiff::Timestamp;
use leasehold::Fence;
use leasehold::event::{Event, EventKind};
use leasehold::policy::ChangeKind;
use leasehold_wire::millis;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

/// One event of a lock or a policy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = LockEvent)]
pub(crate) struct EventView {
    /// The event's id; send it as `Last-Event-ID` to resume after it.
    pub(crate) id: String,
    /// The time of the event by the daemon's wall clock.
    #[schema(format = DateTime, value_type = String)]
    pub(crate) at: String,
    /// The kind of event: `acquired`, `busy`, `renewed`, `released`, `abandoned`, …
    pub(crate) event: String,
    /// The lock's name; missing for policy events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    /// The class of the lock or policy.
    pub(crate) class: String,
    /// The holder.
    pub(crate) holder: String,
    /// The fence of the lease, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub(crate) fence: Option<Fence>,
    /// Details of the event; times are in milliseconds.
    #[schema(value_type = Object)]
    pub(crate) detail: Map<String, Value>,
}

impl EventView {
    pub(crate) fn of(event: &Event, id: String) -> Self {
        let at = Timestamp::try_from(event.wall).unwrap_or(Timestamp::UNIX_EPOCH);
        Self {
            id,
            at: format!("{at:.3}"),
            event: event.what.label().to_owned(),
            name: event.name.as_ref().map(ToString::to_string),
            class: event.class.to_string(),
            holder: event.holder.to_string(),
            fence: event.fence,
            detail: detail(&event.what),
        }
    }

    /// The same event for callers that may not read everything: free text of operators and of the policy
    /// file may have names that are not theirs. `None` if the event has no such text.
    pub(crate) fn without_reason(mut self, event: &EventKind) -> Option<Self> {
        match event {
            EventKind::PolicyChanged { change } => {
                self.detail.insert("change".to_owned(), without_reason(change).into());
            }
            EventKind::PolicyRefused { .. } => self.detail.clear(),
            _ => return None,
        }
        Some(self)
    }
}

const CHANGE_KINDS: [ChangeKind; 7] = [
    ChangeKind::Set,
    ChangeKind::Cleared,
    ChangeKind::Reverted,
    ChangeKind::Reloaded,
    ChangeKind::Added,
    ChangeKind::Removed,
    ChangeKind::Escalated,
];

/// The text of a change without its actor and reason.
pub(crate) fn without_reason(change: &str) -> String {
    let kinds = CHANGE_KINDS.iter().map(|kind| kind.as_str());
    let places = kinds.filter_map(|kind| Some((change.find(&format!(" ({kind}: "))?, kind)));
    match places.min() {
        Some((at, kind)) => format!("{} ({kind})", change.get(..at).unwrap_or_default()),
        None => change.to_owned(),
    }
}

/// The details of an event as a JSON object.
fn detail(what: &EventKind) -> Map<String, Value> {
    let ms = |time: &Duration| millis(*time);
    let value = match what {
        EventKind::Acquired { took, waited, .. } => json!({ "took_ms": ms(took), "waited": waited }),
        EventKind::Busy { took, holder, .. } => json!({ "took_ms": ms(took), "held_by": holder }),
        EventKind::Unavailable { took, cause } | EventKind::FellBack { took, cause } => {
            json!({ "took_ms": ms(took), "cause": cause.to_string() })
        }
        EventKind::Cancelled { took } => json!({ "took_ms": ms(took) }),
        EventKind::Resumed { age } => json!({ "age_ms": ms(age) }),
        EventKind::Healed { after } => json!({ "after_ms": ms(after) }),
        EventKind::Renewed { left, took } => json!({ "left": left, "took_ms": ms(took) }),
        EventKind::RenewFailed { failures, unknown } => json!({ "failures": failures, "unknown": unknown }),
        EventKind::ClockJump { by, ahead } => json!({ "by_ms": ms(by), "ahead": ahead }),
        EventKind::NotOwned { op } => json!({ "op": format!("{op:?}").to_lowercase() }),
        EventKind::Abandoned { reason, held } => json!({ "reason": reason.label(), "held_ms": ms(held) }),
        EventKind::WouldStop { reason } => json!({ "reason": reason.label() }),
        EventKind::WouldRefuse { cause } => json!({ "cause": cause.to_string() }),
        EventKind::ProvenAgain { overlap, retaken } => {
            json!({ "overlap_ms": ms(overlap), "retaken": retaken })
        }
        EventKind::OverlapEnded { overlap } => json!({ "overlap_ms": ms(overlap) }),
        EventKind::Released { held, attempts } => json!({ "held_ms": ms(held), "attempts": attempts }),
        EventKind::Kept { held } | EventKind::AlreadyLost { held } => json!({ "held_ms": ms(held) }),
        EventKind::ReleaseFailed { attempt, unknown } => json!({ "attempt": attempt, "unknown": unknown }),
        EventKind::Debt { held, lasts } => json!({ "held_ms": ms(held), "lasts_ms": ms(lasts) }),
        EventKind::DebtCleared { after, .. } => json!({ "after_ms": ms(after) }),
        EventKind::Broken { by } => json!({ "by": by }),
        EventKind::PolicyChanged { change } => json!({ "change": change }),
        EventKind::PolicyRefused { problem } => json!({ "problem": problem }),
        EventKind::FenceRefused { newest } => json!({ "newest": newest }),
        _ => json!({}),
    };
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}
