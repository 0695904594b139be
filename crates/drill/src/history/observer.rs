//! Records the core's event stream in a history.

use std::time::Duration;

use leasehold_core::event::{DebtResolution, Event, EventKind, Observer};

use super::record::{ClientEvent, HistoryEntry};
use super::writer::HistoryWriter;

/// An observer that records every event under its client's name.
#[derive(Debug)]
pub struct HistoryObserver {
    writer: HistoryWriter,
}

impl HistoryObserver {
    /// Records through this writer.
    #[must_use]
    pub fn new(writer: HistoryWriter) -> Self {
        Self { writer }
    }
}

impl Observer for HistoryObserver {
    fn on_event(&self, event: &Event) {
        self.writer.record_at(event.at.as_nanos(), HistoryEntry::Event(to_client_event(event)));
    }
}

/// Converts an event. Its span is measured by the client's clock.
pub fn to_client_event(event: &Event) -> ClientEvent {
    let (span, detail) = span_and_detail(&event.what);
    ClientEvent {
        seq: event.seq,
        hold: event.hold,
        event: event.what.label().to_owned(),
        name: event.name.as_ref().map(ToString::to_string),
        class: event.class.as_ref().to_owned(),
        fence: event.fence,
        span: span.map(|span| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)),
        detail,
    }
}

/// The duration and label of an event, as far as the oracle and the measures need them.
fn span_and_detail(what: &EventKind) -> (Option<Duration>, Option<String>) {
    let how = |how: &DebtResolution| match how {
        DebtResolution::Released => "released".to_owned(),
        DebtResolution::Expired => "expired".to_owned(),
    };
    match what {
        EventKind::Acquired { took, .. }
        | EventKind::Busy { took, .. }
        | EventKind::Unavailable { took, .. }
        | EventKind::Cancelled { took }
        | EventKind::FellBack { took, .. }
        | EventKind::Renewed { took, .. } => (Some(*took), None),
        EventKind::Healed { after } => (Some(*after), None),
        EventKind::ClockJump { by, ahead } => {
            (Some(*by), Some(if *ahead { "ahead" } else { "behind" }.to_owned()))
        }
        EventKind::RenewFailed { failures, .. } => (None, Some(failures.to_string())),
        EventKind::Abandoned { reason, held } => (Some(*held), Some(reason.label().to_owned())),
        EventKind::ProvenAgain { overlap, retaken } => {
            (Some(*overlap), retaken.then(|| "retaken".to_owned()))
        }
        EventKind::OverlapEnded { overlap } => (Some(*overlap), None),
        EventKind::Released { held, .. } | EventKind::Kept { held } | EventKind::AlreadyLost { held } => {
            (Some(*held), None)
        }
        EventKind::Debt { lasts, .. } => (Some(*lasts), None),
        EventKind::DebtCleared { after, how: end } => (Some(*after), Some(how(end))),
        EventKind::Undone { how: end } => (None, Some(how(end))),
        _ => (None, None),
    }
}
