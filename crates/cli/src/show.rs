//! `leasehold show`.

use std::future::Future;
use std::io::Write;

use anyhow::{Context, anyhow};
use leasehold::Name;
use leasehold::clock::{BootClock, Clock, until};
use leasehold::store::Failure;

use crate::args::{Output, Place, ShowArgs};
use crate::lease::{document, free, print};
use crate::list::WITHIN;
use crate::say::say;

/// Prints one lease; answers whether there is one.
pub(crate) fn main(place: &Place, args: &ShowArgs) -> anyhow::Result<bool> {
    let name = Name::new(&args.name)?;
    let url = place.store()?;
    let store = url.open()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let found = runtime.block_on(asked(store.inspect(&name, WITHIN)));
    let found = found.with_context(|| format!("cannot look at {name} in {url}"))?;
    let (held, json) = (
        found.is_some(),
        matches!(args.output, Output::Json | Output::Jsonl),
    );
    let mut out = std::io::stdout().lock();
    match found {
        Some(lease) if args.output == Output::Json => writeln!(out, "{:#}", document(&lease))?,
        Some(lease) => {
            drop(out);
            print(&[lease], false, args.output)?;
        }
        None if json => writeln!(out, "{}", free(name.as_str()))?,
        None => say(&format!("{name} is free")),
    }
    Ok(held)
}

/// Waits for a store's answer, but not much longer than it was told to take.
pub(crate) async fn asked<T>(question: impl Future<Output = Result<T, Failure>>) -> anyhow::Result<T> {
    match until(&BootClock, BootClock.now() + WITHIN, question).await {
        Some(answer) => Ok(answer?),
        None => Err(anyhow!(
            "the store did not answer within {WITHIN:?}; is it running?"
        )),
    }
}
