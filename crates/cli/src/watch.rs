//! `leasehold watch`: what happens to locks, one line per change.

use std::io::Write;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, ValueEnum};
use clap_complete::engine::ArgValueCompleter;
use leasehold::clock::{BootClock, Clock};
use leasehold::store::Lease;
use serde_json::json;

use crate::args::Place;
use crate::changes::{Change, Kind, Looks};
use crate::complete;
use crate::desk::Desk;
use crate::lease::{millis, short};
use crate::say::say;
use crate::stamp;

/// More locks than this are not followed at once.
const LIMIT: usize = 10_000;
/// A store that was silent for longer than this is told of once.
const SILENCE: Duration = Duration::from_secs(10);

/// `leasehold watch`.
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
    #[arg(short, long, value_enum, default_value_t = Lines::Text)]
    pub(crate) output: Lines,
    /// How often the store is looked at
    #[arg(long, value_name = "DURATION", default_value = "500ms", value_parser = crate::span::parse)]
    pub(crate) every: Duration,
    /// Only changes of this kind
    #[arg(long, value_enum, value_name = "KIND")]
    pub(crate) only: Vec<OnlyKind>,
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
pub(crate) enum Lines {
    /// For people
    Text,
    /// One JSON document a line
    Jsonl,
}

/// Kinds of changes, as they are typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnlyKind {
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

impl OnlyKind {
    const fn kind(self) -> Kind {
        match self {
            Self::Acquired => Kind::Acquired,
            Self::Passed => Kind::Passed,
            Self::Renewed => Kind::Renewed,
            Self::Freed => Kind::Freed,
            Self::Waiters => Kind::Waiters,
        }
    }
}

/// Prints changes as they are seen.
pub(crate) fn main(place: &Place, args: &WatchArgs) -> anyhow::Result<bool> {
    if args.events {
        return crate::events::main(place, args);
    }
    let desk = Desk::open(place)?;
    let (started, every) = (BootClock.now(), args.every.max(Duration::from_millis(20)));
    let (mut looks, mut count) = (Looks::default(), 0);
    let (mut heard, mut complained) = (started, false);
    loop {
        let sent = BootClock.now();
        match look(&desk, &args.prefixes) {
            Ok(leases) => {
                (heard, complained) = (BootClock.now(), false);
                for change in looks.look(&leases, sent, heard, args.all) {
                    let wanted =
                        args.only.is_empty() || args.only.iter().any(|only| only.kind() == change.kind);
                    if wanted {
                        print(&change, args.output)?;
                        count += 1;
                    }
                    if args.count.is_some_and(|limit| count >= limit) {
                        return Ok(true);
                    }
                }
            }
            // The first look says whether it can be done at all; later ones may fail and come back.
            Err(error) if heard == started => return Err(error),
            Err(error) if BootClock.now().since(heard) > SILENCE && !complained => {
                say(&format!("{error:#}; still trying"));
                complained = true;
            }
            Err(_) => {}
        }
        let now = BootClock.now();
        let end = args.lasting.map(|lasting| started + lasting);
        if end.is_some_and(|end| now >= end) {
            return Ok(args.count.is_none());
        }
        let next = now + every;
        desk.wait(BootClock.sleep_until(end.map_or(next, |end| next.min(end))));
    }
}

fn look(desk: &Desk, prefixes: &[String]) -> anyhow::Result<Vec<Lease>> {
    let everything = [String::new()];
    let prefixes = if prefixes.is_empty() {
        &everything[..]
    } else {
        prefixes
    };
    let mut all: Vec<Lease> = Vec::new();
    for prefix in prefixes {
        let listing = desk.ask(desk.store.list(prefix, LIMIT, desk.within));
        let listing = listing.with_context(|| format!("cannot list the locks of {}", desk.url))?;
        if listing.truncated {
            anyhow::bail!("more than {LIMIT} locks begin with {prefix:?}: name a longer prefix");
        }
        all.extend(listing.leases);
    }
    // Prefixes may cover one another.
    all.sort_by(|a, b| a.name.as_str().cmp(b.name.as_str()));
    all.dedup_by(|a, b| a.name == b.name);
    Ok(all)
}

fn print(change: &Change, output: Lines) -> std::io::Result<()> {
    let (lease, at) = (&change.lease, stamp::now());
    let mut out = std::io::stdout().lock();
    match output {
        Lines::Jsonl => {
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
        Lines::Text => {
            let fence = lease.fence.map_or_else(|| "-".into(), |fence| fence.to_string());
            let left = lease.remaining.map_or_else(|| "never ends".into(), short);
            let waiters = lease.waiters.unwrap_or(0);
            let what = match change.kind {
                Kind::Freed => format!("was held by {}", lease.holder),
                Kind::Waiters => format!("held by {}, {waiters} waiting", lease.holder),
                _ => format!("held by {}, fence {fence}, {left} left", lease.holder),
            };
            writeln!(out, "{at}  {:8}  {}  {what}", change.kind.as_str(), lease.name)?;
        }
    }
    // People and pipes see each line when it happens.
    out.flush()
}
