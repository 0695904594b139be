//! `leasehold watch`: print changes of locks, one line per change.

use std::io::Write;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, ValueEnum};
use clap_complete::engine::ArgValueCompleter;
use leasehold::clock::{BootClock, Clock};
use leasehold::store::Lease;
use serde_json::json;

use crate::changes::{Change, ChangeKind, LeaseTracker};
use crate::complete;
use crate::config::Settings;
use crate::lease::{millis, short_duration};
use crate::message::print_message;
use crate::session::StoreSession;
use crate::timestamp;

// The most locks that one prefix may match: each poll lists them all.
const MAX_WATCHED_LOCKS: usize = 10_000;
// A store that fails for longer than this is reported, once per outage.
const OUTAGE_BEFORE_WARNING: Duration = Duration::from_secs(10);

/// Arguments of `leasehold watch`.
#[derive(Debug, Args)]
#[command(after_help = "\
What is printed:
  acquired  it was free and is held          passed   it has another holder or another grant
  renewed   its lease was extended           freed    its lease is gone: released, run out, or broken
  waiters   more or fewer wait for it
The store is looked at again and again (--every): what comes and goes between two looks is not seen. A daemon also tells
each thing as it happens, in its own words (busy, unavailable, broken, policy_changed, …): --events follows that, and goes
on where it was if the connection is cut.

Exit codes:
  0 as many changes as --count says, or the time of --for is over      1 fewer came within --for      2 error

Examples:
  leasehold watch                           everything, until ctrl-C
  leasehold watch job: deploy -o jsonl      names that begin with job: or deploy
  leasehold watch deploy --only freed --count 1 --for 10m && ./next
  leasehold --store http://127.0.0.1:7420 watch --events -o jsonl")]
pub(crate) struct WatchArgs {
    /// Only names that begin with one of these
    #[arg(value_name = "PREFIX", add = ArgValueCompleter::new(complete::names))]
    pub(crate) prefixes: Vec<String>,
    /// How to print
    #[arg(short, long, value_enum, default_value_t = LineFormat::Text)]
    pub(crate) output: LineFormat,
    /// How often the store is looked at
    #[arg(long, value_name = "DURATION", default_value = "500ms", value_parser = crate::span::parse)]
    pub(crate) every: Duration,
    /// Only changes of this kind
    #[arg(long, value_enum, value_name = "KIND")]
    pub(crate) only: Vec<ChangeFilter>,
    /// Begin with what is held now, as if it had just been acquired
    #[arg(long)]
    pub(crate) all: bool,
    /// Follow a daemon's own events instead of looking again and again
    #[arg(long, conflicts_with_all = ["only", "all", "every"])]
    pub(crate) events: bool,
    /// End after this many changes
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// End after this time
    #[arg(long = "for", value_name = "DURATION", value_parser = crate::span::parse)]
    pub(crate) lasting: Option<Duration>,
}

/// How to print changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LineFormat {
    /// Text for people
    Text,
    /// One JSON document a line
    Jsonl,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ChangeFilter {
    /// It was free and is held
    Acquired,
    /// It is held by another grant
    Passed,
    /// Its lease was extended
    Renewed,
    /// Its lease is gone
    Freed,
    /// More or fewer wait
    Waiters,
}

impl ChangeFilter {
    const fn kind(self) -> ChangeKind {
        match self {
            Self::Acquired => ChangeKind::Acquired,
            Self::Passed => ChangeKind::Passed,
            Self::Renewed => ChangeKind::Renewed,
            Self::Freed => ChangeKind::Freed,
            Self::Waiters => ChangeKind::Waiters,
        }
    }
}

