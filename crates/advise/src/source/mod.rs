//! Where recorded data comes from. Each reader takes text and says, with the line, what it cannot read.

mod durations;
mod history;
mod prometheus;

pub use durations::durations;
pub use history::history;
pub use prometheus::prometheus;

/// A line that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct Unreadable {
    /// Counted from one.
    pub line: usize,
    /// What is wrong, and what is allowed.
    pub why: String,
}

fn unreadable(at: usize, why: impl Into<String>) -> Unreadable {
    Unreadable {
        line: at + 1,
        why: why.into(),
    }
}
