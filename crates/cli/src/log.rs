//! Log lines on standard error, chosen by `LEASEHOLD_LOG` (e.g. `debug`, `leasehold_core=trace`).

use tracing_subscriber::EnvFilter;

use crate::args::Command;

/// Starts the log.
pub(crate) fn start(command: &Command) {
    let chosen = std::env::var("LEASEHOLD_LOG")
        .ok()
        .filter(|text| !text.is_empty());
    let filter = match &chosen {
        Some(text) => EnvFilter::try_new(text).unwrap_or_else(|error| {
            crate::say::say(&format!(
                "LEASEHOLD_LOG={text} is not understood ({error}); using warn"
            ));
            EnvFilter::new("warn")
        }),
        None if works_on(command) => EnvFilter::new("warn"),
        // Everyone else tells what became of their one lock in their own words, and once is enough.
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
    // Only fails if a log was started before, and then there is one.
    let _ = tracing::subscriber::set_global_default(log);
}

/// Keeps locks for others, so that what happens to them is news to whoever reads the log.
fn works_on(command: &Command) -> bool {
    matches!(
        command,
        Command::Serve(_) | Command::Dev(_) | Command::Plane(_) | Command::Drill(_)
    )
}
