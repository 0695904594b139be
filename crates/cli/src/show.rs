//! `leasehold show`.

use std::io::Write;

use anyhow::Context;
use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use leasehold::Name;

use crate::args::{Output, Place};
use crate::complete;
use crate::desk::Desk;
use crate::lease::{document, free, print};
use crate::say::say;

/// `leasehold show`.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes:
  0 held      1 free      2 error

Examples:
  leasehold show job:42
  leasehold show job:42 -o json
  if leasehold show -o name deploy >/dev/null; then echo \"someone deploys\"; fi")]
pub(crate) struct ShowArgs {
    /// What is locked, e.g. job:42
    #[arg(add = ArgValueCompleter::new(complete::names))]
    pub(crate) name: String,
    /// How to print
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
}

/// Prints one lease; answers whether there is one.
pub(crate) fn main(place: &Place, args: &ShowArgs) -> anyhow::Result<bool> {
    let name = Name::new(&args.name)?;
    let desk = Desk::open(place)?;
    let found = desk.ask(desk.store.inspect(&name, desk.within));
    let found = found.with_context(|| format!("cannot look at {name} in {}", desk.url))?;
    let (held, json) = (
        found.is_some(),
        matches!(args.output, Output::Json | Output::Jsonl),
    );
    let mut out = std::io::stdout().lock();
    match found {
        Some(lease) if args.output == Output::Json => writeln!(out, "{:#}", document(&lease))?,
        Some(lease) => {
            drop(out);
            print(&[lease], false, args.output)?;
        }
        None if json => writeln!(out, "{}", free(name.as_str()))?,
        None => say(&format!("{name} is free")),
    }
    Ok(held)
}
