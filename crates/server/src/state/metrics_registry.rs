//! Prometheus metrics of one process: the lock client's events and the control plane's events.

use std::sync::{Arc, OnceLock};

use leasehold::Locks;
use leasehold::event::{Event, EventKind, Observer};
use leasehold::observe::MetricKind;
use leasehold::policy::PolicyBook;
use leasehold_core::observe::OTHER_LABEL;
use leasehold_metrics::Prometheus;
use leasehold_plane::Plane;
use leasehold_plane::events::{PlaneEvent, PlaneObserver};
use leasehold_plane::metrics::{
    JOBS_METRIC, METRICS, for_each_known_series, for_each_metric_change, namespaces,
};

/// The daemon's gauge of damaged segments of its audit log, without the prefix `leasehold_`.
pub const DAMAGED_AUDIT_SEGMENTS_METRIC: &str = "audit_damaged_segments";
/// What [`DAMAGED_AUDIT_SEGMENTS_METRIC`] says.
pub const DAMAGED_AUDIT_SEGMENTS_HELP: &str =
    "Damaged files of the audit log, and notes about missing ones, in the state folder, counted at the start";

/// The metrics of one process: a daemon, or a replica of the control plane.
#[derive(Debug)]
pub struct MetricsRegistry {
    metrics: Prometheus,
    /// Decides which classes have series of their own. Set once the lock client exists, which this
    /// registry observes.
    policies: OnceLock<Arc<PolicyBook>>,
}

impl MetricsRegistry {
    /// Metrics of a client whose store is of this kind (`Capabilities::kind`).
    #[must_use]
    pub fn new(store: &'static str) -> Self {
        let mut metrics = Prometheus::new(store);
        for metric in METRICS {
            metrics.register_extra(metric.name, metric.kind, metric.help);
        }
        let (name, help) = (DAMAGED_AUDIT_SEGMENTS_METRIC, DAMAGED_AUDIT_SEGMENTS_HELP);
        metrics.register_extra(name, MetricKind::Gauge, help);
        Self { metrics, policies: OnceLock::new() }
    }

    /// Initializes all known series at zero: `rate()` does not see the event that creates a series.
    pub fn init_series(&self, locks: &Locks, plane: bool) {
        let policies = self.policies.get_or_init(|| Arc::clone(locks.policies()));
        let classes = policies.classes();
        for class in &classes {
            let of_plane = if plane { namespaces(class) } else { &[] };
            // Names without a namespace belong to `default`.
            for namespace in of_plane.iter().chain(&["default"]) {
                self.metrics.start_at_zero(class, namespace);
            }
        }
        let classes: Vec<&str> = classes.iter().map(|class| &**class).collect();
        for_each_known_series(&classes, |name, values| {
            self.metrics.start_extra_at_zero(name, labels(name, values))
        });
    }

    /// Sets the number of damaged segments of the audit log.
    pub(crate) fn set_damaged_audit_segments(&self, segments: usize) {
        // Through `u32`, which converts to `f64` without loss.
        let segments = u32::try_from(segments).unwrap_or(u32::MAX);
        self.metrics.set_extra(DAMAGED_AUDIT_SEGMENTS_METRIC, Vec::new(), f64::from(segments));
    }

    /// Whether a class labels its own series. Classes of tokens and jobs are callers' text, and each
    /// new label value would cost memory for good.
    fn has_own_series(&self, class: &str) -> bool {
        self.policies.get().is_none_or(|policies| policies.contains(class))
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
                        self.metrics.set_extra(
                            JOBS_METRIC,
                            labels(JOBS_METRIC, &[state.as_str()]),
                            f64::from(jobs),
                        );
                    }
                }
                Err(error) => tracing::warn!(%error, "jobs could not be counted for the metrics"),
            }
        }
        self.metrics.encode()
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
        let renamed;
        let event = if self.has_own_series(&event.class) {
            event
        } else {
            renamed = Event { class: OTHER_LABEL.into(), ..event.clone() };
            &renamed
        };
        if is_refused(&event.what) {
            self.metrics.count_refused(event);
        } else {
            self.metrics.on_event(event);
        }
    }
}

/// Whether the event shows no lease of its namespace: any caller can cause it for any name.
fn is_refused(what: &EventKind) -> bool {
    matches!(
        what,
        EventKind::Busy { .. }
            | EventKind::Unavailable { .. }
            | EventKind::NotOwned { .. }
            | EventKind::RenewFailed { .. }
    )
}

/// Counts the control plane's events too.
impl PlaneObserver for MetricsRegistry {
    fn on_plane_event(&self, event: &PlaneEvent) {
        for_each_metric_change(event, |name, values, by| {
            let mut labels = labels(name, values);
            for (label, value) in &mut labels {
                if *label == "class" && !self.has_own_series(value) {
                    OTHER_LABEL.clone_into(value);
                }
            }
            self.metrics.add_to_extra(name, labels, by);
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use leasehold::clock::BootClock;
    use leasehold_core::memory::MemoryStore;

    use super::*;

    /// Finding 1 of the security review, for the classes of jobs.
    #[tokio::test]
    async fn finding_01_classes_of_jobs_add_a_constant_number_of_series() {
        let locks = Locks::builder(Arc::new(MemoryStore::new(BootClock::shared()))).build().unwrap();
        let registry = MetricsRegistry::new("memory");
        registry.init_series(&locks, true);
        let handed_over = |class: &str| {
            let event = PlaneEvent::HandedOver { class: class.into(), waited: Duration::ZERO };
            registry.on_plane_event(&event);
        };
        handed_over("invented");
        let before = registry.text(None).await.lines().count();
        (0..200).for_each(|number| handed_over(&format!("c{number}")));
        handed_over("scheduler");
        let text = registry.text(None).await;
        assert_eq!(text.lines().count(), before);
        let other = "plane_dispatch_seconds_count{store=\"memory\",class=\"other\"} 201";
        assert!(text.contains(other), "{text}");
    }
}
