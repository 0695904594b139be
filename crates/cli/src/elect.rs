//! `leasehold elect`: stand for election, and run a command whenever elected.
//!
//! It is `run` in a loop that never gives up: wait for the lock, run the command under it, and when the lease is lost
//! stand again. A class that would let two leaders be is refused.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use clap::{Args, ValueEnum};
use clap_complete::engine::ArgValueCompleter;
use leasehold::clock::{BootClock, Clock, ClockExt};
use leasehold::leasehold_core::rng::{OsRandom, RandomExt};
use leasehold::policy::{Class, OnError, OnFailure};
use leasehold::{Error, Name};

use crate::args::Place;
use crate::run::acquire::{Got, acquire};
use crate::run::signals::Signals;
use crate::run::supervise::{Ended, Run, supervise};
use crate::run::talk::Talk;
use crate::run::{SETTLE, conclude, grace_of};
use crate::say::say;
use crate::textfile::{Count, Textfile};
use crate::{complete, exit, run};

/// Waiting is done in pieces of this length, without end.
const PIECE: Duration = Duration::from_secs(3600);

/// `leasehold elect`.
#[derive(Debug, Args)]
#[command(override_usage = "leasehold elect [OPTIONS] NAME [--] COMMAND [ARG]...")]
#[command(after_long_help = ELECT_HELP, after_help = "See --help for how it ends, exit codes and examples.")]
pub(crate) struct ElectArgs {
    /// What to do when the lease is lost and the command was stopped
    #[arg(long, value_enum, default_value_t = OnLost::Again)]
    pub(crate) on_lost: OnLost,
    /// The risk class; it must be fail-closed and must fence
    #[arg(long, default_value = "workflow-critical", add = ArgValueCompleter::new(complete::classes))]
    pub(crate) class: String,
    /// The lease's time to live instead of the class's: how long nobody leads after a leader has died
    #[arg(long, value_name = "DURATION", value_parser = crate::span::parse)]
    pub(crate) ttl: Option<Duration>,
    /// From TERM to KILL when the lease is lost; if neither this nor the class says, the smaller of 5s and ttl/6
    #[arg(long, value_name = "DURATION", value_parser = crate::span::parse)]
    pub(crate) stop_grace: Option<Duration>,
    /// Write the lock's metrics to this file, for node_exporter's textfile collector (NAME.prom)
    #[arg(long, value_name = "PATH")]
    pub(crate) metrics_file: Option<PathBuf>,
    /// What to lead, e.g. leader:billing
    #[arg(add = ArgValueCompleter::new(complete::names))]
    pub(crate) name: String,
    /// The command and its arguments, run as they are, without a shell. Options end here
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND",
        required = true
    )]
    pub(crate) argv: Vec<OsString>,
}

/// What to do after a loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnLost {
    /// Stand for election again
    Again,
    /// End with exit code 121
    Exit,
}

const ELECT_HELP: &str = "\
How it works:
  It waits, without end and through outages of the store, until it is the leader; then the command runs, with
  LEASEHOLD_FENCE as the number of its term, until it ends by itself or leadership is lost. On loss the command is stopped
  before anyone else can lead (as in `leasehold run`), and it stands again, or ends with --on-lost exit. When the command
  ends by itself, leadership is given back and its exit code is this one's: let your init system start it again.
  The default class has no max_hold: a leader may lead for years. A class that is fail-open, goes on after a loss or only
  counts (shadow) is refused, since it would let two leaders be.

Signals:
  As in `leasehold run`: they go to the command. While there is none, INT, TERM, HUP and QUIT end the candidacy.

Exit codes:
  the command's own; 128+N if it died of signal N, or if signal N ended the candidacy
  121  leadership was lost and --on-lost is exit
  125  leasehold failed: bad policy, bad usage      126, 127  the command could not be run, there is no such command

Examples:
  leasehold elect leader:billing -- ./billing-scheduler
  leasehold --store redis://127.0.0.1 elect --ttl 10s leader:cron -- ./cron --foreground";

/// Stands for election.
pub(crate) fn main(place: &Place, args: ElectArgs) -> ExitCode {
    run::to_the_end(elect(place, args))
}

async fn elect(place: &Place, args: ElectArgs) -> anyhow::Result<u8> {
    let name = Name::new(&args.name)?;
    let store = place.store()?;
    let mut signals = Signals::listen()?;
    let (ear, mut talk, news) = Talk::new();
    let count = Arc::new(Count::default());
    let mut opening = leasehold::open(store.to_string())
        .observer(ear)
        .observer(Arc::clone(&count) as _);
    if let Some(file) = place.policy_file()? {
        opening = opening.policies(file);
    }
    if let Some(holder) = place.holder()? {
        opening = opening.holder(holder);
    }
    let locks = opening.build().await?;
    let kind = locks.store().capabilities().kind;
    let file = args.metrics_file.as_deref();
    let file = file.map(|path| Textfile::begin(path, &count, kind)).transpose()?;
    let mut silent = false;
    let code = loop {
        // Looked up for each term: the file may have changed.
        let class = locks.policies().class(&args.class, BootClock.now())?;
        only_one_leader(&class)?;
        let grace = grace_of(args.stop_grace, args.ttl, &class);
        let mut under = locks.class(&args.class).stop_grace(grace).wait(PIECE);
        if let Some(ttl) = args.ttl {
            under = under.ttl(ttl);
        }
        match acquire(&locks, &under, &name, &mut signals, &mut talk).await {
            Got::Held(hold) => {
                silent = false;
                let term = hold
                    .fence()
                    .map_or_else(|_| String::new(), |fence| format!(", fence {fence}"));
                say(&format!("elected: {} leads {name}{term}", locks.holder()));
                let order = Run {
                    argv: args.argv.clone(),
                    store: store.clone(),
                    holder: locks.holder().to_string(),
                    grace,
                };
                let (ended, outcome) = supervise(&order, hold, &mut signals, &mut talk, news.clone()).await;
                talk.rest();
                let lost = matches!(ended, Ok(Ended::Stopped { .. }));
                let code = conclude(&locks, &name, ended, outcome, &talk)?;
                if !lost || args.on_lost == OnLost::Exit {
                    break code;
                }
            }
            // Someone else leads; the piece is over, not the wait.
            Got::Busy(_) => {}
            Got::Interrupted(signal) => break exit::of_signal(signal.as_raw()),
            Got::Failed(error @ Error::Unavailable { .. }) => {
                if !silent {
                    say(&format!(
                        "{error}\nstanding for election goes on as soon as the store is back"
                    ));
                    silent = true;
                }
                let pause = OsRandom.jitter(class.acquire.retry_after);
                tokio::select! {
                    () = BootClock.sleep(pause) => {}
                    signal = signals.ending() => break exit::of_signal(signal.as_raw()),
                }
            }
            Got::Failed(error) => bail!("{error}"),
        }
    };
    locks.shutdown(SETTLE).await;
    if let Some(file) = file {
        file.end().await;
    }
    Ok(code)
}

/// Refuses a class under which two could lead.
fn only_one_leader(class: &Class) -> anyhow::Result<()> {
    let why = if class.acquire.on_error == OnError::FailOpen {
        "is fail-open: while the store is away, every candidate would lead"
    } else if class.renew.on_failure == OnFailure::Continue {
        "goes on after its lease is lost: the old leader would lead beside the new one"
    } else if class.mode == leasehold::policy::Enforcement::Shadow {
        "is in shadow mode: it only counts what it should stop"
    } else {
        return Ok(());
    };
    bail!(
        "class {} {why}\nuse one that is fail-closed and fences, such as workflow-critical",
        class.name
    )
}
