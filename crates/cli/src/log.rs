//! Log lines on standard error, chosen by `LEASEHOLD_LOG` (e.g. `debug`, `leasehold_core=trace`).

use tracing_subscriber::EnvFilter;

use crate::args::Command;

pub(crate) fn start(command: &Command) {
    let chosen = std::env::var("LEASEHOLD_LOG").ok().filter(|text| !text.is_empty());
    let filter = match &chosen {
        Some(text) => EnvFilter::try_new(text).unwrap_or_else(|error| {
            crate::message::print_message(&format!(
                "LEASEHOLD_LOG={text} is not understood ({error}); using warn"
            ));
            EnvFilter::new("warn")
        }),
        None if holds_locks_for_others(command) => EnvFilter::new("warn"),
        // Other verbs print what happened to their lock themselves; the log would repeat it.
        None => EnvFilter::new("warn,leasehold_core::observe=off"),
    };
    let ansi = std::io::IsTerminal::is_terminal(&std::io::stderr())
        && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(ansi)
        .compact()
        .finish();
    // Fails only if a subscriber is already set, which then serves.
    let _ = tracing::subscriber::set_global_default(log);
}

/// Long-running verbs that hold locks for others: their events are printed nowhere else.
fn holds_locks_for_others(command: &Command) -> bool {
    matches!(command, Command::Serve(_) | Command::Dev(_) | Command::Plane(_) | Command::Drill(_))
}
