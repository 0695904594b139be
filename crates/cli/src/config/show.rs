//! `leasehold config show`: print every setting and its origin.

use std::io::Write;

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
            let heads = ["SETTING", "VALUE"].into_iter().chain(origin.then_some("ORIGIN"));
            let row = |(key, value, from): (&str, String, String)| {
                [key.to_owned(), value].into_iter().chain(origin.then_some(from)).collect()
            };
            crate::lease::write_table(&mut out, heads, rows.map(row))?;
        }
    }
    Ok(true)
}
