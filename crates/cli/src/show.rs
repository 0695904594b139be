//! `leasehold show`: print the lease of one name.

use std::io::Write;

use anyhow::Context;
use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use leasehold::Name;

use crate::args::ListFormat;
use crate::complete;
use crate::config::Settings;
use crate::lease::{free_document, lease_document, print_leases};
use crate::message::print_message;
use crate::session::StoreSession;

/// Arguments of `leasehold show`.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes:
  0 held      1 free      2 error

Examples:
  leasehold show job:42
  leasehold show job:42 -o json
  if leasehold show -o name deploy >/dev/null; then echo \"a deployment is running\"; fi")]
pub(crate) struct ShowArgs {
    /// What is locked, e.g. job:42
    #[arg(add = ArgValueCompleter::new(complete::names))]
    pub(crate) name: String,
    /// How to print
    #[arg(short, long, value_enum, default_value_t = ListFormat::Table)]
    pub(crate) output: ListFormat,
}

/// Prints one lease. Returns false if the name is free.
pub(crate) fn main(settings: &Settings, args: &ShowArgs) -> anyhow::Result<bool> {
    let name = Name::new(&args.name)?;
    let session = StoreSession::open(settings)?;
    let found = session.call(session.store.inspect(&name, session.timeout));
    let found = found.with_context(|| format!("cannot look at {name} in {}", session.url))?.into_first();
    let (held, json) = (found.is_some(), matches!(args.output, ListFormat::Json | ListFormat::Jsonl));
    let mut out = crate::output::stdout();
    match found {
        Some(lease) if args.output == ListFormat::Json => writeln!(out, "{:#}", lease_document(&lease))?,
        Some(lease) => {
            // `print_leases` takes the lock of standard output itself.
            drop(out);
            print_leases(&[lease], false, args.output)?;
        }
        None if json => writeln!(out, "{}", free_document(name.as_str()))?,
        None => print_message(&format!("{name} is free")),
    }
    Ok(held)
}
