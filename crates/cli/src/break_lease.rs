//! `leasehold break`: end another holder's lease, after checking whether that holder is alive.
//!
//! A daemon passes the request on to the holder, which reads it with its next renewal. A plain store has
//! no such channel. In both cases a live holder renews. So the lease is watched for as long as its class
//! takes to renew, and a lease that is extended meanwhile needs `--force`. If the class does not renew or
//! is unknown here, silence proves nothing, and only the end of the lease does.

use std::io::Write;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use leasehold::clock::{BootClock, Clock, ClockExt, Moment};
use leasehold::http::wire::{Break, ErrorCode};
use leasehold::policy::duration::human;
use leasehold::store::{Lease, LeaseList, ReleaseRequest, ReleaseResponse};
use leasehold::{Fence, Name};
use serde_json::json;

use crate::args::ReportFormat;
use crate::changes::{ChangeKind, LeaseTracker};
use crate::config::Settings;
use crate::lease::{millis, short_duration};
use crate::message::{print_message, show_command};
use crate::session::StoreSession;
use crate::{audit, complete, daemon};

/// Between two reads of the lease.
const LEASE_POLL_INTERVAL: Duration = Duration::from_millis(200);
// The longest time that an operator is expected to wait for a lease to end.
const MAX_WATCH_WINDOW: Duration = Duration::from_secs(3600);
// Renewal timeouts added to the interval: a renewal may be late by its timeout and one retry.
const LATE_RENEW_TIMEOUTS: u32 = 2;

// The daemon refuses a longer reason.
const MAX_REASON_BYTES: usize = 500;

/// Arguments of `leasehold break`.
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
    #[arg(short, long, value_enum, default_value_t = ReportFormat::Text)]
    pub(crate) output: ReportFormat,
    /// What is locked, e.g. job:42
    #[arg(add = ArgValueCompleter::new(complete::names))]
    pub(crate) name: String,
}

const BREAK_HELP: &str = "\
What it does:
  Through a daemon, the holder is asked to let go. It watches the lease for as long as its class takes to renew it. A holder that renews meanwhile is alive, and its lease
  is not broken without --force. A lease that its holder does not renew is ended: exactly the grant that was seen, not a later one.
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BreakOutcome {
    Broken,
    Free,
    Alive,
    /// It is unknown whether the holder is alive, so it is treated as alive.
    Unknown,
    Changed,
}

impl BreakOutcome {
    const fn may_be_alive(self) -> bool {
        matches!(self, Self::Alive | Self::Unknown)
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::Broken => "broken",
            Self::Free => "free",
            Self::Alive | Self::Unknown => "alive",
            Self::Changed => "changed",
        }
    }
}

/// Breaks a lease. Returns whether it was broken.
pub(crate) fn main(settings: &Settings, args: &BreakArgs) -> anyhow::Result<bool> {
    let name = Name::new(&args.name)?;
    if args.reason.trim().is_empty() {
        bail!("--reason is empty: give a reason; the audit log records it");
    }
    let audit_file = settings.audit_file.value.clone();
    let session = StoreSession::open(settings)?;
    let inspect = || {
        let found = session.call(session.store.inspect(&name, session.timeout));
        let found = found.with_context(|| format!("cannot look at {name} in {}", session.url));
        found.map(LeaseList::into_first)
    };
    let Some(lease) = inspect()? else {
        return print_outcome(args, None, BreakOutcome::Free, Duration::ZERO);
    };
    let answered = BootClock.now();
    // The fence identifies the grant. Without it, a later grant could be broken by mistake.
    let Some(fence) = lease.fence else {
        bail!(
            "{name} is held by {}, which is not one of ours and has no fence: it is unknown which grant would be broken\n\
             end it with its own tools, or delete its key by hand",
            lease.holder
        );
    };
    if args.fence.is_some_and(|wanted| wanted != fence) {
        return print_outcome(args, Some(&lease), BreakOutcome::Changed, Duration::ZERO);
    }
    let (holder_state, watched) = watch_holder(settings, args, &session, (&lease, answered), inspect)?;
    let entry = |outcome: &str| {
        json!({
            "action": "break", "outcome": outcome, "name": name.as_str(), "store": session.url.to_string(),
            "holder": lease.holder, "class": lease.class, "fence": fence.to_string(),
            "reason": args.reason, "forced": args.force && holder_state.may_be_alive(), "watched_ms": millis(watched),
        })
    };
    if holder_state == BreakOutcome::Free
        || holder_state == BreakOutcome::Changed
        || (holder_state.may_be_alive() && !args.force)
    {
        audit::record(
            &audit_file,
            entry(if holder_state.may_be_alive() { "refused" } else { holder_state.as_str() }),
        )?;
        return print_outcome(args, Some(&lease), holder_state, watched);
    }
    // Recorded before the break: if the record cannot be written, the lease is left alone.
    audit::record(&audit_file, entry("begun"))?;
    let response = end_grant(
        &session,
        &name,
        fence,
        &full_reason(args, holder_state, watched),
        holder_state.may_be_alive(),
    );
    let outcome = match &response {
        Ok(ReleaseResponse::Released) => "broken",
        Ok(ReleaseResponse::NotOwned) => "changed",
        Err(_) => "unknown",
    };
    audit::record(&audit_file, entry(outcome))?;
    let response = response.with_context(|| {
        format!(
            "cannot say whether the lease of {name} was broken: look with `{}` before trying again",
            show_command(name.as_str())
        )
    })?;
    let outcome =
        if response == ReleaseResponse::Released { BreakOutcome::Broken } else { BreakOutcome::Changed };
    print_outcome(args, Some(&lease), outcome, watched)
}

