//! `leasehold policy show`: print the classes of a policy file or the built-in ones.

use std::io::Write;

use leasehold::clock::{BootClock, Clock};
use leasehold::policy::ResolvedClass;
use serde_json::{Map, Value, json};

use crate::args::ReportFormat;
use crate::config::Settings;

pub(super) fn main(settings: &Settings, class: Option<&str>, output: ReportFormat) -> anyhow::Result<bool> {
    let (book, now) = (settings.policy_book()?, BootClock.now());
    let names = match class {
        Some(class) => vec![class.into()],
        None => book.classes(),
    };
    let classes: Vec<ResolvedClass> =
        names.iter().map(|name| book.explain(name, now)).collect::<Result<_, _>>()?;
    let mut out = crate::output::stdout();
    match output {
        ReportFormat::Json => {
            let classes: Vec<_> = classes.iter().map(resolved_document).collect();
            writeln!(out, "{:#}", json!({ "schema_version": 1, "classes": classes }))?;
        }
        ReportFormat::Text => {
            for (at, class) in classes.iter().enumerate() {
                writeln!(out, "{}{class}", if at > 0 { "\n" } else { "" })?;
            }
        }
    }
    Ok(true)
}

fn resolved_document(class: &ResolvedClass) -> Value {
    let fields: Map<String, Value> = class
        .rows()
        .into_iter()
        .map(|[field, shown, origin]| {
            let value = class.value(&field).unwrap_or(&shown).to_owned();
            (field, json!({ "value": value, "origin": origin }))
        })
        .collect();
    json!({ "name": class.class.name.as_ref(), "fields": fields })
}
