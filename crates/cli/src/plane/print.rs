//! Prints jobs and runs as tables, lines or JSON.

use std::io::Write;
use std::time::Duration;

use leasehold_plane::view::{EventView, dropped_events};
use serde::Serialize;
use serde_json::{Value, json};

use crate::args::ListFormat;
use crate::lease::table_lines;
use crate::output;

pub(crate) fn print_line(text: &str) -> anyhow::Result<()> {
    Ok(output::stdout().write_line(text)?)
}

/// Prints an id. Programs read it back, so only a terminal gets it escaped.
pub(crate) fn print_id(id: &str) -> anyhow::Result<()> {
    let mut out = output::filter_stdout();
    // A daemon's answer may hold a line feed, which would make two ids of one.
    let id: String = id.chars().filter(|ch| !ch.is_control()).collect();
    Ok(writeln!(out, "{id}")?)
}

pub(crate) fn print_json(document: &impl Serialize) -> anyhow::Result<()> {
    // Through a `Value`, whose keys are sorted.
    writeln!(output::stdout(), "{:#}", json!(document))?;
    Ok(())
}

pub(crate) fn print_table(heads: &[&str], rows: Vec<Vec<String>>) -> anyhow::Result<()> {
    let mut out = output::stdout();
    for line in table_lines(heads.iter().copied(), rows) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// Prints a list in the chosen format; `kind` is the name of the list in JSON. A row begins with the id.
pub(crate) fn print_list<T: Serialize>(
    kind: &str,
    all: &[T],
    output: ListFormat,
    heads: &[&str],
    row: impl Fn(&T) -> Vec<String>,
) -> anyhow::Result<()> {
    match output {
        ListFormat::Table | ListFormat::Wide => print_table(heads, all.iter().map(row).collect()),
        ListFormat::Json => print_json(&json!({"schema_version": 1, kind: all})),
        ListFormat::Jsonl => all.iter().try_for_each(|one| print_line(&json!(one).to_string())),
        ListFormat::Name => all.iter().try_for_each(|one| print_id(&row(one).swap_remove(0))),
    }
}

/// A field of an event as text; `-` if the event has none.
pub(crate) fn event_field(event: &EventView, field: &str) -> String {
    match event.body.get(field) {
        Some(Value::String(text)) => text.clone(),
        None | Some(Value::Null) => "-".into(),
        Some(other) => other.to_string(),
    }
}

/// Says how much of a long history is missing.
pub(crate) fn print_dropped_events(events: &[EventView]) -> anyhow::Result<()> {
    match dropped_events(events) {
        0 => Ok(()),
        dropped => {
            print_line(&format!("{dropped} events between the first and the newest ones are no longer kept"))
        }
    }
}

/// The text, or `-`.
pub(crate) fn or_dash(text: Option<&str>) -> String {
    text.unwrap_or("-").to_owned()
}

/// The time since a job or run was last written.
pub(crate) fn age_text(now_ms: u64, updated_ms: u64) -> String {
    // Both times come from the plane's clock, so the clock of this host does not matter.
    crate::lease::short_duration(Duration::from_millis(now_ms.saturating_sub(updated_ms)))
}
