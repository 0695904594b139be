//! `leasehold break`: end someone else's lease, after having looked whether its holder is alive.
//!
//! A daemon passes the question on to the holder, who reads it with its next renewal; a plain store carries no messages.
//! Either way, whoever is alive renews: the lease is watched for as long as its class takes to renew, and one that is extended
//! meanwhile is not broken without `--force`. Of a class that does not renew, or that is not known here, silence says nothing: only
//! the end of the lease does.

use std::io::Write;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use leasehold::clock::{BootClock, Clock, ClockExt, Moment};
use leasehold::http::wire::Break;
use leasehold::http::{Daemon, HttpOptions};
use leasehold::policy::duration::human;
use leasehold::store::{Claim, Given, Giving, Lease};
use leasehold::{Fence, Name, StoreUrl};
use serde_json::json;

use crate::args::{Form, Place};
use crate::changes::{Kind, Looks};
use crate::config::Config;
use crate::desk::Desk;
use crate::lease::{millis, short};
use crate::say::say;
use crate::{audit, complete};

/// Between two looks.
const LOOK: Duration = Duration::from_millis(200);
/// The longest that anybody waits for the end of a lease.
const LONGEST: Duration = Duration::from_secs(3600);
/// On top of the interval: a renewal may be late by its time-out and one retry.
const LATE: u32 = 2;

/// The longest reason a daemon takes.
const LONGEST_REASON: usize = 500;

/// `leasehold break`.
#[derive(Debug, Args)]
#[command(after_long_help = BREAK_HELP, after_help = "See --help for what it does to whom, exit codes and examples.")]
pub(crate) struct BreakArgs {
    /// Why: goes into the record
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: String,
    /// Break it even if its holder is alive
    #[arg(long)]
    pub(crate) force: bool,
    /// How long to watch whether the holder renews, instead of what its class takes; 0s looks once
    #[arg(long, value_name = "DURATION", value_parser = crate::span::parse)]
    pub(crate) wait: Option<Duration>,
    /// Only the grant with this fence, e.g. the one you saw in a list
    #[arg(long, value_name = "N")]
    pub(crate) fence: Option<Fence>,
    /// How to print
    #[arg(short, long, value_enum, default_value_t = Form::Text)]
    pub(crate) output: Form,
    /// What is locked, e.g. job:42
    #[arg(add = ArgValueCompleter::new(complete::names))]
    pub(crate) name: String,
}

const BREAK_HELP: &str = "\
What it does:
  Through a daemon, the holder is asked to let go. It watches the lease for as long as its class takes to renew it. A holder that renews meanwhile is alive, and its lease
  is not broken without --force. A lease that nobody renews is ended: exactly the grant that was seen, not a later one.
  One of a class that does not renew, or that is not known here, is watched until its end; if that is more than an hour away, it is
  not broken without --force or a --wait of your own.
  The name is free at once (or the next waiter's), with a greater fence. The broken holder learns of it with its next
  renewal and is stopped, or goes on, as its class says; its writes are refused where fences are checked.
  Who broke which lease, when and why is written down before and after, in audit_file (see `leasehold config show`).

Exit codes:
  0 broken      1 not broken: it is free, has changed hands, or its holder is alive      2 error

Examples:
  leasehold break job:42 --reason 'host db-3 burnt down'
  leasehold break job:42 --reason 'stuck, INC-7' --force
  leasehold break job:42 --reason 'stuck, INC-7' --force --wait 0s --fence 1790000000000000";

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Broken,
    Free,
    Alive,
    /// Nobody can tell whether its holder is alive, so it is taken to be.
    Untold,
    Changed,
}

impl Outcome {
    const fn alive(self) -> bool {
        matches!(self, Self::Alive | Self::Untold)
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::Broken => "broken",
            Self::Free => "free",
            Self::Alive | Self::Untold => "alive",
            Self::Changed => "changed",
        }
    }
}

