//! `leasehold release`: give back what `acquire` took.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use clap_complete::engine::{ArgValueCompleter, PathCompleter};
use leasehold::clock::{BootClock, Clock, ClockExt, until};
use leasehold::store::{Given, Giving};
use serde_json::json;

use crate::args::{Form, Place, path};
use crate::desk::Desk;
use crate::lease::short;
use crate::say::say;
use crate::ticket::{self, Ticket, VARIABLE};

/// The pause between two tries.
const PAUSE: Duration = Duration::from_millis(100);

/// `leasehold release`.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes:
  0 given back, and the token file is gone
  1 it was not yours any more; the token file is gone
  2 error: it could not be confirmed; the token file stays, and the lease runs out by itself

Examples:
  leasehold release                        # the file that LEASEHOLD_TOKEN_FILE names
  leasehold release --token-file /run/me/deploy.token
  trap 'leasehold release' EXIT")]
pub(crate) struct ReleaseArgs {
    /// The file that `acquire` wrote
    #[arg(long, value_name = "FILE", env = VARIABLE, hide_env_values = true, value_parser = path(), add = ArgValueCompleter::new(PathCompleter::file()))]
    pub(crate) token_file: Option<PathBuf>,
    /// How to print
    #[arg(short, long, value_enum, default_value_t = Form::Text)]
    pub(crate) output: Form,
}

/// Gives a lease back; answers whether it still was the caller's.
pub(crate) fn main(place: &Place, args: &ReleaseArgs) -> anyhow::Result<bool> {
    let file = ticket::find(args.token_file.as_ref())?;
    let ticket = Ticket::read(&file)?;
    let desk = Desk::of(ticket.store(place)?, place)?;
    // An acquire that was interrupted may still be on its way to the store.
    let giving = match ticket.fence {
        Some(_) => Giving::owned(ticket.name.clone(), ticket.token.clone()),
        None => Giving::undo(ticket.name.clone(), ticket.token.clone()),
    };
    let given = desk
        .wait(async {
            let end = BootClock.now() + desk.within;
            let mut ambiguous = false;
            loop {
                let left = end.since(BootClock.now());
                match until(&BootClock, end, desk.store.release(&giving, left)).await {
                    // An earlier try that was not answered may have been the one that released it.
                    Some(Ok(Given::NotOwned)) if ambiguous => return Ok(Given::Released),
                    Some(Ok(given)) => return Ok(given),
                    Some(Err(failure)) if failure.transient() && BootClock.now() + PAUSE < end => {
                        ambiguous |= failure.unknown;
                        BootClock.sleep(PAUSE).await;
                    }
                    Some(Err(failure)) => return Err(anyhow::Error::from(failure)),
                    None => anyhow::bail!("no answer within {}", short(desk.within)),
                }
            }
        })
        .map_err(|error| {
            anyhow::anyhow!(
                "cannot release {}: {} did not confirm it ({error:#})\n\
             the lease runs out by itself within {}; the token file stays, so that you can try again",
                ticket.name,
                desk.url,
                short(ticket.ttl.get() + ticket.lock_delay)
            )
        })?;
    // Before anything is printed: a pipe that nobody reads must not leave a token behind.
    std::fs::remove_file(&file).with_context(|| format!("released, but cannot remove {}", file.display()))?;
    let (name, released) = (&ticket.name, given == Given::Released);
    if args.output == Form::Json {
        let all = json!({ "schema_version": 1, "name": name.as_str(), "released": released });
        writeln!(std::io::stdout().lock(), "{all:#}")?;
    }
    if !released && ticket.fence.is_some() {
        say(&format!(
            "{name} was not yours any more: the lease ran out or was broken before this release\n\
             someone else may have worked at the same time; check what was written, or have it check the fence"
        ));
    }
    Ok(released)
}
