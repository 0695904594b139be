//! Log lines on standard error, chosen by `LEASEHOLD_LOG` (e.g. `debug`, `leasehold_core=trace`).

use std::io::{Stderr, Write};

use leasehold_core::types::is_invisible;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;

use crate::args::Command;

pub(crate) fn start(command: &Command) {
    let chosen = std::env::var("LEASEHOLD_LOG").ok().filter(|text| !text.is_empty());
    let warnings = Targets::new().with_default(LevelFilter::WARN);
    let filter = match &chosen {
        Some(text) => text.parse().unwrap_or_else(|error| {
            crate::message::print_message(&format!(
                "LEASEHOLD_LOG={text} is not understood ({error}); using warn"
            ));
            warnings
        }),
        None if holds_locks_for_others(command) => warnings,
        // Other verbs print what happened to their lock themselves; the log would repeat it.
        None => warnings.with_target("leasehold_core::observe", LevelFilter::OFF),
    };
    let ansi = std::io::IsTerminal::is_terminal(&std::io::stderr())
        && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let log = tracing_subscriber::fmt()
        .with_max_level(LevelFilter::TRACE)
        .with_writer(|| EscapedLines(std::io::stderr()))
        .with_ansi(ansi)
        .compact()
        .finish()
        .with(filter);
    // Fails only if a subscriber is already set, which then serves.
    let _ = tracing::subscriber::set_global_default(log);
}

/// Long-running verbs that hold locks for others: their events are printed nowhere else.
fn holds_locks_for_others(command: &Command) -> bool {
    matches!(command, Command::Serve(_) | Command::Dev(_) | Command::Plane(_) | Command::Drill(_))
}

/// Standard error for log lines. The formatter escapes control characters, except those of its own colours; invisible
/// characters pass it, and would make two names look alike.
struct EscapedLines(Stderr);

impl Write for EscapedLines {
    fn write(&mut self, buffer: &[u8]) -> std::io::Result<usize> {
        // The formatter writes a whole line at once.
        self.0.write_all(escape_invisible(&String::from_utf8_lossy(buffer)).as_bytes())?;
        Ok(buffer.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

fn escape_invisible(line: &str) -> String {
    let mut all = String::with_capacity(line.len());
    for letter in line.chars() {
        if is_invisible(letter) || matches!(letter, '\u{2028}' | '\u{2029}') {
            all.extend(letter.escape_unicode());
        } else {
            all.push(letter);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::escape_invisible;

    /// Finding 19 of the security review.
    #[test]
    fn finding_19_logs_show_invisible_characters() {
        assert_eq!(
            escape_invisible("\u{1b}[31mWARN\u{1b}[0m job:1\u{fe0f} \u{202e}ü\n"),
            "\u{1b}[31mWARN\u{1b}[0m job:1\\u{fe0f} \\u{202e}ü\n"
        );
    }
}
