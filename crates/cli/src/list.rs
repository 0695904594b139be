//! `leasehold list`: print the leases that are held.

use std::io::Write;
use std::time::Duration;

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use leasehold::clock::{BootClock, ClockExt};

use crate::args::ListFormat;
use crate::complete;
use crate::config::Settings;
use crate::lease::print_leases;
use crate::message::print_message;
use crate::session::StoreSession;

/// Arguments of `leasehold list`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  leasehold list              every held lock
  leasehold list job:         names that begin with job:
  leasehold list --watch      again and again, until ctrl-C
  leasehold list -o name | xargs -d '\\n' -n1 leasehold show --")]
pub(crate) struct ListArgs {
    /// Only names that begin with this
    #[arg(default_value = "", add = ArgValueCompleter::new(complete::names))]
    pub(crate) prefix: String,
    /// How to print
    #[arg(short, long, value_enum, default_value_t = ListFormat::Table)]
    pub(crate) output: ListFormat,
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

pub(crate) fn main(settings: &Settings, args: &ListArgs) -> anyhow::Result<bool> {
    let session = StoreSession::open(settings)?;
    let limit = usize::try_from(args.limit).unwrap_or(usize::MAX);
    let mut limit_reported = false;
    loop {
        let listing = session.list(&args.prefix, limit)?;
        if args.watch && crate::output::is_terminal() {
            crate::output::stdout().clear_screen()?;
        }
        print_leases(&listing.leases, listing.truncated, args.output)?;
        if listing.truncated && !limit_reported {
            print_message(&format!("there are more than {limit}; see --limit"));
            limit_reported = true;
        }
        if !args.watch {
            return Ok(true);
        }
        if !crate::output::is_terminal() && matches!(args.output, ListFormat::Table | ListFormat::Wide) {
            writeln!(crate::output::stdout())?;
        }
        // `--every 0s` must not turn into a busy loop against the store.
        session.block_on(BootClock.sleep(args.every.max(Duration::from_millis(50))));
    }
}
