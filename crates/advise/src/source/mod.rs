//! Readers of recorded data. Each parses text, and its error names the line that it cannot read.

mod durations;
mod history;
mod prometheus;

pub use durations::parse_durations;
pub use history::parse_history;
pub use prometheus::parse_prometheus;

/// A line that cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
#[non_exhaustive]
pub struct ParseError {
    /// Line number, counted from one.
    pub line: usize,
    /// What is wrong with the line, and what is allowed.
    pub why: String,
}

fn parse_error(at: usize, why: impl Into<String>) -> ParseError {
    ParseError { line: at + 1, why: why.into() }
}
