//! Each hold has one span, which contains each of its events once.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::Locks;
use leasehold_core::clock::{ClockExt, RuntimeClock};
use leasehold_core::memory::MemoryStore;
use leasehold_trace::SpanObserver;
use opentelemetry::trace::{Status, TracerProvider};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracer, SdkTracerProvider, SpanData};

struct TracedLocks {
    locks: Locks,
    spans: Arc<SpanObserver<SdkTracer>>,
    exporter: InMemorySpanExporter,
    provider: SdkTracerProvider,
}

fn traced_locks() -> TracedLocks {
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
    let spans = Arc::new(SpanObserver::new(provider.tracer("test")));
    let clock = RuntimeClock::shared();
    let locks = Locks::builder(Arc::new(MemoryStore::new(Arc::clone(&clock))))
        .clock(clock)
        .observer(Arc::clone(&spans) as Arc<_>)
        .build()
        .unwrap();
    TracedLocks { locks, spans, exporter, provider }
}

impl TracedLocks {
    fn finished(&self) -> Vec<SpanData> {
        self.provider.force_flush().unwrap();
        self.exporter.get_finished_spans().unwrap()
    }
}

fn events(span: &SpanData) -> Vec<&str> {
    span.events.iter().map(|event| event.name.as_ref()).collect()
}

fn attribute(span: &SpanData, key: &str) -> Option<String> {
    let found = span.attributes.iter().rev().find(|pair| pair.key.as_str() == key);
    found.map(|pair| pair.value.to_string())
}

#[tokio::test(start_paused = true)]
async fn a_hold_is_one_span_with_its_renewals() {
    let watched = traced_locks();
    let fence = watched
        .locks
        .class("scheduler")
        .run("job:42", async |hold| {
            // Renewed every 20 s.
            RuntimeClock::shared().sleep(Duration::from_secs(50)).await;
            hold.fence().unwrap()
        })
        .await
        .unwrap();
    let spans = watched.finished();
    assert_eq!(spans.len(), 1);
    assert_eq!(spans[0].name, "hold job");
    assert_eq!(events(&spans[0]), ["acquired", "renewed", "renewed", "released"]);
    assert_eq!(attribute(&spans[0], "leasehold.name").unwrap(), "job:42");
    assert_eq!(attribute(&spans[0], "leasehold.fence").unwrap(), fence.to_string());
    assert_eq!(spans[0].status, Status::Unset);
    assert_eq!(watched.spans.open_count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_lost_hold_ends_in_an_error_and_a_busy_name_is_an_acquire() {
    let watched = traced_locks();
    let hold = watched.locks.class("scheduler").acquire("job:1").await.unwrap().held().unwrap();
    let busy = watched.locks.class("scheduler").wait(Duration::ZERO).acquire("job:1").await.unwrap();
    assert!(busy.held().is_none());
    watched.locks.break_lease(hold.name(), hold.fence().unwrap(), "test").await.unwrap();
    hold.lost().await;
    drop(hold);
    watched.locks.shutdown(Duration::from_secs(1)).await;
    let spans = watched.finished();
    let named = |name: &str| spans.iter().find(|span| span.name == name).unwrap();
    assert_eq!(events(named("acquire job")), ["busy"]);
    let lost = named("hold job");
    assert!(events(lost).contains(&"abandoned"), "{:?}", events(lost));
    assert!(matches!(lost.status, Status::Error { .. }));
    assert_eq!(spans.len(), 2);
    assert_eq!(watched.spans.open_count(), 0);
}
