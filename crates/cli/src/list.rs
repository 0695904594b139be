//! `leasehold list`.

use std::time::Duration;

use anyhow::Context;

use crate::args::{ListArgs, Place};
use crate::lease::print;
use crate::say::say;

/// How long the store may take.
pub(crate) const WITHIN: Duration = Duration::from_secs(5);

/// Prints the live leases.
pub(crate) fn main(place: &Place, args: &ListArgs) -> anyhow::Result<bool> {
    let url = place.store()?;
    let store = url.open()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let limit = usize::try_from(args.limit).unwrap_or(usize::MAX);
    let asked = runtime.block_on(crate::show::asked(store.list(&args.prefix, limit, WITHIN)));
    let listing = asked.with_context(|| format!("cannot list the locks of {url}"))?;
    print(&listing.leases, listing.truncated, args.output)?;
    if listing.truncated {
        say(&format!("there are more than {limit}; see --limit"));
    }
    Ok(true)
}
