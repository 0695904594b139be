//! `leasehold renew`: extend a lease that `acquire` took.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use clap::Args;
use clap_complete::engine::{ArgValueCompleter, PathCompleter};
use leasehold::Ttl;
use leasehold::clock::{BootClock, Clock, ClockExt, run_until};
use leasehold::policy::Class;
use leasehold::store::{RenewRequest, RenewResponse};
use serde_json::json;

use crate::args::{ReportFormat, path};
use crate::config::Settings;
use crate::lease::short_duration;
use crate::message::print_message;
use crate::session::StoreSession;
use crate::token_file::{self, TOKEN_FILE_VARIABLE, TokenFile};

/// Between two tries of a renewal that failed with a transient error.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// Arguments of `leasehold renew`.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes:
  0 extended: it is yours for the time that is printed
  1 lost: it is not yours any more; stop what you do under it
  2 error: unknown whether it is yours; stop your work when the time last printed is over

Examples:
  leasehold renew                          # the file that LEASEHOLD_TOKEN_FILE names
  leasehold renew --token-file /run/me/deploy.token || kill $worker
  leasehold renew --ttl 10m -o json")]
pub(crate) struct RenewArgs {
    /// The file that `acquire` wrote
    #[arg(long, value_name = "FILE", env = TOKEN_FILE_VARIABLE, hide_env_values = true, value_parser = path(), add = ArgValueCompleter::new(PathCompleter::file()))]
    pub(crate) token_file: Option<PathBuf>,
    /// Another time to live from now on; a lease is never shortened
    #[arg(long, value_name = "DURATION", value_parser = crate::span::parse)]
    pub(crate) ttl: Option<Duration>,
    /// How to print
    #[arg(short, long, value_enum, default_value_t = ReportFormat::Text)]
    pub(crate) output: ReportFormat,
}

/// Extends a lease. Returns false if the caller no longer owned it.
pub(crate) fn main(settings: &Settings, args: &RenewArgs) -> anyhow::Result<bool> {
    let file = token_file::find(args.token_file.as_ref())?;
    let mut token_file = TokenFile::read(&file)?;
    let Some(fence) = token_file.fence else {
        bail!(
            "the acquire that wrote {} was interrupted before the store answered: there is nothing to renew\n\
             take back what it may have got with `leasehold release`, then acquire again",
            file.display()
        );
    };
    if let Some(ttl) = args.ttl {
        token_file.ttl = Ttl::new(ttl)?;
    }
    let session = StoreSession::open_url(token_file.granting_store(settings)?, settings)?;
    let batch = [RenewRequest::new(&token_file.name, token_file.token.clone(), fence, token_file.ttl)
        .with_lock_delay(token_file.lock_delay)];
    let (renewed, sent_at) = session
        .block_on(async {
            let end = BootClock.now() + session.timeout;
            loop {
                let sent_at = BootClock.now();
                let left = end.since(sent_at);
                let answer = run_until(&BootClock, end, session.store.renew(&batch, left)).await;
                match answer.and_then(|answers| answers.into_iter().next()) {
                    Some(Ok(renewed)) => return Ok((renewed, sent_at)),
                    // A retry is safe: applying a renewal twice has the effect of one.
                    Some(Err(failure)) if failure.is_transient() && BootClock.now() + RETRY_PAUSE < end => {
                        BootClock.sleep(RETRY_PAUSE).await;
                    }
                    Some(Err(failure)) => return Err(anyhow::Error::from(failure)),
                    None => bail!("no answer within {}", short_duration(session.timeout)),
                }
            }
        })
        .map_err(|error| {
            anyhow::anyhow!(
                "cannot renew {}: {} did not confirm it ({error:#})\n\
             it may or may not have been extended; try again, and stop your work when its time is over",
                token_file.name,
                session.url
            )
        })?;
    let name = &token_file.name;
    let extended = matches!(renewed, RenewResponse::Extended { .. });
    // The token file does not name the class, so the default drift allowance applies.
    let usable = token_file.ttl.get().saturating_sub(Class::default_drift(token_file.ttl.get()));
    let valid = (sent_at + usable).since(BootClock.now());
    if extended && args.ttl.is_some() {
        token_file.replace(&file)?;
    }
    let mut out = std::io::stdout().lock();
    match args.output {
        ReportFormat::Json => {
            let valid_for = extended.then(|| u64::try_from(valid.as_millis()).unwrap_or(u64::MAX));
            let all = json!({
                "schema_version": 1,
                "name": name.as_str(),
                "renewed": extended,
                "fence": fence.to_string(),
                "valid_for_ms": valid_for,
            });
            writeln!(out, "{all:#}")?;
        }
        ReportFormat::Text if extended => {
            writeln!(out, "{name} is yours for {} more", short_duration(valid))?
        }
        ReportFormat::Text => {}
    }
    if !extended {
        print_message(&format!(
            "{name} is lost: the lease ran out or was broken, and another client may hold it\n\
             stop what you do under it; `leasehold show {name}` says who has it now"
        ));
    }
    Ok(extended)
}
