//! Readers of the one stream: log lines, counters, a bounded history, a live feed.

mod catalogue;
mod counters;
mod feed;
mod happenings;
mod history;
mod local_only;
mod log;
mod moves;
mod namespaces;

pub use catalogue::{Described, Kind, METRICS};
pub use counters::{Counters, Labels, Metric};
pub use feed::Feed;
pub use happenings::EVENTS;
pub use history::History;
pub use local_only::LocalOnly;
pub use log::Log;
pub use moves::moves;
pub use namespaces::Namespaces;
