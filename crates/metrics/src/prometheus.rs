use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{PoisonError, RwLock};

use leasehold_core::event::{Event, Observer, What};
use leasehold_core::observe::{Kind, LocalOnly, METRICS, Namespaces, moves};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::buckets;
use crate::known::KNOWN;

/// What [`Prometheus::encode`] writes, for the answer's header.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Class, namespace and, where a metric has one, its own label.
type Labels = Vec<(&'static str, String)>;

/// Every metric of the stream.
pub struct Prometheus {
    registry: Registry,
    numbers: HashMap<&'static str, (Option<&'static str>, Numbers)>,
    /// Those of others, with labels of their own.
    more: HashMap<&'static str, Numbers>,
    namespaces: Namespaces,
    local: LocalOnly,
    /// Namespaces by class whose series have begun.
    begun: RwLock<HashMap<String, HashSet<String>>>,
}

/// One metric over all its labels.
enum Numbers {
    Counter(Family<Labels, Counter<f64, AtomicU64>>),
    Gauge(Family<Labels, Gauge<f64, AtomicU64>>),
    Histogram(Family<Labels, Histogram, Buckets>),
}

#[derive(Clone)]
struct Buckets(&'static [f64]);

impl MetricConstructor<Histogram> for Buckets {
    fn new_metric(&self) -> Histogram {
        Histogram::new(self.0.iter().copied())
    }
}

impl Prometheus {
    /// Metrics of a client on this kind of store (`Capabilities::kind`).
    #[must_use]
    pub fn new(store: &'static str) -> Self {
        let label = ("store".into(), store.into());
        let mut registry = Registry::with_prefix_and_labels("leasehold", std::iter::once(label));
        let mut numbers = HashMap::new();
        for metric in METRICS {
            let own = register(&mut registry, metric.name, metric.kind, metric.help);
            numbers.insert(metric.name, (metric.label, own));
        }
        Self {
            registry,
            numbers,
            more: HashMap::new(),
            namespaces: Namespaces::default(),
            local: LocalOnly::default(),
            begun: RwLock::default(),
        }
    }

    /// Lets what rules look at begin at zero for this class and namespace, so that the first event is a step and not a
    /// beginning. What is not named here begins with its first event.
    pub fn expect(&self, class: &str, namespace: &str) {
        let has = |begun: &HashMap<String, HashSet<String>>| {
            begun
                .get(class)
                .is_some_and(|namespaces| namespaces.contains(namespace))
        };
        if has(&self.begun.read().unwrap_or_else(PoisonError::into_inner)) {
            return;
        }
        let labels = [("class", class.to_owned()), ("namespace", namespace.to_owned())];
        for (name, values) in KNOWN {
            let Some((own, numbers)) = self.numbers.get(name) else {
                continue;
            };
            for value in *values {
                let own = own.map(|own| (own, (*value).to_owned()));
                numbers.begin(&labels.iter().cloned().chain(own).collect());
            }
        }
        let mut begun = self.begun.write().unwrap_or_else(PoisonError::into_inner);
        begun
            .entry(class.to_owned())
            .or_default()
            .insert(namespace.to_owned());
    }

    /// Everything, in the text format that Prometheus scrapes (see [`CONTENT_TYPE`]).
    #[must_use]
    pub fn encode(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = encode(&mut text, &self.registry);
        text
    }

    /// Exports a number of someone else's too, as `leasehold_` and its name.
    pub fn also(&mut self, name: &'static str, kind: Kind, help: &'static str) {
        let own = register(&mut self.registry, name, kind, help);
        self.more.insert(name, own);
    }

    /// Moves one of those: a counter or a gauge by this much, a histogram by one value. One that is not known is left.
    pub fn add(&self, name: &str, labels: Vec<(&'static str, String)>, by: f64) {
        if let Some(numbers) = self.more.get(name) {
            numbers.add(&labels, by);
        }
    }

    /// Lets one of those begin at zero.
    pub fn begin(&self, name: &str, labels: Vec<(&'static str, String)>) {
        if let Some(numbers) = self.more.get(name) {
            numbers.begin(&labels);
        }
    }

    /// Sets one of those that are gauges.
    pub fn set(&self, name: &str, labels: Vec<(&'static str, String)>, to: f64) {
        if let Some(Numbers::Gauge(family)) = self.more.get(name) {
            family.get_or_create(&labels).set(to);
        }
    }

    /// Everything, in the older text format, which the textfile collector of node_exporter reads: there a counter's own name
    /// ends in `_total`, and nothing marks the end.
    #[must_use]
    pub fn encode_text(&self) -> String {
        let mut text = String::new();
        for line in self.encode().lines() {
            let mut words = line.split(' ');
            match (words.next(), words.next(), words.next()) {
                (Some("#"), Some("EOF"), _) => continue,
                (Some("#"), Some(what @ ("HELP" | "TYPE")), Some(name)) if self.counts(name) => {
                    let rest: Vec<_> = words.collect();
                    text.push_str(&format!("# {what} {name}_total {}", rest.join(" ")));
                }
                _ => text.push_str(line),
            }
            text.push('\n');
        }
        text
    }

    /// Is this the name of a counter, as the newer format writes it?
    fn counts(&self, name: &str) -> bool {
        let own = name.strip_prefix("leasehold_").unwrap_or_default();
        let own = format!("{own}_total");
        let theirs = self.more.get(own.as_str());
        let numbers = self.numbers.get(own.as_str()).map(|(_, numbers)| numbers);
        matches!(numbers.or(theirs), Some(Numbers::Counter(_)))
    }

    /// The registry, for programs that export metrics of their own beside these.
    pub fn registry(&mut self) -> &mut Registry {
        &mut self.registry
    }

    fn moved(&self, labels: &Labels, name: &'static str, value: &'static str, by: f64) {
        let Some((own, numbers)) = self.numbers.get(name) else {
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

impl Numbers {
    /// Makes the series without moving it.
    fn begin(&self, labels: &Labels) {
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

fn register(registry: &mut Registry, name: &'static str, kind: Kind, help: &'static str) -> Numbers {
    match kind {
        Kind::Counter => {
            let family = Family::<Labels, Counter<f64, AtomicU64>>::default();
            // The format itself adds `_total` to counters.
            registry.register(name.trim_end_matches("_total"), help, family.clone());
            Numbers::Counter(family)
        }
        Kind::Gauge => {
            let family = Family::<Labels, Gauge<f64, AtomicU64>>::default();
            registry.register(name, help, family.clone());
            Numbers::Gauge(family)
        }
        _ => {
            let family =
                Family::<Labels, Histogram, Buckets>::new_with_constructor(Buckets(buckets::of(name)));
            registry.register(name, help, family.clone());
            Numbers::Histogram(family)
        }
    }
}

impl Observer for Prometheus {
    fn on(&self, event: &Event) {
        let namespace = self.namespaces.of(event);
        self.expect(&event.class, &namespace);
        let labels = vec![("class", event.class.to_string()), ("namespace", namespace)];
        moves(&event.what, |name, value, by| {
            self.moved(&labels, name, value, by)
        });
        let by = self.local.moved(event);
        if by != 0.0 {
            self.moved(&labels, "local_only_holds", "", by);
        }
        if let What::Renewed { left, .. } = event.what {
            self.moved(&labels, "renew_remaining_ratio", "", left);
        }
    }
}

impl fmt::Debug for Prometheus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prometheus").finish_non_exhaustive()
    }
}
