//! `leasehold policy show`.

use std::io::Write;

use leasehold::clock::{BootClock, Clock};
use leasehold::policy::Resolved;
use serde_json::{Map, Value, json};

use crate::args::{Form, Place};

/// Prints classes with the origin of every value.
pub(super) fn main(place: &Place, class: Option<&str>, output: Form) -> anyhow::Result<bool> {
    let (book, now) = (place.book()?, BootClock.now());
    let names = match class {
        Some(class) => vec![class.into()],
        None => book.classes(),
    };
    let classes: Vec<Resolved> = names
        .iter()
        .map(|name| book.explain(name, now))
        .collect::<Result<_, _>>()?;
    let mut out = std::io::stdout().lock();
    match output {
        Form::Json => {
            let classes: Vec<_> = classes.iter().map(document).collect();
            writeln!(out, "{:#}", json!({ "schema_version": 1, "classes": classes }))?;
        }
        Form::Text => {
            for (at, class) in classes.iter().enumerate() {
                writeln!(out, "{}{class}", if at > 0 { "\n" } else { "" })?;
            }
        }
    }
    Ok(true)
}

fn document(class: &Resolved) -> Value {
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
