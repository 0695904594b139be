//! `leasehold release`: release a lease that `acquire` took.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use clap_complete::engine::{ArgValueCompleter, PathCompleter};
use leasehold::clock::{BootClock, Clock};
use leasehold::store::{ReleaseRequest, ReleaseResponse};
use leasehold_core::acquire::ReleaseDriver;
use serde_json::json;

use crate::args::{ReportFormat, path};
use crate::config::Settings;
use crate::lease::short_duration;
use crate::message::print_message;
use crate::session::StoreSession;
use crate::token_file::{self, TOKEN_FILE_VARIABLE, TokenFile};

/// Arguments of `leasehold release`.
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
    #[arg(long, value_name = "FILE", env = TOKEN_FILE_VARIABLE, hide_env_values = true, value_parser = path(), add = ArgValueCompleter::new(PathCompleter::file()))]
    pub(crate) token_file: Option<PathBuf>,
    /// How to print
    #[arg(short, long, value_enum, default_value_t = ReportFormat::Text)]
    pub(crate) output: ReportFormat,
}

/// Releases a lease. Returns false if the caller no longer owned it.
pub(crate) fn main(settings: &Settings, args: &ReleaseArgs) -> anyhow::Result<bool> {
    let file = token_file::find(args.token_file.as_ref())?;
    let token_file = TokenFile::read(&file)?;
    let session = StoreSession::open_url(token_file.granting_store(settings)?, settings)?;
    // Without a fence the acquire was interrupted, and its request may still arrive at the store. An
    // undo also covers that late request.
    let request = match token_file.fence {
        Some(_) => ReleaseRequest::by_owner(token_file.name.clone(), token_file.token.clone()),
        None => ReleaseRequest::undo(token_file.name.clone(), token_file.token.clone()),
    };
    let response = session
        .block_on(async {
            let end = BootClock.now() + session.timeout;
            let class = token_file.release_class(session.timeout)?;
            let released = ReleaseDriver::new(request, class).with_end(end).run(&session.driver_io()).await;
            anyhow::Ok(released?)
        })
        .map_err(|error| {
            anyhow::anyhow!(
                "cannot release {}: {} did not confirm it ({error:#})\n\
             the lease runs out by itself within {}; the token file stays, so that you can try again",
                token_file.name,
                session.url,
                short_duration(token_file.ttl.get() + token_file.lock_delay)
            )
        })?;
    // Before printing: a closed pipe would end the command and leave the token file behind.
    std::fs::remove_file(&file).with_context(|| format!("released, but cannot remove {}", file.display()))?;
    let (name, released) = (&token_file.name, response == ReleaseResponse::Released);
    if args.output == ReportFormat::Json {
        let all = json!({ "schema_version": 1, "name": name.as_str(), "released": released });
        writeln!(crate::output::stdout(), "{all:#}")?;
    }
    if !released && token_file.fence.is_some() {
        print_message(&format!(
            "{name} was not yours any more: the lease ran out or was broken before this release\n\
             another client may have worked at the same time; check what was written, or have it check the fence"
        ));
    }
    Ok(released)
}
