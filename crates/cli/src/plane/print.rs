//! Prints the JSON documents of jobs and runs as tables, lines or JSON.

use std::io::Write;
use std::time::Duration;

use serde_json::{Value, json};

use crate::args::ListFormat;

pub(crate) fn print_line(text: &str) -> anyhow::Result<()> {
    writeln!(std::io::stdout(), "{text}")?;
    Ok(())
}

pub(crate) fn print_json(value: &Value) -> anyhow::Result<()> {
    writeln!(std::io::stdout(), "{value:#}")?;
    Ok(())
}

pub(crate) fn print_table(heads: &[&str], rows: Vec<Vec<String>>) -> anyhow::Result<()> {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header(heads.iter().copied());
    table.add_rows(rows);
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let mut out = std::io::stdout().lock();
    for line in table.lines() {
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

/// Prints a list in the chosen format; `kind` is the name of the list in JSON.
pub(crate) fn print_list(
    kind: &str,
    list: &Value,
    output: ListFormat,
    heads: &[&str],
    row: impl Fn(&Value) -> Vec<String>,
) -> anyhow::Result<()> {
    let all = list.as_array().map(Vec::as_slice).unwrap_or_default();
    match output {
        ListFormat::Table | ListFormat::Wide => print_table(heads, all.iter().map(row).collect()),
        ListFormat::Json => print_json(&json!({"schema_version": 1, kind: all})),
        ListFormat::Jsonl => all.iter().try_for_each(|one| print_line(&one.to_string())),
        ListFormat::Name => all.iter().try_for_each(|one| print_line(&field_text(&one["id"]))),
    }
}

/// A field as text; `-` if it is missing.
pub(crate) fn field_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".into(),
        other => other.to_string(),
    }
}

/// The time since a job or run was last written.
pub(crate) fn age_text(view: &Value) -> String {
    // Both times come from the plane's clock, so the clock of this host does not matter.
    let at = |field: &str| view[field].as_u64().unwrap_or_default();
    crate::lease::short_duration(Duration::from_millis(at("now_ms").saturating_sub(at("updated_ms"))))
}
