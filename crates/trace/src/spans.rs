//! The observer: open spans by hold.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use leasehold_core::event::{Event, Observer};
use opentelemetry::KeyValue;
use opentelemetry::trace::{Span, SpanKind, Status, Tracer};

use crate::story::{Part, details, part};

/// Holds that are followed at once. More are not traced; that costs spans, never a lock or the memory.
const MOST: usize = 100_000;

/// One span for each hold.
///
/// A span is named `hold NAMESPACE`, or `acquire NAMESPACE` if there was no hold in the end, and has `leasehold.name`, `leasehold.class`,
/// `leasehold.holder` and `leasehold.fence`. Tokens are in no event, so they are in no span.
pub struct Spans<T: Tracer> {
    tracer: T,
    open: Mutex<HashMap<u64, T::Span>>,
}

impl<T: Tracer> fmt::Debug for Spans<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spans").finish_non_exhaustive()
    }
}

impl<T: Tracer> Spans<T> {
    /// Spans of this tracer.
    pub fn new(tracer: T) -> Self {
        Self {
            tracer,
            open: Mutex::default(),
        }
    }

    /// How many holds are being followed.
    pub fn open(&self) -> usize {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    fn begin(&self, event: &Event, word: &str, before: Duration) -> T::Span {
        let mut about = vec![
            KeyValue::new("leasehold.class", event.class.to_string()),
            KeyValue::new("leasehold.holder", event.holder.to_string()),
        ];
        about.extend(
            event
                .name
                .as_ref()
                .map(|name| KeyValue::new("leasehold.name", name.to_string())),
        );
        about.extend(
            event
                .fence
                .map(|fence| KeyValue::new("leasehold.fence", fence.to_string())),
        );
        let span = self
            .tracer
            .span_builder(format!("{word} {}", event.namespace()))
            .with_kind(SpanKind::Client)
            .with_attributes(about)
            .with_start_time(event.wall.checked_sub(before).unwrap_or(event.wall));
        self.tracer.build(span)
    }
}

fn tell(span: &mut impl Span, event: &Event) {
    span.add_event_with_timestamp(event.what.label(), event.wall, details(&event.what));
    // A hold that healed or was taken anew has another fence from then on.
    if let Some(fence) = event.fence {
        span.set_attribute(KeyValue::new("leasehold.fence", fence.to_string()));
    }
}

impl<T> Observer for Spans<T>
where
    T: Tracer + Send + Sync,
    T::Span: Send + Sync,
{
    fn on(&self, event: &Event) {
        let part = part(&event.what);
        if part == Part::Elsewhere {
            return;
        }
        if let Part::Never(before, failed) = part {
            let mut span = self.begin(event, "acquire", before);
            tell(&mut span, event);
            if failed {
                span.set_status(Status::error(event.what.label()));
            }
            span.end_with_timestamp(event.wall);
            return;
        }
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        match part {
            Part::Begins(before) if open.len() < MOST => {
                let mut span = self.begin(event, "hold", before);
                tell(&mut span, event);
                open.insert(event.hold, span);
            }
            Part::Goes => {
                if let Some(span) = open.get_mut(&event.hold) {
                    tell(span, event);
                }
            }
            Part::Ends | Part::Fails => {
                let span = open.remove(&event.hold);
                // Ending a span may hand it to an exporter: not under the lock.
                drop(open);
                if let Some(mut span) = span {
                    tell(&mut span, event);
                    if part == Part::Fails {
                        span.set_status(Status::error(event.what.label()));
                    }
                    span.end_with_timestamp(event.wall);
                }
            }
            _ => {}
        }
    }
}
