//! `leasehold store`: create a store's files, or describe the store.

use std::io::Write;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Subcommand};
use leasehold::clock::{BootClock, Clock};
use leasehold::http::wire::millis;
use leasehold::policy::duration::human;
use leasehold::store::Capabilities;
use serde_json::json;

use crate::args::ReportFormat;
use crate::config::Settings;
use crate::lease::write_table;
use crate::message::print_message;
use crate::session::StoreSession;

/// Arguments of `leasehold store`.
#[derive(Debug, Args)]
pub(crate) struct StoreArgs {
    #[command(subcommand)]
    pub(crate) command: StoreCommand,
}

/// What to do with a store.
#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Make the store ready: the file and its tables; a server only has to answer
    ///
    /// Every verb does this when it first needs the store. Do it by itself to see early that it works, and
    /// who owns the file.
    #[command(after_help = "\
Examples:
  leasehold store init
  leasehold --store sqlite:/var/lib/leasehold/locks.db store init")]
    Init,
    /// Say what the store is, what it can do, and what it promises as it is configured now
    #[command(after_help = "\
Examples:
  leasehold store info
  leasehold --store redis://127.0.0.1 store info -o json")]
    Info {
        /// How to print
        #[arg(short, long, value_enum, default_value_t = ReportFormat::Text)]
        output: ReportFormat,
    },
}

pub(crate) fn main(settings: &Settings, args: &StoreArgs) -> anyhow::Result<bool> {
    match &args.command {
        StoreCommand::Init => init(settings),
        StoreCommand::Info { output } => info(settings, *output),
    }
}

fn init(settings: &Settings) -> anyhow::Result<bool> {
    let url = settings.store_url()?;
    // Opening creates the store, so whether it existed must be known before.
    let missing = url.exists() == Some(false);
    let session = StoreSession::open_url(url, settings)?;
    // A remote store may connect only with its first call, so opening alone proves nothing.
    session
        .call(session.store.list("", 1, session.timeout))
        .with_context(|| format!("{} cannot be used", session.url))?;
    let url = &session.url;
    print_message(&if missing {
        format!("made {url}")
    } else {
        format!("{url} is ready; there was nothing to make")
    });
    Ok(true)
}

fn info(settings: &Settings, output: ReportFormat) -> anyhow::Result<bool> {
    let session = StoreSession::open(settings)?;
    let began = BootClock.now();
    let promised = session
        .call(session.store.promise(session.timeout))
        .with_context(|| format!("{} cannot say what it promises", session.url))?;
    let took = BootClock.now().since(began);
    let capabilities = session.store.capabilities();
    let mut out = crate::output::stdout();
    if output == ReportFormat::Json {
        let all = json!({
            "schema_version": 1,
            "store": session.url.to_string(),
            "kind": capabilities.kind,
            "promise": promised.promise.to_string(),
            "because": promised.limits,
            "answered_in_us": u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
            "can": {
                "list": capabilities.list, "queue": capabilities.queue, "wake": capabilities.wake, "cross_process": capabilities.cross_process,
                "shared": capabilities.shared, "permits": capabilities.permits, "several_names": capabilities.several_names,
                "fence_survives_loss": capabilities.fence_survives_loss,
            },
            "times": {
                "min_ttl_ms": millis(capabilities.min_ttl.get()), "ttl_step_ms": millis(capabilities.ttl_step),
                "expiry_lag_ms": millis(capabilities.expiry_lag), "claim_ttl_ms": millis(capabilities.claim_ttl),
            },
        });
        writeln!(out, "{all:#}")?;
        return Ok(true);
    }
    let rows = [("kind", capabilities.kind.to_owned()), ("promise", promised.promise.to_string())];
    let rows = rows.into_iter().chain(capability_rows(&capabilities));
    let rows = rows.map(|(what, value)| vec![what.to_owned(), value]);
    write_table(&mut out, ["STORE", &session.url.to_string()], rows)?;
    for reason in &promised.limits {
        writeln!(out, "note: {reason}")?;
    }
    Ok(true)
}

/// What a store can do and its times, in words: for `store info` and the reference.
pub(crate) fn capability_rows(capabilities: &Capabilities) -> Vec<(&'static str, String)> {
    let yes = |can: bool| if can { "yes" } else { "no" }.to_owned();
    let time = |span: Duration| if span.is_zero() { "none".to_owned() } else { human(span) };
    vec![
        ("other processes share it", yes(capabilities.cross_process)),
        ("lists its locks", yes(capabilities.list)),
        ("serves waiters in order", yes(capabilities.queue)),
        ("wakes waiters", yes(capabilities.wake)),
        ("shared leases", yes(capabilities.shared)),
        ("permits", yes(capabilities.permits)),
        ("several names in one lease", yes(capabilities.several_names)),
        ("fences outlive lost data", yes(capabilities.fence_survives_loss)),
        ("shortest TTL", time(capabilities.min_ttl.get())),
        ("TTLs are rounded up to", time(capabilities.ttl_step)),
        ("expired leases linger for", time(capabilities.expiry_lag)),
        ("a waiter confirms within", time(capabilities.claim_ttl)),
    ]
}
