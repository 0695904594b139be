//! Observers of the event stream: log output, counters, a bounded history and a live feed.

mod counters;
mod event_catalogue;
mod event_metrics;
mod feed;
mod history;
mod label_values;
mod local_only;
mod log;
mod metric_catalogue;

pub use counters::{Counters, Labels, Metric};
pub use event_catalogue::EVENTS;
pub use event_metrics::event_metrics;
pub use feed::Feed;
pub use history::History;
pub use label_values::{LabelValues, OTHER_LABEL};
pub use local_only::LocalOnlyHolds;
pub use log::Log;
pub use metric_catalogue::{METRICS, MetricDescription, MetricKind};
