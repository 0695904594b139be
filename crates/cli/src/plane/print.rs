//! Jobs and runs for people and programs, printed from the documents that a plane answers with.

use std::io::Write;
use std::time::Duration;

use serde_json::{Value, json};

use crate::args::Output;

/// One line.
pub(crate) fn print_line(text: &str) -> anyhow::Result<()> {
    writeln!(std::io::stdout(), "{text}")?;
    Ok(())
}

/// One JSON document.
pub(crate) fn print_json(value: &Value) -> anyhow::Result<()> {
    writeln!(std::io::stdout(), "{value:#}")?;
    Ok(())
}

/// Columns for people.
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

/// A list of documents, in whichever form; `kind` is what the list is called in JSON.
pub(crate) fn print_list(
    kind: &str,
    list: &Value,
    output: Output,
    heads: &[&str],
    row: impl Fn(&Value) -> Vec<String>,
) -> anyhow::Result<()> {
    let all = list.as_array().map(Vec::as_slice).unwrap_or_default();
    match output {
        Output::Table | Output::Wide => print_table(heads, all.iter().map(row).collect()),
        Output::Json => print_json(&json!({"schema_version": 1, kind: all})),
        Output::Jsonl => all.iter().try_for_each(|one| print_line(&one.to_string())),
        Output::Name => all.iter().try_for_each(|one| print_line(&text(&one["id"]))),
    }
}

/// A text of a document, or that there is none.
pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".into(),
        other => other.to_string(),
    }
}

/// How long ago a job or run was last written, for people.
pub(crate) fn age(view: &Value) -> String {
    let at = |field: &str| view[field].as_u64().unwrap_or_default();
    crate::lease::short(Duration::from_millis(
        at("now_ms").saturating_sub(at("updated_ms")),
    ))
}
