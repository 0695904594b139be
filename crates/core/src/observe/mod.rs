//! Readers of the one stream: log lines, counters, a bounded history, a live feed.

mod counters;
mod feed;
mod history;
mod log;

pub use counters::{Counters, Labels, Metric};
pub use feed::Feed;
pub use history::History;
pub use log::Log;
