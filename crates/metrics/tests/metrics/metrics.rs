//! The exporter agrees with the in-memory counters: the same events give the same numbers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::clock::{BootClock, Clock, ClockExt, RuntimeClock};
use leasehold_core::event::{DebtResolution, Event, EventKind, LeaseOp, Loss, Observer};
use leasehold_core::memory::MemoryStore;
use leasehold_core::observe::{Counters, METRICS, MetricKind, event_metrics};
use leasehold_core::store::StoreErrorKind;
use leasehold_core::{Fence, Holder, Locks, Name};
use leasehold_metrics::Prometheus;

/// One event of each kind that changes metrics differently.
fn one_event_of_each_kind() -> Vec<EventKind> {
    let time = Duration::from_millis(1500);
    let mut all = vec![
        EventKind::Acquired { took: time, waited: true, takeover: Some(time), behind_debt: Some(time) },
        EventKind::Busy { took: time, holder: "h".into(), held_here: false },
        EventKind::Unavailable { took: time, cause: StoreErrorKind::TimedOut },
        EventKind::Cancelled { took: time },
        EventKind::FellBack { took: time, cause: StoreErrorKind::TimedOut },
        EventKind::Resumed { age: time },
        EventKind::Healed { after: time },
        EventKind::TooLate,
        EventKind::Renewed { left: 0.5, took: time },
        EventKind::RenewFailed { failures: 1, unknown: true },
        EventKind::RenewFailed { failures: 2, unknown: false },
        EventKind::ClockJump { by: time, ahead: true },
        EventKind::NotOwned { op: LeaseOp::Renew },
        EventKind::NotOwned { op: LeaseOp::Release },
        EventKind::WouldRefuse { cause: StoreErrorKind::TimedOut },
        EventKind::Unproven,
        EventKind::ProvenAgain { overlap: time, retaken: false },
        EventKind::OverlapConfirmed,
        EventKind::OverlapEnded { overlap: time },
        EventKind::Released { held: time, attempts: 2 },
        EventKind::Kept { held: time },
        EventKind::AlreadyLost { held: time },
        EventKind::ReleaseFailed { attempt: 1, unknown: true },
        EventKind::Debt { held: time, lasts: time },
        EventKind::DebtCleared { after: time, how: DebtResolution::Released },
        EventKind::Undone { how: DebtResolution::Released },
        EventKind::Broken { by: "ops".into() },
        EventKind::PolicyChanged { change: "x".into() },
        EventKind::PolicyRefused { problem: "x".into() },
        EventKind::FenceRefused { newest: Fence::new(7).unwrap() },
        EventKind::Duplicate,
    ];
    for reason in [Loss::NotOwned, Loss::MaxFailures, Loss::Deadline, Loss::MaxHold] {
        all.push(EventKind::Abandoned { reason, held: time });
        all.push(EventKind::WouldStop { reason });
    }
    all
}

fn event(what: EventKind) -> Event {
    let clock = BootClock;
    Event {
        seq: 0,
        at: clock.now(),
        wall: clock.wall(),
        name: Some(Name::new("job:42").unwrap()),
        class: "scheduler".into(),
        holder: Holder::new("host:1").unwrap(),
        fence: None,
        hold: 1,
        what,
    }
}

/// Parses sample lines into values by metric, class, namespace and own label. Histograms give their
/// sum and `_count`.
fn parse_samples(text: &str) -> BTreeMap<String, f64> {
    let mut values = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.contains("_bucket{")) {
        let (sample, value) = line.rsplit_once(' ').unwrap();
        let (name, labels) = sample.split_once('{').unwrap();
        let own: Vec<_> =
            labels.trim_end_matches('}').split(',').filter(|pair| !pair.starts_with("store=")).collect();
        values.insert(format!("{name}{{{}}}", own.join(",")), value.parse().unwrap());
    }
    values
}

/// Compares an exporter's text with the counters of the same events.
fn assert_agrees(text: &str, counters: &Counters) {
    let exported = parse_samples(text);
    let mut compared = 0;
    for (metric, labels, value) in counters.snapshot() {
        let described = METRICS.iter().find(|one| one.name == metric.name).unwrap();
        let own = described.label.map_or_else(String::new, |label| format!(",{label}=\"{}\"", metric.label));
        let own = format!("class=\"{}\",namespace=\"{}\"{own}", labels.class, labels.namespace);
        let sample = match described.kind {
            MetricKind::Histogram => format!("leasehold_{}_sum{{{own}}}", metric.name),
            _ => format!("leasehold_{}{{{own}}}", metric.name),
        };
        let shown = exported.get(&sample).unwrap_or_else(|| panic!("{sample} is not exported:\n{text}"));
        // The counters keep the lowest ratio only; the exporter has a histogram.
        if metric.name != "renew_remaining_ratio" {
            assert!(
                (shown - value).abs() < 1e-9,
                "{sample} of {labels:?}: {shown} exported, {value} counted"
            );
        }
        compared += 1;
    }
    assert!(compared > 0);
}

