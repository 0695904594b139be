//! What an event means to the span of its hold.

use std::time::Duration;

use leasehold_core::event::What;
use opentelemetry::KeyValue;

/// Where in a hold's life an event stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// A hold begins; its acquire was called this long before.
    Begins(Duration),
    /// Something happens to it.
    Goes,
    /// It is over, and well.
    Ends,
    /// It is over, and somebody should know.
    Fails,
    /// An acquire ended without a hold; called this long before, and whether somebody should know.
    Never(Duration, bool),
    /// Not about a hold.
    Elsewhere,
}

/// Which part this is.
pub(crate) fn part(what: &What) -> Part {
    match what {
        What::Acquired { took, .. } | What::FellBack { took, .. } => Part::Begins(*took),
        What::Resumed { .. } => Part::Begins(Duration::ZERO),
        What::Busy { took, .. } | What::Cancelled { took } => Part::Never(*took, false),
        What::Unavailable { took, .. } => Part::Never(*took, true),
        // A debt is the hold's last chapter: it ends when the debt does.
        What::Released { .. } | What::Kept { .. } | What::DebtCleared { .. } => Part::Ends,
        What::Abandoned { .. } | What::AlreadyLost { .. } => Part::Fails,
        What::PolicyChanged { .. }
        | What::PolicyRefused { .. }
        | What::Broken { .. }
        | What::FenceRefused { .. }
        | What::Duplicate
        | What::TooLate
        | What::Undone { .. } => Part::Elsewhere,
        _ => Part::Goes,
    }
}

/// What the event says besides its name.
pub(crate) fn details(what: &What) -> Vec<KeyValue> {
    let seconds = |name: &'static str, time: &Duration| KeyValue::new(name, time.as_secs_f64());
    match what {
        What::Acquired { waited, takeover, .. } => {
            let mut all = vec![KeyValue::new("waited", *waited)];
            all.extend(takeover.as_ref().map(|after| seconds("takeover_s", after)));
            all
        }
        What::Unavailable { cause, .. } | What::FellBack { cause, .. } | What::WouldRefuse { cause } => {
            vec![KeyValue::new("cause", cause.to_string())]
        }
        What::Busy { holder, .. } => vec![KeyValue::new("held_by", holder.clone())],
        What::Renewed { left, took } => vec![KeyValue::new("left_ratio", *left), seconds("took_s", took)],
        What::RenewFailed { failures, unknown } => vec![
            KeyValue::new("failures", i64::from(*failures)),
            KeyValue::new("unknown", *unknown),
        ],
        What::ReleaseFailed { attempt, unknown } => vec![
            KeyValue::new("attempt", i64::from(*attempt)),
            KeyValue::new("unknown", *unknown),
        ],
        What::Abandoned { reason, .. } | What::WouldStop { reason } => {
            vec![KeyValue::new("reason", reason.label())]
        }
        What::ProvenAgain { overlap, retaken } => {
            vec![seconds("overlap_s", overlap), KeyValue::new("retaken", *retaken)]
        }
        What::OverlapEnded { overlap } => vec![seconds("overlap_s", overlap)],
        What::Healed { after } | What::DebtCleared { after, .. } => vec![seconds("after_s", after)],
        What::Released { held, attempts } => vec![
            seconds("held_s", held),
            KeyValue::new("attempts", i64::from(*attempts)),
        ],
        What::Debt { held, lasts } => vec![seconds("held_s", held), seconds("lasts_s", lasts)],
        What::Kept { held } | What::AlreadyLost { held } => vec![seconds("held_s", held)],
        _ => Vec::new(),
    }
}