/// The reason for the daemon's records, which know the API token but not the user or what was observed.
fn full_reason(args: &BreakArgs, seen: BreakOutcome, watched: Duration) -> String {
    let holder = match seen {
        BreakOutcome::Alive => format!("alive for {}", human(watched)),
        BreakOutcome::Unknown => "not known to be alive or dead".to_owned(),
        _ => format!("silent for {}", human(watched)),
    };
    fit_reason(&format!("{} ({}; holder {holder})", args.reason, audit::actor()))
}

/// Removes control characters and cuts the text to the daemon's limit.
fn fit_reason(text: &str) -> String {
    let plain: String = text.chars().filter(|letter| !letter.is_control()).collect();
    let mut end = plain.len().min(MAX_REASON_BYTES);
    while !plain.is_char_boundary(end) {
        end -= 1;
    }
    plain[..end].to_owned()
}

/// Ends exactly this grant: through the daemon, which records it and sends events, or in the store.
fn end_grant(
    session: &StoreSession,
    name: &Name,
    fence: Fence,
    reason: &str,
    alive: bool,
) -> anyhow::Result<ReleaseResponse> {
    if let Some(daemon) = daemon::open_client(&session.url)? {
        let want = Break {
            reason: reason.to_owned(),
            fence: Some(fence),
            // This command has already watched the holder.
            force: true,
            alive: Some(alive),
            wait_ms: Some(0),
        };
        return match session.call(daemon.break_lock(name, &want))? {
            Ok(_) => Ok(ReleaseResponse::Released),
            Err(problem) if problem.error_code() == Some(ErrorCode::StaleFence) => {
                Ok(ReleaseResponse::NotOwned)
            }
            Err(problem) => bail!("the daemon refuses: {}", problem.detail),
        };
    }
    let request = ReleaseRequest::by_operator(name, fence);
    session.call(session.store.release(&request, session.timeout))
}

/// Asks the holder to release, through the daemon. Returns whether a daemon passes the request on.
fn ask_holder_to_release(session: &StoreSession, args: &BreakArgs, lease: &Lease) -> anyhow::Result<bool> {
    // Done before watching, so that a user without the right to break is refused at once.
    let Some(daemon) = daemon::open_client(&session.url)? else {
        return Ok(false);
    };
    let want = Break {
        // `wait_ms: 0` and no `force`: the daemon only passes the request on. This command does the watching.
        reason: fit_reason(&format!("{} ({})", args.reason, audit::actor())),
        fence: lease.fence,
        force: false,
        alive: None,
        wait_ms: Some(0),
    };
    match session.call(daemon.break_lock(&lease.name, &want))? {
        Err(problem)
            if matches!(problem.error_code(), Some(ErrorCode::Forbidden | ErrorCode::Unauthorized)) =>
        {
            bail!("the daemon refuses: {}", problem.detail)
        }
        // Other refusals say that the holder seems alive or is gone; the watch below finds that out itself.
        _ => Ok(true),
    }
}

