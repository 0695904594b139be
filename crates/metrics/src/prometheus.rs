use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{PoisonError, RwLock};

use leasehold_core::event::{Event, EventKind, Observer};
use leasehold_core::observe::{LabelValues, LocalOnlyHolds, METRICS, MetricKind, OTHER_LABEL, event_metrics};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::buckets;
use crate::zero_series::ZERO_SERIES;

/// The `Content-Type` of [`Prometheus::encode`]'s output.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Class, namespace and, if the metric has one, its own label.
type Labels = Vec<(&'static str, String)>;

/// An observer that counts events as Prometheus metrics.
pub struct Prometheus {
    registry: Registry,
    metrics: HashMap<&'static str, (Option<&'static str>, MetricFamily)>,
    /// Metrics registered by the program with [`register_extra`](Self::register_extra), with their
    /// own labels.
    extra: HashMap<&'static str, MetricFamily>,
    classes: LabelValues,
    namespaces: LabelValues,
    local: LocalOnlyHolds,
    /// The classes and namespaces whose series have been created at zero.
    started: RwLock<HashMap<String, HashSet<String>>>,
}

/// One metric with all its label sets.
enum MetricFamily {
    Counter(Family<Labels, Counter<f64, AtomicU64>>),
    Gauge(Family<Labels, Gauge<f64, AtomicU64>>),
    Histogram(Family<Labels, Histogram, BucketBounds>),
}

