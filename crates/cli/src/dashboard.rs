//! `leasehold dashboard`: a link that opens the dashboard of a running daemon.

use std::io::Write;

use anyhow::{Context, bail};
use clap::Args;
use leasehold::StoreUrl;
use leasehold::http::wire::Secret;
use serde::Deserialize;
use serde_json::json;

use crate::config::Settings;
use crate::daemon;
use crate::serve::DEFAULT_LISTEN_ADDRESS;
use crate::session::StoreSession;

/// Arguments of `leasehold dashboard`.
#[derive(Debug, Args)]
#[command(after_help = "\
Without a daemon in --store, it is your daemon at 127.0.0.1:7420. The link works once, within ten minutes; the
page keeps its token until its tab is closed.

Examples:
  leasehold dashboard
  leasehold --store 'https://locks.example?token_file=me.token' dashboard")]
pub(crate) struct DashboardArgs {}

const MAX_CODE_BYTES: usize = 128;

/// The answer of the daemon.
#[derive(Deserialize)]
struct DashboardCode {
    code: Secret,
}

/// Whether a text is a code as daemons make them. The link is printed as it is, so nothing else may pass.
fn is_code(text: &str) -> bool {
    !text.is_empty() && text.len() <= MAX_CODE_BYTES && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// Prints a link with a one-time code.
pub(crate) fn main(settings: &Settings) -> anyhow::Result<bool> {
    let mut url = settings.store_url()?;
    if url.daemon_url().is_none() {
        url = StoreUrl::parse(&format!("http://{DEFAULT_LISTEN_ADDRESS}"))?;
    }
    let Some(client) = daemon::open_client(&url)? else {
        bail!("{url} is not a daemon; name one with --store http://HOST:PORT");
    };
    let session = StoreSession::open_url(url, settings)?;
    let asked = session.call(client.post::<_, DashboardCode>(&["dashboard", "codes"], &json!({})));
    let asked = asked.with_context(|| {
        format!(
            "no daemon answers at {}; start one with `leasehold dev`, or name it with --store",
            session.url
        )
    })?;
    let code = match asked {
        Ok(made) if is_code(made.code.expose()) => made.code,
        Ok(_) => bail!(
            "{} answered with no dashboard code\nis it a Leasehold daemon of this version? `leasehold doctor` shows",
            session.url
        ),
        Err(problem) => bail!("{} refuses: {}", session.url, problem.detail),
    };
    let link = leasehold_server::dashboard_url(&client.describe(), code.expose());
    writeln!(crate::output::script_stdout(), "{link}")?;
    Ok(true)
}
