//! A lease as `list` and `show` print it.

use std::io::Write;

use comfy_table::{Table, presets};
use leasehold::policy::duration::human;
use leasehold::store::Lease;
use serde_json::{Value, json};

use crate::args::Output;

/// Grows when a field changes its meaning or goes; new fields may come without it.
const SCHEMA: u32 = 1;

/// Prints leases on standard output.
pub(crate) fn print(leases: &[Lease], truncated: bool, output: Output) -> anyhow::Result<()> {
    let mut out = anstream::stdout().lock();
    match output {
        Output::Table | Output::Wide => {
            write_table(&mut out, table(leases, output == Output::Wide))?;
        }
        Output::Json => {
            let leases: Vec<_> = leases.iter().map(value).collect();
            let all = json!({ "schema_version": SCHEMA, "leases": leases, "truncated": truncated });
            writeln!(out, "{all:#}")?;
        }
        Output::Jsonl => leases
            .iter()
            .try_for_each(|lease| writeln!(out, "{}", document(lease)))?,
        Output::Name => leases
            .iter()
            .try_for_each(|lease| writeln!(out, "{}", lease.name))?,
    }
    out.flush()?;
    Ok(())
}

/// No lines and no colour but the heading's: people grep these. Colour is taken out again where it is not wanted.
pub(crate) fn write_table(out: &mut impl Write, mut table: Table) -> std::io::Result<()> {
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let bold = anstyle::Style::new().bold();
    for (at, line) in table.lines().enumerate() {
        let line = line.trim_end();
        if at == 0 {
            writeln!(out, "{bold}{line}{bold:#}")?;
        } else {
            writeln!(out, "{line}")?;
        }
    }
    Ok(())
}

/// One lease as a document of its own.
pub(crate) fn document(lease: &Lease) -> Value {
    let mut value = value(lease);
    if let Value::Object(map) = &mut value {
        map.insert("schema_version".into(), SCHEMA.into());
    }
    value
}

/// A name that nobody holds, as a document.
pub(crate) fn free(name: &str) -> Value {
    json!({ "schema_version": SCHEMA, "name": name, "held": false })
}

/// The fence is a string: JSON numbers lose bits above 2^53 in many readers.
pub(crate) fn value(lease: &Lease) -> Value {
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

/// Whole milliseconds, as JSON has them.
pub(crate) fn millis(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn table(leases: &[Lease], wide: bool) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let mut heads = vec!["NAME", "HOLDER", "CLASS", "FENCE", "REMAINING", "AGE"];
    if wide {
        heads.push("WAITERS");
    }
    table.set_header(heads);
    let missing = || "-".to_owned();
    for lease in leases {
        let mut row = vec![
            lease.name.to_string(),
            lease.holder.clone(),
            lease.class.clone().unwrap_or_else(missing),
            lease.fence.map_or_else(missing, |fence| fence.to_string()),
            lease.remaining.map_or_else(|| "never ends".into(), short),
            lease.age.map_or_else(missing, short),
        ];
        if wide {
            row.push(lease.waiters.map_or_else(missing, |waiters| waiters.to_string()));
        }
        table.add_row(row);
    }
    table
}

/// Whole seconds from ten seconds on: nobody reads the rest.
pub(crate) fn short(time: std::time::Duration) -> String {
    let grain: u128 = if time.as_secs() >= 10 { 1000 } else { 100 };
    let rounded = (time.as_millis() + grain / 2) / grain * grain;
    human(std::time::Duration::from_millis(
        u64::try_from(rounded).unwrap_or(u64::MAX),
    ))
}