/// Breaks a lease; answers whether it was broken.
pub(crate) fn main(place: &Place, args: &BreakArgs) -> anyhow::Result<bool> {
    let name = Name::new(&args.name)?;
    if args.reason.trim().is_empty() {
        bail!("--reason is empty: say why, for whoever asks later");
    }
    let audit_file = Config::load(place)?.audit_file.value;
    let desk = Desk::open(place)?;
    let look = || {
        let found = desk.ask(desk.store.inspect(&name, desk.within));
        found.with_context(|| format!("cannot look at {name} in {}", desk.url))
    };
    let Some(lease) = look()? else {
        return conclude(args, None, Outcome::Free, Duration::ZERO);
    };
    let answered = BootClock.now();
    let Some(fence) = lease.fence else {
        bail!(
            "{name} is held by {}, which is not one of ours and has no fence: nobody can say which grant would be broken\n\
             end it with its own tools, or delete its key by hand",
            lease.holder
        );
    };
    if args.fence.is_some_and(|wanted| wanted != fence) {
        return conclude(args, Some(&lease), Outcome::Changed, Duration::ZERO);
    }
    let (seen, watched) = watch(place, args, &desk, (&lease, answered), look)?;
    let entry = |outcome: &str| {
        json!({
            "action": "break", "outcome": outcome, "name": name.as_str(), "store": desk.url.to_string(),
            "holder": lease.holder, "class": lease.class, "fence": fence.to_string(),
            "reason": args.reason, "forced": args.force && seen.alive(), "watched_ms": millis(watched),
        })
    };
    if seen == Outcome::Free || seen == Outcome::Changed || (seen.alive() && !args.force) {
        audit::record(
            &audit_file,
            entry(if seen.alive() { "refused" } else { seen.as_str() }),
        )?;
        return conclude(args, Some(&lease), seen, watched);
    }
    audit::record(&audit_file, entry("begun"))?;
    let given = end(&desk, &name, fence, &why(args, seen, watched), seen.alive());
    let outcome = match &given {
        Ok(Given::Released) => "broken",
        Ok(Given::NotOwned) => "changed",
        Err(_) => "unknown",
    };
    audit::record(&audit_file, entry(outcome))?;
    let given = given.with_context(|| {
        format!("cannot say whether the lease of {name} was broken: look with `leasehold show {name}` before trying again")
    })?;
    let outcome = if given == Given::Released {
        Outcome::Broken
    } else {
        Outcome::Changed
    };
    conclude(args, Some(&lease), outcome, watched)
}

/// The reason as a daemon's records have it: it knows our API token, but not who typed it or what was seen.
fn why(args: &BreakArgs, seen: Outcome, watched: Duration) -> String {
    let holder = match seen {
        Outcome::Alive => format!("alive for {}", human(watched)),
        Outcome::Untold => "not known to be alive or dead".to_owned(),
        _ => format!("silent for {}", human(watched)),
    };
    plain(&format!("{} ({}; holder {holder})", args.reason, audit::actor()))
}

/// As much of a text as a daemon takes for a reason.
fn plain(text: &str) -> String {
    let plain: String = text.chars().filter(|letter| !letter.is_control()).collect();
    let mut end = plain.len().min(LONGEST_REASON);
    while !plain.is_char_boundary(end) {
        end -= 1;
    }
    plain[..end].to_owned()
}

/// Ends exactly this grant: through the daemon, which keeps records and tells its followers, or in the store itself.
fn end(desk: &Desk, name: &Name, fence: Fence, reason: &str, alive: bool) -> anyhow::Result<Given> {
    if let Some(daemon) = daemon(desk)? {
        let want = Break {
            reason: reason.to_owned(),
            fence: Some(fence),
            // Whether it is alive was looked at already.
            force: true,
            alive: Some(alive),
            wait_ms: Some(0),
        };
        return match desk.ask(daemon.break_lock(name, &want))? {
            Ok(_) => Ok(Given::Released),
            Err(problem) if problem.code == "stale_fence" => Ok(Given::NotOwned),
            Err(problem) => bail!("the daemon refuses: {}", problem.detail),
        };
    }
    let giving = Giving {
        name: name.clone(),
        claim: Claim::Seen(fence),
        tombstone: None,
    };
    desk.ask(desk.store.release(&giving, desk.within))
}

/// The daemon in front of the store, if there is one.
fn daemon(desk: &Desk) -> anyhow::Result<Option<Daemon>> {
    match &desk.url {
        StoreUrl::Http { url } => Ok(Some(Daemon::open(HttpOptions::parse(url)?)?)),
        _ => Ok(None),
    }
}

/// Has the holder asked to let go, and answers whether someone carries the question to it. Someone without the right to break
/// hears so here, before anything is waited for.
fn ask(desk: &Desk, args: &BreakArgs, lease: &Lease) -> anyhow::Result<bool> {
    let Some(daemon) = daemon(desk)? else {
        return Ok(false);
    };
    let want = Break {
        reason: plain(&format!("{} ({})", args.reason, audit::actor())),
        fence: lease.fence,
        force: false,
        alive: None,
        wait_ms: Some(0),
    };
    match desk.ask(daemon.break_lock(&lease.name, &want))? {
        Err(problem) if problem.code == "forbidden" || problem.code == "unauthorized" => {
            bail!("the daemon refuses: {}", problem.detail)
        }
        // That it is alive as far as anyone knows, or gone meanwhile: what follows sees for itself.
        _ => Ok(true),
    }
}

