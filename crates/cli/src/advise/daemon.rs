//! Reads recorded data from a running daemon.
//!
//! Held times come from its history, to the millisecond; latencies and retries from its metrics.

use anyhow::{Context, bail};
use leasehold::StoreUrl;
use leasehold::http::wire::HistoryPage;
use leasehold_advise::{Evidence, source};

use crate::config::Settings;
use crate::session::StoreSession;

const HISTORY_PAGE_ROWS: usize = 500;
// The most pages read; a daemon's history is not longer.
const MAX_HISTORY_PAGES: usize = 200;

/// The data that a daemon has recorded about a class.
pub(super) fn read_from_daemon(settings: &Settings, url: &str, class: &str) -> anyhow::Result<Evidence> {
    let store = StoreUrl::parse(url)?;
    let Some(daemon) = crate::daemon::open_client(&store)? else {
        bail!("{url} is not the address of a daemon");
    };
    let session = StoreSession::open_url(store, settings)?;
    let ask = |path: &str| {
        let asked = session.call(daemon.get_text(path));
        asked.with_context(|| format!("cannot read what {} has recorded", session.url))
    };
    // A token without the right to read metrics may still read history. Latencies are then unknown, and
    // the output says so.
    let mut evidence = match ask("/metrics")? {
        Ok(text) => source::parse_prometheus(&text, class)?,
        Err(_) => Evidence::default(),
    };
    let mut held = leasehold_advise::Sample::default();
    let mut before = String::new();
    for _ in 0..MAX_HISTORY_PAGES {
        let page = match ask(&format!("/v1/history?limit={HISTORY_PAGE_ROWS}{before}"))? {
            Ok(page) => page,
            Err(problem) => bail!("{} refuses: {}", session.url, problem.detail),
        };
        held = held.merge(source::parse_history(&page, class)?.held);
        let HistoryPage { holds } = serde_json::from_str(&page)?;
        match holds.last() {
            Some(last) if holds.len() == HISTORY_PAGE_ROWS => before = format!("&before={}", last.seq),
            _ => break,
        }
    }
    evidence.held = held;
    if evidence.held.is_empty() {
        bail!(
            "{}: nothing is recorded about class {class}\nname the class that was recorded, or record it first",
            session.url
        );
    }
    Ok(evidence)
}
