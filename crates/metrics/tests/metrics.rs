//! What is exported is what happened: the same events, read by the counters and by the exporter, give the same numbers.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::clock::{BootClock, Clock, ClockExt, RuntimeClock};
use leasehold_core::event::{Cleared, Event, Loss, Observer, Op, What};
use leasehold_core::memory::MemoryStore;
use leasehold_core::observe::{Counters, Kind, METRICS, moves};
use leasehold_core::store::Cause;
use leasehold_core::{Fence, Holder, Locks, Name};
use leasehold_metrics::Prometheus;

/// One of each, as far as they differ in what they move.
fn everything() -> Vec<What> {
    let time = Duration::from_millis(1500);
    let mut all = vec![
        What::Acquired {
            took: time,
            waited: true,
            takeover: Some(time),
            behind_debt: Some(time),
        },
        What::Busy {
            took: time,
            holder: "h".into(),
            held_here: false,
        },
        What::Unavailable {
            took: time,
            cause: Cause::TimedOut,
        },
        What::Cancelled { took: time },
        What::FellBack {
            took: time,
            cause: Cause::TimedOut,
        },
        What::Resumed { age: time },
        What::Healed { after: time },
        What::TooLate,
        What::Renewed {
            left: 0.5,
            took: time,
        },
        What::RenewFailed {
            failures: 1,
            unknown: true,
        },
        What::RenewFailed {
            failures: 2,
            unknown: false,
        },
        What::ClockJump {
            by: time,
            ahead: true,
        },
        What::NotOwned { op: Op::Renew },
        What::NotOwned { op: Op::Release },
        What::WouldRefuse {
            cause: Cause::TimedOut,
        },
        What::Unproven,
        What::ProvenAgain {
            overlap: time,
            retaken: false,
        },
        What::OverlapConfirmed,
        What::OverlapEnded { overlap: time },
        What::Released {
            held: time,
            attempts: 2,
        },
        What::Kept { held: time },
        What::AlreadyLost { held: time },
        What::ReleaseFailed {
            attempt: 1,
            unknown: true,
        },
        What::Debt {
            held: time,
            lasts: time,
        },
        What::DebtCleared {
            after: time,
            how: Cleared::Released,
        },
        What::Undone {
            how: Cleared::Released,
        },
        What::Broken { by: "ops".into() },
        What::PolicyChanged { change: "x".into() },
        What::PolicyRefused { problem: "x".into() },
        What::FenceRefused {
            newest: Fence::new(7).unwrap(),
        },
        What::Duplicate,
    ];
    for reason in [Loss::NotOwned, Loss::MaxFailures, Loss::Deadline, Loss::MaxHold] {
        all.push(What::Abandoned { reason, held: time });
        all.push(What::WouldStop { reason });
    }
    all
}

fn event(what: What) -> Event {
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

/// Sample lines by metric, class, namespace and own label; of histograms their sum and, under `_count`, how many.
fn exported(text: &str) -> BTreeMap<String, f64> {
    let mut values = BTreeMap::new();
    for line in text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.contains("_bucket{"))
    {
        let (sample, value) = line.rsplit_once(' ').unwrap();
        let (name, labels) = sample.split_once('{').unwrap();
        let own: Vec<_> = labels
            .trim_end_matches('}')
            .split(',')
            .filter(|pair| !pair.starts_with("store="))
            .collect();
        values.insert(format!("{name}{{{}}}", own.join(",")), value.parse().unwrap());
    }
    values
}

/// Holds an exporter's text against the counters of the same events.
fn agree(text: &str, counters: &Counters) {
    let exported = exported(text);
    let mut compared = 0;
    for (metric, labels, value) in counters.snapshot() {
        let described = METRICS.iter().find(|one| one.name == metric.name).unwrap();
        let own = described
            .label
            .map_or_else(String::new, |label| format!(",{label}=\"{}\"", metric.label));
        let own = format!(
            "class=\"{}\",namespace=\"{}\"{own}",
            labels.class, labels.namespace
        );
        let sample = match described.kind {
            Kind::Histogram => format!("leasehold_{}_sum{{{own}}}", metric.name),
            _ => format!("leasehold_{}{{{own}}}", metric.name),
        };
        let shown = exported
            .get(&sample)
            .unwrap_or_else(|| panic!("{sample} is not exported:\n{text}"));
        // The counters keep the least ratio, the exporter tells all of them apart.
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
fn every_event_moves_what_the_catalogue_describes_and_the_exporter_shows_it_once() {
    let (metrics, counters) = (Prometheus::new("memory"), Counters::default());
    let mut moved = std::collections::BTreeSet::from(["local_only_holds", "renew_remaining_ratio"]);
    for what in everything() {
        moves(&what, |name, label, _| {
            let described = METRICS.iter().find(|one| one.name == name);
            let described = described.unwrap_or_else(|| panic!("{name} is not in METRICS"));
            assert_eq!(
                described.label.is_some(),
                !label.is_empty(),
                "{name} and its label {label:?}"
            );
            moved.insert(name);
        });
        let event = event(what);
        metrics.on(&event);
        counters.on(&event);
    }
    let listed: std::collections::BTreeSet<_> = METRICS.iter().map(|metric| metric.name).collect();
    assert_eq!(listed, moved, "what is listed is what moves");
    agree(&metrics.encode(), &counters);
}

#[test]
fn counters_and_histograms_follow_prometheus_conventions() {
    for metric in METRICS {
        assert_eq!(
            metric.name.ends_with("_total"),
            metric.kind == Kind::Counter,
            "{}",
            metric.name
        );
        assert!(
            !metric.help.ends_with('.'),
            "{}: the format adds the full stop",
            metric.name
        );
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
        let hold = locks
            .class("scheduler")
            .acquire("job:secret-name")
            .await
            .unwrap()
            .held()
            .unwrap();
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
    agree(&text, &counters);
}

/// Rules look at rates: a series that began with its first event would hide that event from them.
#[test]
fn what_rules_look_at_has_begun_before_it_moves() {
    let series = |text: &str| -> std::collections::BTreeSet<String> {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines
            .filter_map(|line| Some(line.rsplit_once(' ')?.0.to_owned()))
            .collect()
    };
    let expected = Prometheus::new("memory");
    expected.expect("scheduler", "job");
    let before = expected.encode();
    assert!(
        before
            .lines()
            .filter(|line| !line.starts_with('#'))
            .all(|line| line.ends_with(" 0") || line.ends_with(" 0.0")),
        "nothing has moved: {before}"
    );
    let before = series(&before);
    // Any event of a class and namespace that nobody had named lets the rest of them begin.
    let met = Prometheus::new("memory");
    Observer::on(&met, &event(What::TooLate));
    assert!(before.is_subset(&series(&met.encode())));
    // And nothing of what is known moves under a label that was not there.
    for what in everything() {
        let moved = Prometheus::new("memory");
        Observer::on(&moved, &event(what));
        let known = ["_total{", "takeover_seconds", "renew_remaining_ratio"];
        let ruled = |line: &&String| {
            let family = line.split('{').next().unwrap_or_default();
            known.iter().any(|part| line.contains(part))
                && before
                    .iter()
                    .any(|other| other.starts_with(&format!("{family}{{")))
        };
        for line in series(&moved.encode()).iter().filter(ruled) {
            assert!(before.contains(line), "{line}");
        }
    }
}
