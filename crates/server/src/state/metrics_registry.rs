//! Prometheus metrics of one process: the lock client's events and the control plane's notes.

use leasehold::Locks;
use leasehold::event::{Event, Observer};
use leasehold_metrics::Prometheus;
use leasehold_plane::Plane;
use leasehold_plane::events::{PlaneEvent, PlaneObserver as NoteObserver};
use leasehold_plane::metrics::{
    JOBS_METRIC, METRICS, for_each_known_series, for_each_metric_change, namespaces,
};

/// The metrics of one process: a daemon, or a replica of the control plane.
#[derive(Debug)]
pub struct MetricsRegistry(Prometheus);

impl MetricsRegistry {
    /// Metrics of a client whose store is of this kind (`Capabilities::kind`).
    #[must_use]
    pub fn new(store: &'static str) -> Self {
        let mut metrics = Prometheus::new(store);
        for metric in METRICS {
            metrics.register_extra(metric.name, metric.kind, metric.help);
        }
        Self(metrics)
    }

    /// Initializes all known series at zero: `rate()` does not see the event that creates a series.
    pub fn init_series(&self, locks: &Locks, plane: bool) {
        let classes = locks.policies().classes();
        for class in &classes {
            let of_plane = if plane { namespaces(class) } else { &[] };
            // Names without a namespace belong to `default`.
            for namespace in of_plane.iter().chain(&["default"]) {
                self.0.start_at_zero(class, namespace);
            }
        }
        let classes: Vec<&str> = classes.iter().map(|class| &**class).collect();
        for_each_known_series(&classes, |name, values| {
            self.0.start_extra_at_zero(name, labels(name, values))
        });
    }

    /// Encodes all metrics. Jobs per state are counted now; if the plane's store fails, the last
    /// count stays.
    pub async fn text(&self, plane: Option<&Plane>) -> String {
        if let Some(plane) = plane {
            match plane.count_by_state().await {
                Ok(tally) => {
                    for (state, jobs) in tally {
                        // Through `u32`, which converts to `f64` without loss.
                        let jobs = u32::try_from(jobs).unwrap_or(u32::MAX);
                        self.0.set_extra(
                            JOBS_METRIC,
                            labels(JOBS_METRIC, &[state.as_str()]),
                            f64::from(jobs),
                        );
                    }
                }
                Err(error) => tracing::warn!(%error, "jobs could not be counted for the metrics"),
            }
        }
        self.0.encode()
    }
}

/// The label names of one of the plane's metrics, paired with these values.
fn labels(name: &str, values: &[&str]) -> Vec<(&'static str, String)> {
    let metric = METRICS.iter().find(|metric| metric.name == name);
    let names = metric.map_or(&[][..], |metric| metric.labels);
    let values = values.iter().map(|value| (*value).to_owned());
    names.iter().copied().zip(values).collect()
}

impl Observer for MetricsRegistry {
    fn on_event(&self, event: &Event) {
        self.0.on_event(event);
    }
}

/// Counts the control plane's notes too.
impl NoteObserver for MetricsRegistry {
    fn on_event(&self, note: &PlaneEvent) {
        for_each_metric_change(note, |name, values, by| {
            self.0.add_to_extra(name, labels(name, values), by);
        });
    }
}
