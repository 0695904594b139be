//! `leasehold policy` against a running daemon: show, change and list changes of its classes.

use std::io::Write;

use anyhow::{Context, bail};
use leasehold::http::wire::{ClassView, PolicyChangeList, PolicyChangeView, PolicyList, PolicyOverride};
use leasehold::http::{DaemonClient, DaemonResult};
use leasehold::policy::duration::human;
use serde_json::{Map, Value, json};

use super::PolicyCommand;
use crate::args::ReportFormat;
use crate::config::Settings;
use crate::daemon;
use crate::lease::{millis, write_table};
use crate::message::print_message;
use crate::session::StoreSession;

/// The daemon, if the store is one.
pub(super) fn open_daemon(settings: &Settings) -> anyhow::Result<Option<(DaemonClient, StoreSession)>> {
    let url = settings.store_url()?;
    let Some(client) = daemon::open_client(&url)? else {
        return Ok(None);
    };
    Ok(Some((client, StoreSession::open_url(url, settings)?)))
}

/// Prints the classes in force in the daemon.
pub(super) fn print_classes(
    daemon: &DaemonClient,
    session: &StoreSession,
    class: Option<&str>,
    output: ReportFormat,
) -> anyhow::Result<bool> {
    let classes = match class {
        Some(class) => vec![fetch(session, daemon.get::<ClassView>(&["policies", class]))?],
        None => fetch(session, daemon.get::<PolicyList>(&["policies"]))?.classes,
    };
    let mut out = crate::output::stdout();
    if output == ReportFormat::Json {
        let classes: Vec<_> = classes.into_iter().map(class_document).collect();
        writeln!(out, "{:#}", json!({ "schema_version": 1, "classes": classes }))?;
        return Ok(true);
    }
    for (at, class) in classes.into_iter().enumerate() {
        writeln!(out, "{}class {}", if at > 0 { "\n" } else { "" }, class.class)?;
        let rows = class.values.into_iter().map(|value| vec![value.field, value.value, value.origin]);
        write_table(&mut out, ["FIELD", "VALUE", "ORIGIN"], rows)?;
    }
    Ok(true)
}

fn class_document(class: ClassView) -> Value {
    let fields: Map<String, Value> = class
        .values
        .into_iter()
        .map(|value| (value.field, json!({ "value": value.value, "origin": value.origin })))
        .collect();
    json!({ "name": class.class, "fields": fields })
}

/// Changes a field of a class for a limited time.
pub(super) fn set_override(settings: &Settings, command: &PolicyCommand) -> anyhow::Result<bool> {
    let Some((daemon, session)) = open_daemon(settings)? else {
        return daemon_required(settings, "change a policy");
    };
    let PolicyCommand::Set { class, field, value, lasting, reason } = command else {
        // Unreachable: `main` passes only `Set`.
        bail!("this is a part of `leasehold policy set`");
    };
    let want = PolicyOverride {
        field: field.clone(),
        value: value.clone(),
        // The daemon knows the API token but not the user, so the reason names the user.
        reason: format!("{reason} ({})", crate::audit::actor()),
        lasting_ms: millis(*lasting),
    };
    let changed: PolicyChangeView = fetch(&session, daemon.post(&["policies", class, "overrides"], &want))?;
    print_message(&format!("{}, for {}", changed.change, human(*lasting)));
    Ok(true)
}

/// Prints the changes of classes.
pub(super) fn print_history(settings: &Settings, output: ReportFormat) -> anyhow::Result<bool> {
    let Some((daemon, session)) = open_daemon(settings)? else {
        return daemon_required(settings, "tell how policies were changed");
    };
    let changes = fetch(&session, daemon.get::<PolicyChangeList>(&["policy-history"]))?.changes;
    let mut out = crate::output::stdout();
    if output == ReportFormat::Json {
        let document = |change: &PolicyChangeView| json!({ "at": change.at, "class": change.class, "change": change.change });
        let changes: Vec<_> = changes.iter().map(document).collect();
        writeln!(out, "{:#}", json!({ "schema_version": 1, "changes": changes }))?;
        return Ok(true);
    }
    for change in changes {
        out.write_line(&format!("{}  {}", change.at.unwrap_or_default(), change.change))?;
    }
    Ok(true)
}

fn fetch<T>(session: &StoreSession, question: impl Future<Output = DaemonResult<T>>) -> anyhow::Result<T> {
    let asked = session.call(question);
    match asked.with_context(|| format!("cannot ask the daemon at {}", session.url))? {
        Ok(answer) => Ok(answer),
        Err(problem) => bail!("{} refuses: {}", session.url, problem.detail),
    }
}

fn daemon_required(settings: &Settings, what: &str) -> anyhow::Result<bool> {
    bail!(
        "{} is a store, and only a running daemon can {what} for everyone at once\n\
         name a daemon with --store http://HOST:PORT, or change the policy file: programs and `run` pick it up within seconds",
        settings.store_url()?
    )
}
