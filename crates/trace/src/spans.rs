//! The observer, with the open spans by hold.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use leasehold_core::event::{Event, Observer};
use opentelemetry::KeyValue;
use opentelemetry::trace::{Span, SpanKind, Status, Tracer};

use crate::span_events::{SpanEffect, event_attributes, span_effect};

// A bound on memory: holds beyond it are not traced. That loses spans and affects no lock.
const MAX_OPEN_SPANS: usize = 100_000;

/// An observer that creates one span per hold.
///
/// A span is named `hold NAMESPACE`, or `acquire NAMESPACE` if the acquire ended without a hold.
/// Its attributes are `leasehold.name`, `leasehold.class`, `leasehold.holder` and
/// `leasehold.fence`. Events contain no tokens, so spans contain none either.
pub struct SpanObserver<T: Tracer> {
    tracer: T,
    open: Mutex<HashMap<u64, T::Span>>,
}

impl<T: Tracer> fmt::Debug for SpanObserver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpanObserver").finish_non_exhaustive()
    }
}

impl<T: Tracer> SpanObserver<T> {
    /// Creates an observer that uses this tracer.
    pub fn new(tracer: T) -> Self {
        Self { tracer, open: Mutex::default() }
    }

    /// Number of open spans.
    pub fn open_count(&self) -> usize {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    fn start_span(&self, event: &Event, word: &str, before: Duration) -> T::Span {
        let mut about = vec![
            KeyValue::new("leasehold.class", event.class.to_string()),
            KeyValue::new("leasehold.holder", event.holder.to_string()),
        ];
        about.extend(event.name.as_ref().map(|name| KeyValue::new("leasehold.name", name.to_string())));
        about.extend(event.fence.map(|fence| KeyValue::new("leasehold.fence", fence.to_string())));
        let span = self
            .tracer
            .span_builder(format!("{word} {}", event.namespace()))
            .with_kind(SpanKind::Client)
            .with_attributes(about)
            // The span starts at the acquire call, which happened before this event.
            .with_start_time(event.wall.checked_sub(before).unwrap_or(event.wall));
        self.tracer.build(span)
    }
}

fn add_event(span: &mut impl Span, event: &Event) {
    span.add_event_with_timestamp(event.what.label(), event.wall, event_attributes(&event.what));
    // A hold that healed or was re-acquired has a new fence from then on.
    if let Some(fence) = event.fence {
        span.set_attribute(KeyValue::new("leasehold.fence", fence.to_string()));
    }
}

impl<T> Observer for SpanObserver<T>
where
    T: Tracer + Send + Sync,
    T::Span: Send + Sync,
{
    fn on_event(&self, event: &Event) {
        let part = span_effect(&event.what);
        if part == SpanEffect::Unrelated {
            return;
        }
        // Handled without the lock: such an acquire has no open span.
        if let SpanEffect::NoHold(before, failed) = part {
            let mut span = self.start_span(event, "acquire", before);
            add_event(&mut span, event);
            if failed {
                span.set_status(Status::error(event.what.label()));
            }
            span.end_with_timestamp(event.wall);
            return;
        }
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        match part {
            SpanEffect::Starts(before) if open.len() < MAX_OPEN_SPANS => {
                let mut span = self.start_span(event, "hold", before);
                add_event(&mut span, event);
                open.insert(event.hold, span);
            }
            SpanEffect::Continues => {
                if let Some(span) = open.get_mut(&event.hold) {
                    add_event(span, event);
                }
            }
            SpanEffect::Ends | SpanEffect::Fails => {
                let span = open.remove(&event.hold);
                // Released before the span ends: ending it may call an exporter, which can block.
                drop(open);
                if let Some(mut span) = span {
                    add_event(&mut span, event);
                    if part == SpanEffect::Fails {
                        span.set_status(Status::error(event.what.label()));
                    }
                    span.end_with_timestamp(event.wall);
                }
            }
            _ => {}
        }
    }
}
