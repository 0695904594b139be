//! Metric totals in memory.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::event_metrics::event_metrics;
use super::label_values::LabelValues;
use super::local_only::LocalOnlyHolds;
use crate::event::{Event, EventKind, Observer};

/// The key of one metric value. Names are without the `leasehold_` prefix; times are in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct Metric {
    /// The name, e.g. `acquire_total`.
    pub name: &'static str,
    /// The value of the metric's own label (`outcome`, `reason`, `op`), or empty.
    pub label: &'static str,
}

/// The labels that every metric has. A lock's name is never a label: the number of names is
/// unbounded.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct Labels {
    /// The class of the event, or `other` beyond the limit of label values.
    pub class: Arc<str>,
    /// The part of the name before the first `:`, or `other` beyond that limit.
    pub namespace: String,
}

/// Metric totals in memory: the daemon exports them and tests compare them with the stream. Every
/// event changes each of its metrics exactly once.
#[derive(Debug, Default)]
pub struct Counters {
    values: Mutex<BTreeMap<(Metric, Labels), f64>>,
    classes: LabelValues,
    namespaces: LabelValues,
    local: LocalOnlyHolds,
}

impl Counters {
    /// The sum of a metric over all classes and namespaces.
    #[must_use]
    pub fn total(&self, name: &str, label: &str) -> f64 {
        self.sum(|metric, _| metric.name == name && metric.label == label)
    }

    /// The sum of a metric over all namespaces of one class.
    #[must_use]
    pub fn class_total(&self, name: &str, label: &str, class: &str) -> f64 {
        self.sum(|metric, labels| metric.name == name && metric.label == label && &*labels.class == class)
    }

    /// A copy of all values, sorted by metric and labels.
    #[must_use]
    pub fn snapshot(&self) -> Vec<(Metric, Labels, f64)> {
        let values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        values.iter().map(|((metric, labels), value)| (*metric, labels.clone(), *value)).collect()
    }

    fn sum(&self, of: impl Fn(&Metric, &Labels) -> bool) -> f64 {
        let values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        values
            .iter()
            .filter(|((metric, labels), _)| of(metric, labels))
            // Not `sum`: the sum of no floats is -0.0.
            .fold(0.0, |sum, (_, value)| sum + value)
    }
}

impl Observer for Counters {
    fn on_event(&self, event: &Event) {
        let mut values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        let class = self.classes.label_for(&event.class).into();
        let namespace = self.namespaces.label_for(event.namespace()).to_owned();
        let labels = Labels { class, namespace };
        let key = |name, label| (Metric { name, label }, labels.clone());
        event_metrics(&event.what, |name, label, by| *values.entry(key(name, label)).or_default() += by);
        let by = self.local.gauge_delta(event);
        if by != 0.0 {
            *values.entry(key("local_only_holds", "")).or_default() += by;
        }
        if let EventKind::Renewed { left, .. } = event.what {
            // Keeps the minimum: the early warning is the worst renewal, not the average.
            let least = values.entry(key("renew_remaining_ratio", "")).or_insert(left);
            *least = least.min(left);
        }
    }
}
