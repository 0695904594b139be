//! The core's event stream, written into a history.

use std::time::Duration;

use leasehold_core::event::{Cleared, Event, Observer, What};

use super::record::{Entry, Transition};
use super::writer::Pen;

/// An observer that writes every event down under its client's name.
#[derive(Debug)]
pub struct Tap {
    pen: Pen,
}

impl Tap {
    /// Writes with this pen.
    #[must_use]
    pub fn new(pen: Pen) -> Self {
        Self { pen }
    }
}

impl Observer for Tap {
    fn on(&self, event: &Event) {
        self.pen
            .note_at(event.at.as_nanos(), Entry::Event(transition(event)));
    }
}

/// An event as histories have it. Its span is on the clock of the event.
pub(crate) fn transition(event: &Event) -> Transition {
    let (span, detail) = particulars(&event.what);
    Transition {
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

/// What the checkers and measures need of an event beyond its name.
fn particulars(what: &What) -> (Option<Duration>, Option<String>) {
    let how = |how: &Cleared| match how {
        Cleared::Released => "released".to_owned(),
        Cleared::Expired => "expired".to_owned(),
    };
    match what {
        What::Acquired { took, .. }
        | What::Busy { took, .. }
        | What::Unavailable { took, .. }
        | What::Cancelled { took }
        | What::FellBack { took, .. }
        | What::Renewed { took, .. } => (Some(*took), None),
        What::Healed { after } => (Some(*after), None),
        What::ClockJump { by, ahead } => (
            Some(*by),
            Some(if *ahead { "ahead" } else { "behind" }.to_owned()),
        ),
        What::RenewFailed { failures, .. } => (None, Some(failures.to_string())),
        What::Abandoned { reason, held } => (Some(*held), Some(reason.label().to_owned())),
        What::ProvenAgain { overlap, retaken } => (Some(*overlap), retaken.then(|| "retaken".to_owned())),
        What::OverlapEnded { overlap } => (Some(*overlap), None),
        What::Released { held, .. } | What::Kept { held } | What::AlreadyLost { held } => (Some(*held), None),
        What::Debt { lasts, .. } => (Some(*lasts), None),
        What::DebtCleared { after, how: end } => (Some(*after), Some(how(end))),
        What::Undone { how: end } => (None, Some(how(end))),
        _ => (None, None),
    }
}