/// Polls the store and prints changes until `--count` or `--for` ends it.
pub(crate) fn main(settings: &Settings, args: &WatchArgs) -> anyhow::Result<bool> {
    if args.events {
        return crate::events::main(settings, args);
    }
    let session = StoreSession::open(settings)?;
    // `--every 0s` must not turn into a busy loop against the store.
    let (started, every) = (BootClock.now(), args.every.max(Duration::from_millis(20)));
    let (mut tracker, mut count) = (LeaseTracker::default(), 0);
    let (mut last_answer, mut outage_reported) = (started, false);
    loop {
        let sent = BootClock.now();
        match list_leases(&session, &args.prefixes) {
            Ok(leases) => {
                (last_answer, outage_reported) = (BootClock.now(), false);
                for change in tracker.update(&leases, sent, last_answer, args.all) {
                    let wanted =
                        args.only.is_empty() || args.only.iter().any(|only| only.kind() == change.kind);
                    if wanted {
                        print_change(&change, args.output)?;
                        count += 1;
                    }
                    if args.count.is_some_and(|limit| count >= limit) {
                        return Ok(true);
                    }
                }
            }
            // The first poll shows whether the store is usable at all. Later failures may be a short outage.
            Err(error) if last_answer == started => return Err(error),
            Err(error) if BootClock.now().since(last_answer) > OUTAGE_BEFORE_WARNING && !outage_reported => {
                print_message(&format!("{error:#}; still trying"));
                outage_reported = true;
            }
            Err(_) => {}
        }
        let now = BootClock.now();
        let end = args.lasting.map(|lasting| started + lasting);
        if end.is_some_and(|end| now >= end) {
            // With --count, fewer changes within --for are a "no".
            return Ok(args.count.is_none());
        }
        let next = now + every;
        session.block_on(BootClock.sleep_until(end.map_or(next, |end| next.min(end))));
    }
}

fn list_leases(session: &StoreSession, prefixes: &[String]) -> anyhow::Result<Vec<Lease>> {
    let everything = [String::new()];
    let prefixes = if prefixes.is_empty() { &everything[..] } else { prefixes };
    let mut all: Vec<Lease> = Vec::new();
    for prefix in prefixes {
        let listing = session.call(session.store.list(prefix, MAX_WATCHED_LOCKS, session.timeout));
        let listing = listing.with_context(|| format!("cannot list the locks of {}", session.url))?;
        if listing.truncated {
            anyhow::bail!("more than {MAX_WATCHED_LOCKS} locks begin with {prefix:?}: name a longer prefix");
        }
        all.extend(listing.leases);
    }
    // Prefixes may overlap, so a lease can be listed twice.
    all.sort_by(|a, b| a.name.as_str().cmp(b.name.as_str()));
    all.dedup_by(|a, b| a.name == b.name);
    Ok(all)
}

fn print_change(change: &Change, output: LineFormat) -> std::io::Result<()> {
    let (lease, at) = (&change.lease, timestamp::now());
    let mut out = crate::output::stdout();
    match output {
        LineFormat::Jsonl => {
            let line = json!({
                "schema_version": 1,
                "at": at,
                "change": change.kind.as_str(),
                "name": lease.name.as_str(),
                "holder": lease.holder,
                "class": lease.class,
                "fence": lease.fence.map(|fence| fence.to_string()),
                "remaining_ms": lease.remaining.map(millis),
                "waiters": lease.waiters,
            });
            writeln!(out, "{line}")?;
        }
        LineFormat::Text => {
            let fence = lease.fence.map_or_else(|| "-".into(), |fence| fence.to_string());
            let left = lease.remaining.map_or_else(|| "never ends".into(), short_duration);
            let waiters = lease.waiters.unwrap_or(0);
            let what = match change.kind {
                ChangeKind::Freed => format!("was held by {}", lease.holder),
                ChangeKind::Waiters => format!("held by {}, {waiters} waiting", lease.holder),
                _ => format!("held by {}, fence {fence}, {left} left", lease.holder),
            };
            out.write_line(&format!("{at}  {:8}  {}  {what}", change.kind.as_str(), lease.name))?;
        }
    }
    // Standard output is buffered when it is a pipe; readers want each line at once.
    out.flush()
}