#[test]
fn every_event_changes_its_documented_metrics_exactly_once() {
    let (metrics, counters) = (Prometheus::new("memory"), Counters::default());
    let mut moved = std::collections::BTreeSet::from(["local_only_holds", "renew_remaining_ratio"]);
    for what in one_event_of_each_kind() {
        event_metrics(&what, |name, label, _| {
            let described = METRICS.iter().find(|one| one.name == name);
            let described = described.unwrap_or_else(|| panic!("{name} is not in METRICS"));
            assert_eq!(described.label.is_some(), !label.is_empty(), "{name} and its label {label:?}");
            moved.insert(name);
        });
        let event = event(what);
        metrics.on_event(&event);
        counters.on_event(&event);
    }
    let listed: std::collections::BTreeSet<_> = METRICS.iter().map(|metric| metric.name).collect();
    assert_eq!(listed, moved, "what is listed is what moves");
    assert_agrees(&metrics.encode(), &counters);
}

#[test]
fn counters_and_histograms_follow_prometheus_conventions() {
    for metric in METRICS {
        assert_eq!(metric.name.ends_with("_total"), metric.kind == MetricKind::Counter, "{}", metric.name);
        assert!(!metric.help.ends_with('.'), "{}: the format adds the full stop", metric.name);
    }
    assert!(METRICS.is_sorted_by_key(|metric| metric.name));
}

#[tokio::test(start_paused = true)]
async fn a_real_client_is_counted_the_same_and_its_names_are_not_shown() {
    let clock = RuntimeClock::shared();
    let (metrics, counters) = (Arc::new(Prometheus::new("memory")), Arc::new(Counters::default()));
    let locks = Locks::builder(Arc::new(MemoryStore::new(Arc::clone(&clock))))
        .clock(Arc::clone(&clock))
        .observer(Arc::clone(&metrics) as Arc<dyn Observer>)
        .observer(Arc::clone(&counters) as Arc<dyn Observer>)
        .build()
        .unwrap();
    for round in 0..3 {
        let hold = locks.class("scheduler").acquire("job:secret-name").await.unwrap().held().unwrap();
        assert!(
            locks
                .class("approval")
                .wait(Duration::ZERO)
                .acquire("job:secret-name")
                .await
                .unwrap()
                .held()
                .is_none()
        );
        clock.sleep(Duration::from_secs(25 * (round + 1))).await;
        hold.release().await;
    }
    let text = metrics.encode();
    assert!(!text.contains("secret-name"), "{text}");
    assert!(counters.total("renew_total", "renewed") > 0.0);
    assert_agrees(&text, &counters);
}

/// Alert rules use rates. A series that appears with its first event would hide that event.
#[test]
fn series_used_by_rules_start_at_zero() {
    let series = |text: &str| -> std::collections::BTreeSet<String> {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines.filter_map(|line| Some(line.rsplit_once(' ')?.0.to_owned())).collect()
    };
    let expected = Prometheus::new("memory");
    expected.start_at_zero("scheduler", "job");
    let before = expected.encode();
    assert!(
        before
            .lines()
            .filter(|line| !line.starts_with('#'))
            .all(|line| line.ends_with(" 0") || line.ends_with(" 0.0")),
        "nothing has moved: {before}"
    );
    let before = series(&before);
    // The first event of an unknown class and namespace creates the other series of that pair.
    let met = Prometheus::new("memory");
    Observer::on_event(&met, &event(EventKind::TooLate));
    assert!(before.is_subset(&series(&met.encode())));
    // No event uses a label value that is missing in the zero series.
    for what in one_event_of_each_kind() {
        let moved = Prometheus::new("memory");
        Observer::on_event(&moved, &event(what));
        let known = ["_total{", "takeover_seconds", "renew_remaining_ratio"];
        let ruled = |line: &&String| {
            let family = line.split('{').next().unwrap_or_default();
            known.iter().any(|part| line.contains(part))
                && before.iter().any(|other| other.starts_with(&format!("{family}{{")))
        };
        for line in series(&moved.encode()).iter().filter(ruled) {
            assert!(before.contains(line), "{line}");
        }
    }
}

/// Finding 1 of the security review: classes were not capped as namespaces are.
#[test]
fn finding_01_classes_beyond_the_limit_share_a_label() {
    let (metrics, counters) = (Prometheus::new("memory"), Counters::default());
    let observe = |class: String| {
        let event = Event { class: class.into(), ..event(EventKind::Unproven) };
        metrics.on_event(&event);
        counters.on_event(&event);
    };
    (0..101).for_each(|number| observe(format!("c{number}")));
    let before = (metrics.encode().lines().count(), counters.snapshot().len());
    (101..300).for_each(|number| observe(format!("c{number}")));
    assert_eq!((metrics.encode().lines().count(), counters.snapshot().len()), before);
    assert_eq!(counters.class_total("unproven_total", "", "other"), 200.0);
}
