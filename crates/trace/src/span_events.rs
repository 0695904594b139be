//! Maps an event to its effect on the span of its hold.

use std::time::Duration;

use leasehold_core::event::EventKind;
use opentelemetry::KeyValue;

/// The effect of an event on a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SpanEffect {
    /// Starts a span; the acquire was called this long before the event.
    Starts(Duration),
    /// Adds an event to the span.
    Continues,
    /// Ends the span.
    Ends,
    /// Ends the span with an error status.
    Fails,
    /// Creates a span for an acquire without a hold: how long before it was called, and whether it
    /// is an error.
    NoHold(Duration, bool),
    /// Affects no span.
    Unrelated,
}

/// Returns the effect of an event.
pub(crate) fn span_effect(what: &EventKind) -> SpanEffect {
    match what {
        EventKind::Acquired { took, .. } | EventKind::FellBack { took, .. } => SpanEffect::Starts(*took),
        EventKind::Resumed { .. } => SpanEffect::Starts(Duration::ZERO),
        EventKind::Busy { took, .. } | EventKind::Cancelled { took } => SpanEffect::NoHold(*took, false),
        EventKind::Unavailable { took, .. } => SpanEffect::NoHold(*took, true),
        // A `Debt` event does not end the span: the hold lasts until its debt is cleared.
        EventKind::Released { .. } | EventKind::Kept { .. } | EventKind::DebtCleared { .. } => {
            SpanEffect::Ends
        }
        EventKind::Abandoned { .. } | EventKind::AlreadyLost { .. } => SpanEffect::Fails,
        EventKind::PolicyChanged { .. }
        | EventKind::PolicyRefused { .. }
        | EventKind::Broken { .. }
        | EventKind::FenceRefused { .. }
        | EventKind::Duplicate
        | EventKind::TooLate
        | EventKind::Undone { .. } => SpanEffect::Unrelated,
        _ => SpanEffect::Continues,
    }
}

/// The attributes of the span event.
pub(crate) fn event_attributes(what: &EventKind) -> Vec<KeyValue> {
    let seconds = |name: &'static str, time: &Duration| KeyValue::new(name, time.as_secs_f64());
    match what {
        EventKind::Acquired { waited, takeover, .. } => {
            let mut all = vec![KeyValue::new("waited", *waited)];
            all.extend(takeover.as_ref().map(|after| seconds("takeover_s", after)));
            all
        }
        EventKind::Unavailable { cause, .. }
        | EventKind::FellBack { cause, .. }
        | EventKind::WouldRefuse { cause } => {
            vec![KeyValue::new("cause", cause.to_string())]
        }
        EventKind::Busy { holder, .. } => vec![KeyValue::new("held_by", holder.clone())],
        EventKind::Renewed { left, took } => {
            vec![KeyValue::new("left_ratio", *left), seconds("took_s", took)]
        }
        EventKind::RenewFailed { failures, unknown } => {
            vec![KeyValue::new("failures", i64::from(*failures)), KeyValue::new("unknown", *unknown)]
        }
        EventKind::ReleaseFailed { attempt, unknown } => {
            vec![KeyValue::new("attempt", i64::from(*attempt)), KeyValue::new("unknown", *unknown)]
        }
        EventKind::Abandoned { reason, .. } | EventKind::WouldStop { reason } => {
            vec![KeyValue::new("reason", reason.label())]
        }
        EventKind::ProvenAgain { overlap, retaken } => {
            vec![seconds("overlap_s", overlap), KeyValue::new("retaken", *retaken)]
        }
        EventKind::OverlapEnded { overlap } => vec![seconds("overlap_s", overlap)],
        EventKind::Healed { after } | EventKind::DebtCleared { after, .. } => vec![seconds("after_s", after)],
        EventKind::Released { held, attempts } => {
            vec![seconds("held_s", held), KeyValue::new("attempts", i64::from(*attempts))]
        }
        EventKind::Debt { held, lasts } => vec![seconds("held_s", held), seconds("lasts_s", lasts)],
        EventKind::Kept { held } | EventKind::AlreadyLost { held } => vec![seconds("held_s", held)],
        _ => Vec::new(),
    }
}
