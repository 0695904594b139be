//! `leasehold elect`: stand for election, and run a command while elected.
//!
//! A loop around `run`: wait for the lock, run the command under it, and stand again after a lost lease.
//! Classes that would allow two leaders are refused.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use clap::{Args, ValueEnum};
use clap_complete::engine::ArgValueCompleter;
use leasehold::clock::{BootClock, Clock, ClockExt};
use leasehold::policy::{Class, OnError, OnFailure};
use leasehold::{Error, Name, StoreUrl};
use leasehold_core::rng::{OsRandom, RandomExt};
use leasehold_supervise::{CommandEnd, effective_grace};

use crate::config::Settings;
use crate::message::print_message;
use crate::run::acquire::{HoldOutcome, acquire};
use crate::run::client::CommandClient;
use crate::run::report_end;
use crate::run::signals::Signals;
use crate::run::supervise::{RunCommand, supervise};
use crate::{complete, exit, run};

// The wait limit of one acquire. The loop repeats it, so the candidacy has no limit.
const WAIT_SLICE: Duration = Duration::from_secs(3600);

/// Arguments of `leasehold elect`.
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
    /// The lease's time to live instead of the class's: how long there is no leader after one has died
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
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND", required = true)]
    pub(crate) argv: Vec<OsString>,
}

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

pub(crate) fn main(settings: anyhow::Result<Settings>, args: ElectArgs) -> ExitCode {
    run::run_to_exit_code(async { elect(&settings?, args).await })
}

async fn elect(settings: &Settings, args: ElectArgs) -> anyhow::Result<u8> {
    let name = Name::new(&args.name)?;
    let store = settings.store_url()?;
    let mut signals = Signals::listen()?;
    let mut client = CommandClient::open(settings, &store, args.metrics_file.as_deref()).await?;
    let code = lead_in_turns(&mut client, &name, &store, &args, &mut signals).await;
    client.close().await;
    code
}

/// Stands for election and runs the command while elected, until the command ends by itself.
async fn lead_in_turns(
    client: &mut CommandClient,
    name: &Name,
    store: &StoreUrl,
    args: &ElectArgs,
    signals: &mut Signals,
) -> anyhow::Result<u8> {
    let CommandClient { locks, printer, .. } = client;
    let mut outage_reported = false;
    loop {
        // Read for each term: the policy file may have changed.
        let class = locks.policies().class(&args.class, BootClock.now())?;
        check_single_leader(&class)?;
        let grace = effective_grace(args.stop_grace, args.ttl, &class);
        let mut class_locks = locks.class(&args.class).stop_grace(grace).wait(WAIT_SLICE);
        if let Some(ttl) = args.ttl {
            class_locks = class_locks.ttl(ttl);
        }
        match acquire(locks, &class_locks, name, signals, printer).await {
            HoldOutcome::Held(hold) => {
                outage_reported = false;
                let term = hold.fence().map_or_else(|_| String::new(), |fence| format!(", fence {fence}"));
                print_message(&format!("elected: {} leads {name}{term}", locks.holder()));
                let run = RunCommand {
                    argv: args.argv.clone(),
                    store: store.clone(),
                    holder: locks.holder().to_string(),
                    grace,
                };
                let (ended, outcome) = supervise(run, hold, signals, printer).await;
                printer.print_pending();
                let lost = matches!(ended, Ok(CommandEnd::Stopped { .. }));
                let code = report_end(locks, name, ended, outcome, printer)?;
                if !lost || args.on_lost == OnLost::Exit {
                    return Ok(code);
                }
            }
            // Another candidate leads. Only this slice of the wait is over.
            HoldOutcome::Busy(_) => {}
            HoldOutcome::Interrupted(signal) => return Ok(exit::from_signal(signal.as_raw())),
            HoldOutcome::Failed(error @ Error::Unavailable { .. }) => {
                // Report an outage once, not at every retry.
                if !outage_reported {
                    print_message(&format!(
                        "{error}\nstanding for election goes on as soon as the store is back"
                    ));
                    outage_reported = true;
                }
                // Jitter: all candidates lose the store at the same moment and must not retry together.
                let pause = OsRandom.jitter(class.acquire.retry_after);
                tokio::select! {
                    () = BootClock.sleep(pause) => {}
                    signal = signals.next_ending() => return Ok(exit::from_signal(signal.as_raw())),
                }
            }
            HoldOutcome::Failed(error) => bail!("{error}"),
        }
    }
}

/// Refuses a class under which two candidates could lead at once.
fn check_single_leader(class: &Class) -> anyhow::Result<()> {
    let why = if class.acquire.on_error == OnError::FailOpen {
        "is fail-open: while the store is away, every candidate would lead"
    } else if class.renew.on_failure == OnFailure::Continue {
        "goes on after its lease is lost: the old leader would lead beside the new one"
    } else if class.mode == leasehold::policy::Enforcement::Shadow {
        "is in shadow mode: it only counts what it should stop"
    } else {
        return Ok(());
    };
    bail!("class {} {why}\nuse one that is fail-closed and fences, such as workflow-critical", class.name)
}
