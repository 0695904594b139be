//! Everything that is counted: the locks' events and the control plane's notes, for Prometheus.

use leasehold::Locks;
use leasehold::event::{Event, Observer};
use leasehold_metrics::Prometheus;
use leasehold_plane::Plane;
use leasehold_plane::metrics::{JOBS, METRICS, known, moves, namespaces};
use leasehold_plane::note::{Note, Observer as NoteObserver};

/// The numbers of one process: a daemon, or a replica of the control plane.
#[derive(Debug)]
pub struct Numbers(Prometheus);

impl Numbers {
    /// Of a client on this kind of store (`Capabilities::kind`).
    #[must_use]
    pub fn new(store: &'static str) -> Self {
        let mut metrics = Prometheus::new(store);
        for metric in METRICS {
            metrics.also(metric.name, metric.kind, metric.help);
        }
        Self(metrics)
    }

    /// Lets everything that is known already begin at zero: a rate over a series does not show the event that it begins with.
    pub fn begin(&self, locks: &Locks, plane: bool) {
        let classes = locks.policies().classes();
        for class in &classes {
            let of_plane = if plane { namespaces(class) } else { &[] };
            // Names without a namespace are in this one.
            for namespace in of_plane.iter().chain(&["default"]) {
                self.0.expect(class, namespace);
            }
        }
        let classes: Vec<&str> = classes.iter().map(|class| &**class).collect();
        known(&classes, |name, values| self.0.begin(name, labels(name, values)));
    }

    /// Everything as text. The jobs in each state are counted now; if the plane's store does not answer, the last count stands.
    pub async fn text(&self, plane: Option<&Plane>) -> String {
        if let Some(plane) = plane {
            match plane.tally().await {
                Ok(tally) => {
                    for (state, jobs) in tally {
                        let jobs = u32::try_from(jobs).unwrap_or(u32::MAX);
                        self.0.set(JOBS, labels(JOBS, &[state.word()]), f64::from(jobs));
                    }
                }
                Err(error) => tracing::warn!(%error, "jobs could not be counted for the metrics"),
            }
        }
        self.0.encode()
    }
}

/// The labels of one of the plane's metrics, with their values.
fn labels(name: &str, values: &[&str]) -> Vec<(&'static str, String)> {
    let metric = METRICS.iter().find(|metric| metric.name == name);
    let names = metric.map_or(&[][..], |metric| metric.labels);
    let values = values.iter().map(|value| (*value).to_owned());
    names.iter().copied().zip(values).collect()
}

impl Observer for Numbers {
    fn on(&self, event: &Event) {
        self.0.on(event);
    }
}

/// What the control plane has to tell is counted too.
impl NoteObserver for Numbers {
    fn on(&self, note: &Note) {
        moves(note, |name, values, by| {
            self.0.add(name, labels(name, values), by);
        });
    }
}