/// Looks whether the holder renews. `Broken` here means: nobody did.
fn watch(
    place: &Place,
    args: &BreakArgs,
    desk: &Desk,
    (lease, answered): (&Lease, Moment),
    look: impl Fn() -> anyhow::Result<Option<Lease>>,
) -> anyhow::Result<(Outcome, Duration)> {
    let window = args.wait.or_else(|| window(place, lease));
    let asked = ask(desk, args, lease)?;
    let Some(window) = window else {
        return Ok((Outcome::Untold, Duration::ZERO));
    };
    let started = BootClock.now();
    let end = started + window;
    if window > Duration::from_secs(1) {
        let how = if asked {
            "it is asked to let go"
        } else {
            "this store carries no message to it"
        };
        say(&format!(
            "watching for up to {} whether {} renews {}: {how}",
            human(window),
            lease.holder,
            lease.name
        ));
    }
    let mut looks = Looks::default();
    looks.look(std::slice::from_ref(lease), answered, answered, false);
    while BootClock.now() < end {
        desk.wait(BootClock.sleep(LOOK.min(end.since(BootClock.now()))));
        let sent = BootClock.now();
        let Some(now) = look()? else {
            return Ok((Outcome::Free, BootClock.now().since(started)));
        };
        let at = BootClock.now();
        let changes = looks.look(std::slice::from_ref(&now), sent, at, false);
        match changes.first().map(|change| change.kind) {
            Some(Kind::Renewed) => return Ok((Outcome::Alive, at.since(started))),
            Some(Kind::Passed) => return Ok((Outcome::Changed, at.since(started))),
            _ => {}
        }
    }
    Ok((Outcome::Broken, BootClock.now().since(started)))
}

/// How long a living holder of this class may take to renew, or until the lease is over by itself. `None` if neither says anything
/// for longer than anybody waits.
fn window(place: &Place, lease: &Lease) -> Option<Duration> {
    let class = lease.class.as_deref().and_then(|class| {
        let book = place.book().ok()?;
        book.class(class, BootClock.now()).ok()
    });
    let renews = class.and_then(|class| {
        let every = class.renew.every?;
        Some(every.saturating_add(class.renew.timeout * LATE))
    });
    // A little after its end, so that its end is seen.
    let ends = lease.remaining.map(|left| left + LOOK);
    let first = renews.into_iter().chain(ends).min();
    first.filter(|first| *first <= LONGEST)
}

fn conclude(
    args: &BreakArgs,
    lease: Option<&Lease>,
    outcome: Outcome,
    watched: Duration,
) -> anyhow::Result<bool> {
    let name = &args.name;
    if args.output == Form::Json {
        let all = json!({
            "schema_version": 1,
            "name": name,
            "outcome": outcome.as_str(),
            "broken": outcome == Outcome::Broken,
            "holder": lease.map(|lease| lease.holder.clone()),
            "fence": lease.and_then(|lease| lease.fence).map(|fence| fence.to_string()),
            "reason": args.reason,
            "watched_ms": millis(watched),
        });
        writeln!(std::io::stdout().lock(), "{all:#}")?;
    }
    let holder = lease.map_or("", |lease| lease.holder.as_str());
    match outcome {
        Outcome::Broken => {
            let fence = lease
                .and_then(|lease| lease.fence)
                .map_or_else(String::new, |fence| fence.to_string());
            say(&format!("broke the lease of {holder} on {name} (fence {fence})"));
        }
        Outcome::Free => say(&format!("{name} is free: there is nothing to break")),
        Outcome::Changed => say(&format!(
            "{name} has another grant than the one that was to be broken: look again with `leasehold show {name}`"
        )),
        Outcome::Alive => say(&format!(
            "{name} was not broken: {holder} is alive and renewed it within {}\n\
             stop that process, or break it all the same with --force; its work may then overlap with the next holder's",
            short(watched.max(LOOK))
        )),
        Outcome::Untold => say(&format!(
            "{name} was not broken: nobody can tell whether {holder} is alive, because its class does not renew or is not known here\n\
             stop that process, say with --wait how long to watch, or break it all the same with --force"
        )),
    }
    Ok(outcome == Outcome::Broken)
}
