//! `leasehold policy` against a running daemon: its classes in force, changing them for a while, and what was changed.

use std::io::Write;

use anyhow::{Context, bail};
use comfy_table::{Table, presets};
use leasehold::StoreUrl;
use leasehold::http::{Asked, Daemon, HttpOptions};
use leasehold::policy::duration::human;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::PolicyCommand;
use crate::args::{Form, Place};
use crate::desk::Desk;
use crate::lease::{millis, write_table};
use crate::say::say;

#[derive(Debug, Deserialize)]
struct Policies {
    classes: Vec<ClassView>,
}

#[derive(Debug, Deserialize)]
struct ClassView {
    class: String,
    values: Vec<ValueView>,
}

#[derive(Debug, Deserialize)]
struct ValueView {
    field: String,
    value: String,
    origin: String,
}

#[derive(Debug, Deserialize)]
struct ChangeView {
    class: String,
    change: String,
    at: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Changes {
    changes: Vec<ChangeView>,
}

/// A daemon, if the store is one.
pub(super) fn daemon(place: &Place) -> anyhow::Result<Option<(Daemon, Desk)>> {
    let url = place.store()?;
    let StoreUrl::Http { url: text } = &url else {
        return Ok(None);
    };
    let daemon = Daemon::open(HttpOptions::parse(text)?)?;
    Ok(Some((daemon, Desk::of(url, place)?)))
}

/// Prints the classes as they are in force in the daemon.
pub(super) fn show(daemon: &Daemon, desk: &Desk, class: Option<&str>, output: Form) -> anyhow::Result<bool> {
    let classes = match class {
        Some(class) => vec![answer(desk, daemon.get::<ClassView>(&["policies", class]))?],
        None => answer(desk, daemon.get::<Policies>(&["policies"]))?.classes,
    };
    let mut out = anstream::stdout().lock();
    if output == Form::Json {
        let classes: Vec<_> = classes.into_iter().map(document).collect();
        writeln!(out, "{:#}", json!({ "schema_version": 1, "classes": classes }))?;
        return Ok(true);
    }
    for (at, class) in classes.into_iter().enumerate() {
        writeln!(out, "{}class {}", if at > 0 { "\n" } else { "" }, class.class)?;
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        table.set_header(["FIELD", "VALUE", "ORIGIN"]);
        for value in class.values {
            table.add_row([value.field, value.value, value.origin]);
        }
        write_table(&mut out, table)?;
    }
    Ok(true)
}

fn document(class: ClassView) -> Value {
    let fields: Map<String, Value> = class
        .values
        .into_iter()
        .map(|value| {
            (
                value.field,
                json!({ "value": value.value, "origin": value.origin }),
            )
        })
        .collect();
    json!({ "name": class.class, "fields": fields })
}

/// Changes a field for a while.
pub(super) fn set(place: &Place, command: &PolicyCommand) -> anyhow::Result<bool> {
    let Some((daemon, desk)) = daemon(place)? else {
        return no_daemon(place, "change a policy");
    };
    let PolicyCommand::Set {
        class,
        field,
        value,
        lasting,
        reason,
    } = command
    else {
        bail!("this is a part of `leasehold policy set`");
    };
    let want = json!({
        "field": field,
        "value": value,
        "reason": format!("{reason} ({})", crate::audit::actor()),
        "lasting_ms": millis(*lasting),
    });
    let changed: ChangeView = answer(&desk, daemon.post(&["policies", class, "overrides"], &want))?;
    say(&format!("{}, for {}", changed.change, human(*lasting)));
    Ok(true)
}

/// Prints what was changed.
pub(super) fn history(place: &Place, output: Form) -> anyhow::Result<bool> {
    let Some((daemon, desk)) = daemon(place)? else {
        return no_daemon(place, "tell how policies were changed");
    };
    let changes = answer(&desk, daemon.get::<Changes>(&["policy-history"]))?.changes;
    let mut out = anstream::stdout().lock();
    if output == Form::Json {
        let changes: Vec<_> = changes
            .into_iter()
            .map(|change| json!({ "at": change.at, "class": change.class, "change": change.change }))
            .collect();
        writeln!(out, "{:#}", json!({ "schema_version": 1, "changes": changes }))?;
        return Ok(true);
    }
    for change in changes {
        writeln!(out, "{}  {}", change.at.unwrap_or_default(), change.change)?;
    }
    Ok(true)
}

fn answer<T>(desk: &Desk, question: impl Future<Output = Asked<T>>) -> anyhow::Result<T> {
    let asked = desk.ask(question);
    match asked.with_context(|| format!("cannot ask the daemon at {}", desk.url))? {
        Ok(answer) => Ok(answer),
        Err(problem) => bail!("{} refuses: {}", desk.url, problem.detail),
    }
}

fn no_daemon(place: &Place, what: &str) -> anyhow::Result<bool> {
    bail!(
        "{} is a store, and only a running daemon can {what} for everyone at once\n\
         name a daemon with --store http://HOST:PORT, or change the policy file: programs and `run` pick it up within seconds",
        place.store()?
    )
}
