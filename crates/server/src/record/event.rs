//! An event as the wire shows it.

use std::time::Duration;

use jiff::Timestamp;
use leasehold::Fence;
use leasehold::event::{Event, What};
use leasehold_http::wire::millis;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = LockEvent)]
pub(crate) struct EventView {
    /// To resume behind it: send it as `Last-Event-ID`.
    pub(crate) id: String,
    /// When, by the daemon's wall clock.
    #[schema(format = DateTime, value_type = String)]
    pub(crate) at: String,
    /// What: `acquired`, `busy`, `renewed`, `released`, `abandoned`, …
    pub(crate) event: String,
    /// Of which lock; missing for policy events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    /// Of which class.
    pub(crate) class: String,
    /// Who.
    pub(crate) holder: String,
    /// With which fence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub(crate) fence: Option<Fence>,
    /// More of it; times are in milliseconds.
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
}

/// The numbers and reasons of an event.
fn detail(what: &What) -> Map<String, Value> {
    let ms = |time: &Duration| millis(*time);
    let value = match what {
        What::Acquired { took, waited, .. } => json!({ "took_ms": ms(took), "waited": waited }),
        What::Busy { took, holder, .. } => json!({ "took_ms": ms(took), "held_by": holder }),
        What::Unavailable { took, cause } | What::FellBack { took, cause } => {
            json!({ "took_ms": ms(took), "cause": cause.to_string() })
        }
        What::Cancelled { took } => json!({ "took_ms": ms(took) }),
        What::Resumed { age } => json!({ "age_ms": ms(age) }),
        What::Healed { after } => json!({ "after_ms": ms(after) }),
        What::Renewed { left, took } => json!({ "left": left, "took_ms": ms(took) }),
        What::RenewFailed { failures, unknown } => json!({ "failures": failures, "unknown": unknown }),
        What::ClockJump { by, ahead } => json!({ "by_ms": ms(by), "ahead": ahead }),
        What::NotOwned { op } => json!({ "op": format!("{op:?}").to_lowercase() }),
        What::Abandoned { reason, held } => json!({ "reason": reason.label(), "held_ms": ms(held) }),
        What::WouldStop { reason } => json!({ "reason": reason.label() }),
        What::WouldRefuse { cause } => json!({ "cause": cause.to_string() }),
        What::ProvenAgain { overlap, retaken } => json!({ "overlap_ms": ms(overlap), "retaken": retaken }),
        What::OverlapEnded { overlap } => json!({ "overlap_ms": ms(overlap) }),
        What::Released { held, attempts } => json!({ "held_ms": ms(held), "attempts": attempts }),
        What::Kept { held } | What::AlreadyLost { held } => json!({ "held_ms": ms(held) }),
        What::ReleaseFailed { attempt, unknown } => json!({ "attempt": attempt, "unknown": unknown }),
        What::Debt { held, lasts } => json!({ "held_ms": ms(held), "lasts_ms": ms(lasts) }),
        What::DebtCleared { after, .. } => json!({ "after_ms": ms(after) }),
        What::Broken { by } => json!({ "by": by }),
        What::PolicyChanged { change } => json!({ "change": change }),
        What::PolicyRefused { problem } => json!({ "problem": problem }),
        What::FenceRefused { newest } => json!({ "newest": newest }),
        _ => json!({}),
    };
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}