#[derive(Clone)]
struct BucketBounds(&'static [f64]);

impl MetricConstructor<Histogram> for BucketBounds {
    fn new_metric(&self) -> Histogram {
        Histogram::new(self.0.iter().copied())
    }
}

impl Prometheus {
    /// Creates the metrics of a client on this kind of store (`Capabilities::kind`).
    #[must_use]
    pub fn new(store: &'static str) -> Self {
        let label = ("store".into(), store.into());
        let mut registry = Registry::with_prefix_and_labels("leasehold", std::iter::once(label));
        let mut numbers = HashMap::new();
        for metric in METRICS {
            let own = register_family(&mut registry, metric.name, metric.kind, metric.help);
            numbers.insert(metric.name, (metric.label, own));
        }
        Self {
            registry,
            metrics: numbers,
            extra: HashMap::new(),
            classes: LabelValues::default(),
            namespaces: LabelValues::default(),
            local: LocalOnlyHolds::default(),
            started: RwLock::default(),
        }
    }

    /// Creates the series that alert rules use at zero, for this class and namespace, so that
    /// `increase()` sees their first event. Other classes and namespaces are created at their first
    /// event.
    pub fn start_at_zero(&self, class: &str, namespace: &str) {
        let has = |begun: &HashMap<String, HashSet<String>>| {
            begun.get(class).is_some_and(|namespaces| namespaces.contains(namespace))
        };
        // A read lock first: this runs for every event, and the series exist after the first one.
        if has(&self.started.read().unwrap_or_else(PoisonError::into_inner)) {
            return;
        }
        // Takes a place of its own, so that its events do not share `other` later.
        if namespace != OTHER_LABEL {
            let _ = self.namespaces.label_for(namespace);
        }
        let labels = [("class", class.to_owned()), ("namespace", namespace.to_owned())];
        for (name, values) in ZERO_SERIES {
            let Some((own, numbers)) = self.metrics.get(name) else {
                continue;
            };
            for value in *values {
                let own = own.map(|own| (own, (*value).to_owned()));
                numbers.create_series(&labels.iter().cloned().chain(own).collect());
            }
        }
        let mut begun = self.started.write().unwrap_or_else(PoisonError::into_inner);
        begun.entry(class.to_owned()).or_default().insert(namespace.to_owned());
    }

    /// Counts an event that a refused or failed request of some caller has caused. Its namespace is the
    /// caller's text: it shares `other` unless a lease was granted in it, or it was started at zero.
    pub fn count_refused(&self, event: &Event) {
        let has_series = {
            let started = self.started.read().unwrap_or_else(PoisonError::into_inner);
            started.values().any(|namespaces| namespaces.contains(event.namespace()))
        };
        let namespace = if has_series { self.namespaces.label_for(event.namespace()) } else { OTHER_LABEL };
        self.count(event, namespace);
    }

    fn count(&self, event: &Event, namespace: &str) {
        let class = self.classes.label_for(&event.class);
        self.start_at_zero(class, namespace);
        let labels = vec![("class", class.to_owned()), ("namespace", namespace.to_owned())];
        event_metrics(&event.what, |name, value, by| self.add_to_metric(&labels, name, value, by));
        let by = self.local.gauge_delta(event);
        if by != 0.0 {
            self.add_to_metric(&labels, "local_only_holds", "", by);
        }
        if let EventKind::Renewed { left, .. } = event.what {
            self.add_to_metric(&labels, "renew_remaining_ratio", "", left);
        }
    }

    /// Encodes all metrics in the OpenMetrics text format (see [`CONTENT_TYPE`]).
    #[must_use]
    pub fn encode(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = encode(&mut text, &self.registry);
        text
    }

    /// Registers an additional metric of the program, exported as `leasehold_` and its name.
    pub fn register_extra(&mut self, name: &'static str, kind: MetricKind, help: &'static str) {
        let own = register_family(&mut self.registry, name, kind, help);
        self.extra.insert(name, own);
    }

    /// Adds to a registered counter or gauge, or observes a value of a registered histogram.
    /// Unknown names are ignored.
    pub fn add_to_extra(&self, name: &str, labels: Vec<(&'static str, String)>, by: f64) {
        if let Some(numbers) = self.extra.get(name) {
            numbers.add(&labels, by);
        }
    }

    /// Creates a series of a registered metric at zero.
    pub fn start_extra_at_zero(&self, name: &str, labels: Vec<(&'static str, String)>) {
        if let Some(numbers) = self.extra.get(name) {
            numbers.create_series(&labels);
        }
    }

    /// Sets a registered gauge.
    pub fn set_extra(&self, name: &str, labels: Vec<(&'static str, String)>, to: f64) {
        if let Some(MetricFamily::Gauge(family)) = self.extra.get(name) {
            family.get_or_create(&labels).set(to);
        }
    }

    /// Encodes all metrics in the older Prometheus text format, which node_exporter's textfile
    /// collector reads. It has `_total` in the `HELP` and `TYPE` lines of counters, and no `# EOF`.
    #[must_use]
    pub fn encode_text(&self) -> String {
        let mut text = String::new();
        for line in self.encode().lines() {
            let mut words = line.split(' ');
            match (words.next(), words.next(), words.next()) {
                (Some("#"), Some("EOF"), _) => continue,
                (Some("#"), Some(what @ ("HELP" | "TYPE")), Some(name)) if self.is_counter(name) => {
                    let rest: Vec<_> = words.collect();
                    text.push_str(&format!("# {what} {name}_total {}", rest.join(" ")));
                }
                _ => text.push_str(line),
            }
            text.push('\n');
        }
        text
    }

    /// Whether this name, without `_total` as in OpenMetrics, is a counter.
    fn is_counter(&self, name: &str) -> bool {
        let own = name.strip_prefix("leasehold_").unwrap_or_default();
        let own = format!("{own}_total");
        let theirs = self.extra.get(own.as_str());
        let numbers = self.metrics.get(own.as_str()).map(|(_, numbers)| numbers);
        matches!(numbers.or(theirs), Some(MetricFamily::Counter(_)))
    }

    /// The registry, for programs that register their own metrics directly.
    pub fn registry(&mut self) -> &mut Registry {
        &mut self.registry
    }

    fn add_to_metric(&self, labels: &Labels, name: &'static str, value: &'static str, by: f64) {
        let Some((own, numbers)) = self.metrics.get(name) else {
            // A programming error: tests must find it, production ignores the event.
            debug_assert!(false, "{name} is not in METRICS");
            return;
        };
        let mut labels = labels.clone();
        if let Some(own) = own {
            labels.push((own, value.to_owned()));
        }
        numbers.add(&labels, by);
    }
}

impl MetricFamily {
    /// Creates the series without changing its value.
    fn create_series(&self, labels: &Labels) {
        match self {
            Self::Counter(family) => drop(family.get_or_create(labels)),
            Self::Gauge(family) => drop(family.get_or_create(labels)),
            Self::Histogram(family) => drop(family.get_or_create(labels)),
        }
    }

    fn add(&self, labels: &Labels, by: f64) {
        match self {
            Self::Counter(family) => {
                family.get_or_create(labels).inc_by(by);
            }
            Self::Gauge(family) => {
                family.get_or_create(labels).inc_by(by);
            }
            Self::Histogram(family) => family.get_or_create(labels).observe(by),
        }
    }
}

fn register_family(
    registry: &mut Registry,
    name: &'static str,
    kind: MetricKind,
    help: &'static str,
) -> MetricFamily {
    match kind {
        MetricKind::Counter => {
            let family = Family::<Labels, Counter<f64, AtomicU64>>::default();
            // The encoder adds `_total` to the names of counters.
            registry.register(name.trim_end_matches("_total"), help, family.clone());
            MetricFamily::Counter(family)
        }
        MetricKind::Gauge => {
            let family = Family::<Labels, Gauge<f64, AtomicU64>>::default();
            registry.register(name, help, family.clone());
            MetricFamily::Gauge(family)
        }
        _ => {
            let family = Family::<Labels, Histogram, BucketBounds>::new_with_constructor(BucketBounds(
                buckets::bounds_for(name),
            ));
            registry.register(name, help, family.clone());
            MetricFamily::Histogram(family)
        }
    }
}

impl Observer for Prometheus {
    fn on_event(&self, event: &Event) {
        self.count(event, self.namespaces.label_for(event.namespace()));
    }
}

impl fmt::Debug for Prometheus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prometheus").finish_non_exhaustive()
    }
}
