//! How `list` and `show` print leases.

use std::io::Write;

use anstyle::Style;
use comfy_table::{Table, presets};
use leasehold::policy::duration::human;
use leasehold::store::Lease;
use serde_json::{Value, json};

use crate::args::ListFormat;
use crate::message::escape_control;
use crate::output::{self, Output};

// Raised when a field is removed or changes its meaning. A new field does not raise it.
const LEASE_SCHEMA: u32 = 1;

pub(crate) fn print_leases(leases: &[Lease], truncated: bool, output: ListFormat) -> anyhow::Result<()> {
    let mut out = output::stdout();
    match output {
        ListFormat::Table | ListFormat::Wide => {
            let wide = output == ListFormat::Wide;
            let heads = ["NAME", "HOLDER", "CLASS", "FENCE", "REMAINING", "AGE"];
            let heads = heads.into_iter().chain(wide.then_some("WAITERS"));
            write_table(&mut out, heads, leases.iter().map(|lease| lease_row(lease, wide)))?;
        }
        ListFormat::Json => {
            let leases: Vec<_> = leases.iter().map(lease_json).collect();
            let all = json!({ "schema_version": LEASE_SCHEMA, "leases": leases, "truncated": truncated });
            writeln!(out, "{all:#}")?;
        }
        ListFormat::Jsonl => {
            leases.iter().try_for_each(|lease| writeln!(out, "{}", lease_document(lease)))?
        }
        // A name has no control characters, and `leasehold break` needs it as it is.
        ListFormat::Name => {
            leases.iter().try_for_each(|lease| writeln!(output::script_stdout(), "{}", lease.name))?
        }
    }
    out.flush()?;
    Ok(())
}

/// The lines of a table without borders, because people grep it.
pub(crate) fn table_lines<'a>(
    heads: impl IntoIterator<Item = &'a str>,
    rows: impl IntoIterator<Item = Vec<String>>,
) -> Vec<String> {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(heads.into_iter().collect::<Vec<_>>());
    // Before the layout: an escaped cell is wider, and a line feed in a cell would start a row of its own.
    let escaped = |row: Vec<String>| row.iter().map(|cell| escape_control(cell)).collect::<Vec<_>>();
    table.add_rows(rows.into_iter().map(escaped));
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.lines().map(|line| line.trim_end().to_owned()).collect()
}

/// Writes a table. Only the heading is bold.
pub(crate) fn write_table<'a>(
    out: &mut Output,
    heads: impl IntoIterator<Item = &'a str>,
    rows: impl IntoIterator<Item = Vec<String>>,
) -> std::io::Result<()> {
    for (at, line) in table_lines(heads, rows).iter().enumerate() {
        if at == 0 {
            out.write_styled(Style::new().bold(), line)?;
            writeln!(out)?;
        } else {
            writeln!(out, "{line}")?;
        }
    }
    Ok(())
}

/// A lease as a JSON document of its own, with `schema_version`.
pub(crate) fn lease_document(lease: &Lease) -> Value {
    let mut value = lease_json(lease);
    if let Value::Object(map) = &mut value {
        map.insert("schema_version".into(), LEASE_SCHEMA.into());
    }
    value
}

/// The JSON document of a free name.
pub(crate) fn free_document(name: &str) -> Value {
    json!({ "schema_version": LEASE_SCHEMA, "name": name, "held": false })
}

// The fence is a string: many JSON readers lose bits of numbers above 2^53.
pub(crate) fn lease_json(lease: &Lease) -> Value {
    json!({
        "name": lease.name.as_str(),
        "held": true,
        "holder": lease.holder,
        "class": lease.class,
        "fence": lease.fence.map(|fence| fence.to_string()),
        "remaining_ms": lease.remaining.map(millis),
        "age_ms": lease.age.map(millis),
        "waiters": lease.waiters,
    })
}

pub(crate) fn millis(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn lease_row(lease: &Lease, wide: bool) -> Vec<String> {
    let missing = || "-".to_owned();
    let mut row = vec![
        lease.name.to_string(),
        lease.holder.clone(),
        lease.class.clone().unwrap_or_else(missing),
        lease.fence.map_or_else(missing, |fence| fence.to_string()),
        lease.remaining.map_or_else(|| "never ends".into(), short_duration),
        lease.age.map_or_else(missing, short_duration),
    ];
    if wide {
        row.push(lease.waiters.map_or_else(missing, |waiters| waiters.to_string()));
    }
    row
}

/// Rounds to 100 ms below ten seconds and to whole seconds above: finer digits are noise in a table.
pub(crate) fn short_duration(time: std::time::Duration) -> String {
    let grain: u128 = if time.as_secs() >= 10 { 1000 } else { 100 };
    let rounded = (time.as_millis() + grain / 2) / grain * grain;
    human(std::time::Duration::from_millis(u64::try_from(rounded).unwrap_or(u64::MAX)))
}
