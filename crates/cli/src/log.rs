//! Log lines on standard error, chosen by `LEASEHOLD_LOG` (e.g. `debug`, `leasehold_core=trace`).

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
        .with_writer(std::io::stderr)
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
