//! `leasehold store`: make a store ready, or say what it is and can do.

use std::io::Write;

use anyhow::Context;
use clap::{Args, Subcommand};
use comfy_table::{Table, presets};
use leasehold::StoreUrl;
use leasehold::clock::{BootClock, Clock};
use serde_json::json;

use crate::args::{Form, Place};
use crate::desk::Desk;
use crate::lease::write_table;
use crate::say::say;

/// `leasehold store`.
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
    /// Every verb does this when it first needs the store. Do it by itself to see early that it works, and who owns the file.
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
        #[arg(short, long, value_enum, default_value_t = Form::Text)]
        output: Form,
    },
}

/// Makes it ready or describes it.
pub(crate) fn main(place: &Place, args: &StoreArgs) -> anyhow::Result<bool> {
    match &args.command {
        StoreCommand::Init => init(place),
        StoreCommand::Info { output } => info(place, *output),
    }
}

fn init(place: &Place) -> anyhow::Result<bool> {
    let url = place.store()?;
    let there = matches!(&url, StoreUrl::Sqlite { path, .. } if path.exists());
    let desk = Desk::of(url, place)?;
    desk.ask(desk.store.list("", 1, desk.within))
        .with_context(|| format!("{} cannot be used", desk.url))?;
    match &desk.url {
        StoreUrl::Sqlite { .. } if !there => say(&format!("made {}", desk.url)),
        url => say(&format!("{url} is ready; there was nothing to make")),
    }
    Ok(true)
}

fn info(place: &Place, output: Form) -> anyhow::Result<bool> {
    let desk = Desk::open(place)?;
    let began = BootClock.now();
    let promised = desk
        .ask(desk.store.promise(desk.within))
        .with_context(|| format!("{} cannot say what it promises", desk.url))?;
    let took = BootClock.now().since(began);
    let can = desk.store.capabilities();
    let mut out = anstream::stdout().lock();
    if output == Form::Json {
        let all = json!({
            "schema_version": 1,
            "store": desk.url.to_string(),
            "kind": can.kind,
            "promise": promised.promise.to_string(),
            "because": promised.because,
            "answered_in_us": u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
            "can": {
                "list": can.list, "queue": can.queue, "wake": can.wake, "cross_process": can.cross_process,
                "shared": can.shared, "permits": can.permits, "fence_survives_loss": can.fence_survives_loss,
            },
        });
        writeln!(out, "{all:#}")?;
        return Ok(true);
    }
    let yes = |can: bool| if can { "yes" } else { "no" }.to_owned();
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["STORE", &desk.url.to_string()]);
    for (what, value) in [
        ("kind", can.kind.to_owned()),
        ("promise", promised.promise.to_string()),
        ("other processes share it", yes(can.cross_process)),
        ("lists its locks", yes(can.list)),
        ("serves waiters in order", yes(can.queue)),
        ("fences outlive lost data", yes(can.fence_survives_loss)),
    ] {
        table.add_row([what.to_owned(), value]);
    }
    write_table(&mut out, table)?;
    for reason in &promised.because {
        writeln!(out, "note: {reason}")?;
    }
    Ok(true)
}
