//! O1: no token in the log at any level, through everything that happens to a hold.

// A log that cannot be captured fails the test.
#![allow(clippy::unwrap_used)]

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};

use crate::fixture::{Fixture, secs};
use leasehold_core::rng::SeededRandom;
use leasehold_core::{Acquired, Holder, Locks};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Records every field of every event and span, whatever its level.
#[derive(Clone, Default)]
struct LogCapture(Arc<Mutex<String>>);

impl Visit for LogCapture {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        writeln!(self.0.lock().unwrap(), "{field}={value:?}").unwrap();
    }
}

impl Subscriber for LogCapture {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        span.record(&mut self.clone());
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        values.record(&mut self.clone());
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[tokio::test(start_paused = true)]
async fn no_token_is_in_any_log_line() {
    let log = LogCapture::default();
    let _reading = tracing::subscriber::set_default(log.clone());
    let fixture = Fixture::new();
    // Built here because the fixture's clients do not log.
    let client = |holder: &str, seed: u64| {
        Locks::builder(fixture.recorder.store())
            .clock(Arc::clone(&fixture.clock))
            .random(SeededRandom::shared(seed))
            .holder(Holder::new(holder).unwrap())
            .build()
            .unwrap()
    };
    let (a, b) = (client("a", 1), client("b", 2));

    // Acquired, contended, waited for and renewed.
    let Ok(Acquired::Held(hold)) = a.class("scheduler").acquire("job:1").await else {
        panic!("not held");
    };
    let busy = b.class("scheduler").acquire("job:1").await;
    assert!(matches!(busy, Ok(Acquired::Busy(_))), "{busy:?}");
    fixture.advance(secs(45)).await;
    // Released with errors and lost replies; then acquired during an outage, undone, fallen back and healed.
    fixture.faults.release().fail_next(1).lose_reply(2);
    hold.release().await;
    fixture.faults.acquire().lose_reply(1);
    let local = b.class("workflow").acquire("job:2").await;
    fixture.faults.acquire().hang(true);
    let unknown = b.class("scheduler").acquire("job:3").await;
    assert!(unknown.is_err(), "{unknown:?}");
    fixture.faults.acquire().hang(false);
    // Renewals fail until the hold is abandoned.
    let Ok(Acquired::Held(lost)) = a.class("scheduler").acquire("job:4").await else {
        panic!("not held");
    };
    fixture.faults.renew().down(true);
    fixture.wait_for_loss(&lost).await;
    drop((local, lost));
    fixture.advance(secs(90)).await;

    let message = log.0.lock().unwrap().clone();
    // The log was captured and contains the events, warnings and others alike.
    for line in ["store call failed", "event=\"abandoned\"", "event=\"undone\""] {
        assert!(message.contains(line), "no {line}: {message}");
    }
    let asked = fixture.recorder.acquires();
    assert!(asked.len() >= 5, "{}", asked.len());
    for request in asked {
        assert!(!message.contains(request.token.random()), "{message}");
    }
}
