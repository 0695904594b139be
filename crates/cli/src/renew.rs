//! `leasehold renew`: extend what `acquire` took.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use clap::Args;
use clap_complete::engine::{ArgValueCompleter, PathCompleter};
use leasehold::Ttl;
use leasehold::clock::{BootClock, Clock, ClockExt, until};
use leasehold::policy::Class;
use leasehold::store::{Renewal, Renewed};
use serde_json::json;

use crate::args::{Form, Place, path};
use crate::desk::Desk;
use crate::lease::short;
use crate::say::say;
use crate::ticket::{self, Ticket, VARIABLE};

/// The pause between two tries.
const PAUSE: Duration = Duration::from_millis(100);

/// `leasehold renew`.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes:
  0 extended: it is yours for the time that is printed
  1 lost: it is not yours any more; stop what you do under it
  2 error: nobody knows; stop your work when the time last printed is over

Examples:
  leasehold renew                          # the file that LEASEHOLD_TOKEN_FILE names
  leasehold renew --token-file /run/me/deploy.token || kill $worker
  leasehold renew --ttl 10m -o json")]
pub(crate) struct RenewArgs {
    /// The file that `acquire` wrote
    #[arg(long, value_name = "FILE", env = VARIABLE, hide_env_values = true, value_parser = path(), add = ArgValueCompleter::new(PathCompleter::file()))]
    pub(crate) token_file: Option<PathBuf>,
    /// Another time to live from now on; a lease is never shortened
    #[arg(long, value_name = "DURATION", value_parser = crate::span::parse)]
    pub(crate) ttl: Option<Duration>,
    /// How to print
    #[arg(short, long, value_enum, default_value_t = Form::Text)]
    pub(crate) output: Form,
}

/// Extends a lease; answers whether it still was the caller's.
pub(crate) fn main(place: &Place, args: &RenewArgs) -> anyhow::Result<bool> {
    let file = ticket::find(args.token_file.as_ref())?;
    let mut ticket = Ticket::read(&file)?;
    let Some(fence) = ticket.fence else {
        bail!(
            "the acquire that wrote {} was interrupted before the store answered: there is nothing to renew\n\
             take back what it may have got with `leasehold release`, then acquire again",
            file.display()
        );
    };
    if let Some(ttl) = args.ttl {
        ticket.ttl = Ttl::new(ttl)?;
    }
    let desk = Desk::of(ticket.store(place)?, place)?;
    let batch = [Renewal {
        name: ticket.name.clone(),
        token: ticket.token.clone(),
        fence,
        ttl: ticket.ttl,
        lock_delay: ticket.lock_delay,
    }];
    let (renewed, sent_at) = desk
        .wait(async {
            let end = BootClock.now() + desk.within;
            loop {
                let sent_at = BootClock.now();
                let left = end.since(sent_at);
                let answer = until(&BootClock, end, desk.store.renew(&batch, left)).await;
                match answer.and_then(|answers| answers.into_iter().next()) {
                    Some(Ok(renewed)) => return Ok((renewed, sent_at)),
                    // Asking again is safe: a renewal applied twice is one renewal.
                    Some(Err(failure)) if failure.transient() && BootClock.now() + PAUSE < end => {
                        BootClock.sleep(PAUSE).await;
                    }
                    Some(Err(failure)) => return Err(anyhow::Error::from(failure)),
                    None => bail!("no answer within {}", short(desk.within)),
                }
            }
        })
        .map_err(|error| {
            anyhow::anyhow!(
                "cannot renew {}: {} did not confirm it ({error:#})\n\
             it may or may not have been extended; try again, and stop your work when its time is over",
                ticket.name,
                desk.url
            )
        })?;
    let name = &ticket.name;
    let kept = matches!(renewed, Renewed::Extended { .. });
    let usable = ticket
        .ttl
        .get()
        .saturating_sub(Class::default_drift(ticket.ttl.get()));
    let valid = (sent_at + usable).since(BootClock.now());
    if kept && args.ttl.is_some() {
        ticket.replace(&file)?;
    }
    let mut out = std::io::stdout().lock();
    match args.output {
        Form::Json => {
            let valid_for = kept.then(|| u64::try_from(valid.as_millis()).unwrap_or(u64::MAX));
            let all = json!({
                "schema_version": 1,
                "name": name.as_str(),
                "renewed": kept,
                "fence": fence.to_string(),
                "valid_for_ms": valid_for,
            });
            writeln!(out, "{all:#}")?;
        }
        Form::Text if kept => writeln!(out, "{name} is yours for {} more", short(valid))?,
        Form::Text => {}
    }
    if !kept {
        say(&format!(
            "{name} is lost: the lease ran out or was broken, and someone else may have it\n\
             stop what you do under it; `leasehold show {name}` says who has it now"
        ));
    }
    Ok(kept)
}
