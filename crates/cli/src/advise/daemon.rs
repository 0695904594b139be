//! Evidence from a running daemon: held times to the millisecond from its history, latencies and retries from its metrics.

use anyhow::{Context, bail};
use leasehold::StoreUrl;
use leasehold::http::{Daemon, HttpOptions};
use leasehold_advise::{Evidence, source};
use serde_json::Value;

use crate::args::Place;
use crate::desk::Desk;

/// Rows of one page.
const PAGE: usize = 500;
/// The most pages: as much as a daemon remembers.
const PAGES: usize = 200;

/// What this daemon has recorded about a class.
pub(super) fn read(place: &Place, url: &str, class: &str) -> anyhow::Result<Evidence> {
    let store = StoreUrl::parse(url)?;
    let StoreUrl::Http { url: text } = &store else {
        bail!("{url} is not the address of a daemon");
    };
    let daemon = Daemon::open(HttpOptions::parse(text)?)?;
    let desk = Desk::of(store, place)?;
    let ask = |path: &str| {
        let asked = desk.ask(daemon.text(path));
        asked.with_context(|| format!("cannot read what {} has recorded", desk.url))
    };
    // Whoever may not see all numbers still has a history of their own: then latencies are unknown, and said to be.
    let mut evidence = match ask("/metrics")? {
        Ok(text) => source::prometheus(&text, class)?,
        Err(_) => Evidence::default(),
    };
    let mut held = leasehold_advise::Sample::default();
    let mut before = String::new();
    for _ in 0..PAGES {
        let page = match ask(&format!("/v1/history?limit={PAGE}{before}"))? {
            Ok(page) => page,
            Err(problem) => bail!("{} refuses: {}", desk.url, problem.detail),
        };
        held = held.and(source::history(&page, class)?.held);
        let document: Value = serde_json::from_str(&page)?;
        let rows = document["holds"].as_array().map_or(0, Vec::len);
        let last = document["holds"]
            .as_array()
            .and_then(|rows| rows.last()?["seq"].as_u64());
        match last {
            Some(seq) if rows == PAGE => before = format!("&before={seq}"),
            _ => break,
        }
    }
    evidence.held = held;
    if evidence.held.is_empty() {
        bail!(
            "{}: nothing is recorded about class {class}\nname the class that was recorded, or record it first",
            desk.url
        );
    }
    Ok(evidence)
}
