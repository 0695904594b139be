use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::local_only::LocalOnly;
use super::moves::moves;
use super::namespaces::Namespaces;
use crate::event::{Event, Observer, What};

/// A number that moves with the stream. Names are without the `leasehold_` prefix; times are in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Metric {
    /// E.g. `acquire_total`.
    pub name: &'static str,
    /// The value of its own label (`outcome`, `reason`, `op`), or empty.
    pub label: &'static str,
}

/// Whose number it is. Never the lock's name: that would be without bound.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Labels {
    /// The class.
    pub class: Arc<str>,
    /// The namespace: what stands before the first `:` of the name.
    pub namespace: String,
}

/// Totals in memory: what the daemon exports and what tests compare with the stream. Every event moves each of its
/// numbers exactly once.
#[derive(Debug, Default)]
pub struct Counters {
    values: Mutex<BTreeMap<(Metric, Labels), f64>>,
    namespaces: Namespaces,
    local: LocalOnly,
}

impl Counters {
    /// The sum over all classes and namespaces.
    #[must_use]
    pub fn total(&self, name: &str, label: &str) -> f64 {
        self.sum(|metric, _| metric.name == name && metric.label == label)
    }

    /// The sum over all namespaces of one class.
    #[must_use]
    pub fn of_class(&self, name: &str, label: &str, class: &str) -> f64 {
        self.sum(|metric, labels| metric.name == name && metric.label == label && &*labels.class == class)
    }

    /// Everything, in order.
    #[must_use]
    pub fn snapshot(&self) -> Vec<(Metric, Labels, f64)> {
        let values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        values
            .iter()
            .map(|((metric, labels), value)| (*metric, labels.clone(), *value))
            .collect()
    }

    fn sum(&self, of: impl Fn(&Metric, &Labels) -> bool) -> f64 {
        let values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        values
            .iter()
            .filter(|((metric, labels), _)| of(metric, labels))
            // Not `sum`: of nothing, that is minus zero.
            .fold(0.0, |sum, (_, value)| sum + value)
    }
}

impl Observer for Counters {
    fn on(&self, event: &Event) {
        let mut values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        let labels = Labels {
            class: Arc::clone(&event.class),
            namespace: self.namespaces.of(event),
        };
        let key = |name, label| (Metric { name, label }, labels.clone());
        moves(&event.what, |name, label, by| {
            *values.entry(key(name, label)).or_default() += by
        });
        let by = self.local.moved(event);
        if by != 0.0 {
            *values.entry(key("local_only_holds", "")).or_default() += by;
        }
        if let What::Renewed { left, .. } = event.what {
            // The least so far: the early warning is the worst renewal, not the average.
            let least = values.entry(key("renew_remaining_ratio", "")).or_insert(left);
            *least = least.min(left);
        }
    }
}
