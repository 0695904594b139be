//! `leasehold config show`: print every setting and its origin.

use std::io::Write;

use comfy_table::{Table, presets};
use leasehold::policy::duration::human;
use leasehold::redact;
use serde_json::{Map, Value, json};

use super::{ConfigArgs, ConfigCommand, Settings};
use crate::args::ReportFormat;

/// Prints every setting in force. Secrets in URLs are redacted.
pub(crate) fn main(settings: &Settings, args: &ConfigArgs) -> anyhow::Result<bool> {
    let ConfigCommand::Show { origin, output } = &args.command;
    let config = settings.clone();
    let none = || ("(built-in classes only)".to_owned(), "default".to_owned());
    let (policies, policies_from) =
        config.policies.map_or_else(none, |policies| (policies.value.display().to_string(), policies.origin));
    let (holder, holder_from) = config.holder.map_or_else(
        || ("(host:pid)".to_owned(), "default".to_owned()),
        |holder| (holder.value, holder.origin),
    );
    let rows = [
        ("store", redact(&config.store.value), config.store.origin),
        ("policies", policies, policies_from),
        ("holder", holder, holder_from),
        ("timeout", human(config.timeout.value), config.timeout.origin),
        ("audit_file", config.audit_file.value.display().to_string(), config.audit_file.origin),
    ];
    let mut out = anstream::stdout().lock();
    match output {
        ReportFormat::Json => {
            let settings: Map<String, Value> = rows
                .into_iter()
                .map(|(key, value, origin)| (key.to_owned(), json!({ "value": value, "origin": origin })))
                .collect();
            let all = json!({ "schema_version": 1, "settings": settings });
            writeln!(out, "{all:#}")?;
        }
        ReportFormat::Text => {
            let mut table = Table::new();
            table.load_style(presets::NOTHING);
            let mut heads = vec!["SETTING", "VALUE"];
            if *origin {
                heads.push("ORIGIN");
            }
            table.set_header(heads);
            for (key, value, from) in rows {
                let mut row = vec![key.to_owned(), value];
                if *origin {
                    row.push(from);
                }
                table.add_row(row);
            }
            crate::lease::write_table(&mut out, table)?;
        }
    }
    Ok(true)
}