/// Watches whether the holder renews. `Broken` here means that it did not.
fn watch_holder(
    settings: &Settings,
    args: &BreakArgs,
    session: &StoreSession,
    (lease, answered): (&Lease, Moment),
    inspect: impl Fn() -> anyhow::Result<Option<Lease>>,
) -> anyhow::Result<(BreakOutcome, Duration)> {
    let window = args.wait.or_else(|| watch_window(settings, lease));
    let asked = ask_holder_to_release(session, args, lease)?;
    let Some(window) = window else {
        return Ok((BreakOutcome::Unknown, Duration::ZERO));
    };
    let started = BootClock.now();
    let end = started + window;
    if window > Duration::from_secs(1) {
        let how = if asked { "it is asked to let go" } else { "this store carries no message to it" };
        print_message(&format!(
            "watching for up to {} whether {} renews {}: {how}",
            human(window),
            lease.holder,
            lease.name
        ));
    }
    let mut tracker = LeaseTracker::default();
    tracker.update(std::slice::from_ref(lease), answered, answered, false);
    while BootClock.now() < end {
        session.block_on(BootClock.sleep(LEASE_POLL_INTERVAL.min(end.since(BootClock.now()))));
        let sent = BootClock.now();
        let Some(now) = inspect()? else {
            return Ok((BreakOutcome::Free, BootClock.now().since(started)));
        };
        let at = BootClock.now();
        let changes = tracker.update(std::slice::from_ref(&now), sent, at, false);
        match changes.first().map(|change| change.kind) {
            Some(ChangeKind::Renewed) => return Ok((BreakOutcome::Alive, at.since(started))),
            Some(ChangeKind::Passed) => return Ok((BreakOutcome::Changed, at.since(started))),
            _ => {}
        }
    }
    Ok((BreakOutcome::Broken, BootClock.now().since(started)))
}

/// How long to watch: until a live holder must have renewed, or until the lease ends by itself. `None` if
/// both are further away than [`MAX_WATCH_WINDOW`].
fn watch_window(settings: &Settings, lease: &Lease) -> Option<Duration> {
    let class = lease.class.as_deref().and_then(|class| {
        let book = settings.policy_book().ok()?;
        book.class(class, BootClock.now()).ok()
    });
    let renews = class.and_then(|class| {
        let every = class.renew.every?;
        Some(every.saturating_add(class.renew.timeout * LATE_RENEW_TIMEOUTS))
    });
    // One poll past the end, so that the poll sees the lease gone.
    let ends = lease.remaining.map(|left| left + LEASE_POLL_INTERVAL);
    let first = renews.into_iter().chain(ends).min();
    first.filter(|first| *first <= MAX_WATCH_WINDOW)
}

fn print_outcome(
    args: &BreakArgs,
    lease: Option<&Lease>,
    outcome: BreakOutcome,
    watched: Duration,
) -> anyhow::Result<bool> {
    let name = &args.name;
    if args.output == ReportFormat::Json {
        let all = json!({
            "schema_version": 1,
            "name": name,
            "outcome": outcome.as_str(),
            "broken": outcome == BreakOutcome::Broken,
            "holder": lease.map(|lease| lease.holder.clone()),
            "fence": lease.and_then(|lease| lease.fence).map(|fence| fence.to_string()),
            "reason": args.reason,
            "watched_ms": millis(watched),
        });
        writeln!(crate::output::stdout(), "{all:#}")?;
    }
    let holder = lease.map_or("", |lease| lease.holder.as_str());
    match outcome {
        BreakOutcome::Broken => {
            let fence =
                lease.and_then(|lease| lease.fence).map_or_else(String::new, |fence| fence.to_string());
            print_message(&format!("broke the lease of {holder} on {name} (fence {fence})"));
        }
        BreakOutcome::Free => print_message(&format!("{name} is free: there is nothing to break")),
        BreakOutcome::Changed => print_message(&format!(
            "{name} has another grant than the one that was to be broken: look again with `{}`",
            show_command(name)
        )),
        BreakOutcome::Alive => print_message(&format!(
            "{name} was not broken: {holder} is alive and renewed it within {}\n\
             stop that process, or break it all the same with --force; its work may then overlap with the next holder's",
            short_duration(watched.max(LEASE_POLL_INTERVAL))
        )),
        BreakOutcome::Unknown => print_message(&format!(
            "{name} was not broken: it is unknown whether {holder} is alive, because its class does not renew or is not known here\n\
             stop that process, say with --wait how long to watch, or break it all the same with --force"
        )),
    }
    Ok(outcome == BreakOutcome::Broken)
}
