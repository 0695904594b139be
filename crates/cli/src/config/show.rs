//! `leasehold config show`: print every setting and its origin.

use std::io::Write;

use leasehold::policy::duration::human;
use leasehold::redact;
use serde_json::{Map, Value, json};

use super::Settings;
use crate::args::ReportFormat;

/// Prints every setting in force. Secrets in URLs are redacted.
pub(crate) fn show(settings: &Settings, origin: bool, output: ReportFormat) -> anyhow::Result<bool> {
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
    let mut out = crate::output::stdout();
    match output {
        ReportFormat::Json => {
            let settings: Map<String, Value> = rows
                .into_iter()
                .map(|(key, value, origin)| (key.to_owned(), json!({ "value": value, "origin": origin })))
                .collect();
            let ignored: Vec<_> = config
                .ignored
                .iter()
                .map(|one| json!({ "setting": one.key, "origin": one.origin, "reason": one.reason_text() }))
                .collect();
            let all = json!({ "schema_version": 1, "settings": settings, "ignored": ignored });
            writeln!(out, "{all:#}")?;
        }
        ReportFormat::Text => {
            let heads = ["SETTING", "VALUE"].into_iter().chain(origin.then_some("ORIGIN"));
            let row = |(key, value, from): (&str, String, String)| {
                [key.to_owned(), value].into_iter().chain(origin.then_some(from)).collect()
            };
            crate::lease::write_table(&mut out, heads, rows.map(row))?;
            if origin && !config.ignored.is_empty() {
                writeln!(out)?;
                let ignored = config.ignored.iter();
                let rows = ignored.map(|one| vec![one.key.to_owned(), one.reason_text(), one.origin.clone()]);
                crate::lease::write_table(&mut out, ["IGNORED", "REASON", "ORIGIN"], rows)?;
            }
        }
    }
    Ok(true)
}
