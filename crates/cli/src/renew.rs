//! `leasehold renew`: extend a lease that `acquire` took.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use clap::Args;
use clap_complete::engine::{ArgValueCompleter, PathCompleter};
use leasehold::Ttl;
use leasehold::clock::{BootClock, Clock};
use leasehold::policy::Class;
use leasehold::store::{RenewRequest, RenewResponse, StoreError, StoreErrorKind};
use leasehold_core::Deadline;
use leasehold_core::deadline::usable_time;
use serde_json::json;

use crate::args::{ReportFormat, path};
use crate::config::Settings;
use crate::lease::short_duration;
use crate::message::{print_message, show_command};
use crate::session::StoreSession;
use crate::token_file::{self, TOKEN_FILE_VARIABLE, TokenFile};

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
    // A retry is safe: applying a renewal twice has the effect of one.
    let (renewed, sent_at) = session
        .call_with_retries(async |left| {
            let sent_at = BootClock.now();
            let answers = session.store.renew(&batch, left).await;
            let unanswered =
                || StoreError::unknown(StoreErrorKind::Corrupt, "it did not answer this renewal");
            let renewed = answers.into_iter().next().unwrap_or_else(|| Err(unanswered()))?;
            Ok((renewed, sent_at))
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
    let ttl = token_file.ttl.get();
    let usable = usable_time(ttl, Class::default_drift(ttl), Duration::ZERO);
    let valid = Deadline::of_lease(sent_at + usable).remaining(BootClock.now());
    // The lease is extended whatever becomes of the file, so this is no error of the renewal.
    if extended
        && args.ttl.is_some()
        && let Err(error) = token_file.replace(&file)
    {
        print_message(&format!(
            "{name} was extended, but its token file could not be rewritten: {error:#}\n\
             a later renewal without --ttl uses the earlier time to live: repeat --ttl, or make the file writable"
        ));
    }
    let mut out = crate::output::stdout();
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
             stop what you do under it; `{}` says who has it now",
            show_command(name.as_str())
        ));
    }
    Ok(extended)
}
