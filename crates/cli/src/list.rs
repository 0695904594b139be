//! `leasehold list`.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use leasehold::clock::{BootClock, ClockExt};

use crate::args::{Output, Place};
use crate::complete;
use crate::desk::Desk;
use crate::lease::print;
use crate::say::say;

/// `leasehold list`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  leasehold list              every held lock
  leasehold list job:         names that begin with job:
  leasehold list --watch      again and again, until ctrl-C
  leasehold list -o name | xargs -n1 leasehold show")]
pub(crate) struct ListArgs {
    /// Only names that begin with this
    #[arg(default_value = "", add = ArgValueCompleter::new(complete::names))]
    pub(crate) prefix: String,
    /// How to print
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
    /// At most this many
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) limit: u32,
    /// List again and again, until ctrl-C
    #[arg(long)]
    pub(crate) watch: bool,
    /// How often, with --watch
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = crate::span::parse, requires = "watch")]
    pub(crate) every: Duration,
}

/// Prints the live leases.
pub(crate) fn main(place: &Place, args: &ListArgs) -> anyhow::Result<bool> {
    let desk = Desk::open(place)?;
    let limit = usize::try_from(args.limit).unwrap_or(usize::MAX);
    let mut said = false;
    loop {
        let listing = desk.list(&args.prefix, limit)?;
        if args.watch && std::io::stdout().is_terminal() {
            // Home, and clear from there on: what was printed before scrolls away unharmed.
            print!("\x1b[H\x1b[2J");
        }
        print(&listing.leases, listing.truncated, args.output)?;
        if listing.truncated && !said {
            say(&format!("there are more than {limit}; see --limit"));
            said = true;
        }
        if !args.watch {
            return Ok(true);
        }
        if !std::io::stdout().is_terminal() && matches!(args.output, Output::Table | Output::Wide) {
            writeln!(std::io::stdout())?;
        }
        desk.wait(BootClock.sleep(args.every.max(Duration::from_millis(50))));
    }
}
