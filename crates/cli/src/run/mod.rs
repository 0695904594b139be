//! `leasehold run`: acquire a lock, run a command under it, release the lock.
//!
//! `client` opens the lock client, and `acquire` gets the hold. `supervise` runs the command under it, by
//! the supervisor of `leasehold-supervise`. `terminal`, `signals` and `event_printer` connect the command with
//! leasehold's terminal, signals and events meanwhile. `elect` uses the same modules.

pub(crate) mod acquire;
mod args;
pub(crate) mod client;
pub(crate) mod event_printer;
pub(crate) mod signals;
pub(crate) mod supervise;
mod terminal;

use std::ffi::OsString;
use std::future::Future;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use leasehold::clock::{BootClock, Clock};
use leasehold::policy::duration::human;
use leasehold::{Locks, Loss, Name, ReleaseOutcome, StoreUrl};
use leasehold_supervise::{CommandEnd, effective_grace};

use self::acquire::HoldOutcome;
pub(crate) use self::args::RunArgs;
use self::client::CommandClient;
use self::event_printer::EventPrinter;
use self::signals::Signals;
use self::supervise::RunCommand;
use crate::config::Settings;
use crate::exit;
use crate::message::{error_text, print_message, show_command};

pub(crate) fn main(settings: anyhow::Result<Settings>, args: RunArgs) -> ExitCode {
    run_to_exit_code(async { run(&settings?, args).await })
}

/// Runs the future on the main thread, which the supervisor relies on, and returns its exit code.
pub(crate) fn run_to_exit_code(work: impl Future<Output = anyhow::Result<u8>>) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let code = match runtime {
        Ok(runtime) => {
            let code = runtime.block_on(work);
            // A store call that hangs must not delay the exit.
            runtime.shutdown_background();
            code
        }
        Err(error) => Err(error.into()),
    };
    ExitCode::from(code.unwrap_or_else(|error| {
        print_message(&error_text(&error));
        exit::FAILED
    }))
}

async fn run(settings: &Settings, args: RunArgs) -> anyhow::Result<u8> {
    let spec = RunSpec::from_args(settings, &args)?;
    let mut signals = Signals::listen()?;
    let mut client = CommandClient::open(settings, &spec.store, args.metrics_file.as_deref()).await?;
    let code = run_command(&mut client, spec, &args, &mut signals).await;
    // On every path: requests without a response are undone as far as possible.
    client.close().await;
    code
}

async fn run_command(
    client: &mut CommandClient,
    spec: RunSpec,
    args: &RunArgs,
    signals: &mut Signals,
) -> anyhow::Result<u8> {
    let CommandClient { locks, printer, .. } = client;
    let class = locks.policies().class(&args.class, BootClock.now())?;
    let grace = effective_grace(args.stop_grace, args.ttl, &class);
    let mut class_locks = locks.class(&args.class).stop_grace(grace);
    if let Some(ttl) = args.ttl {
        class_locks = class_locks.ttl(ttl);
    }
    if let Some(wait) = args.nonblock.then_some(Duration::ZERO).or(args.wait) {
        class_locks = class_locks.wait(wait);
    }
    match acquire::acquire(locks, &class_locks, &spec.name, signals, printer).await {
        HoldOutcome::Held(hold) => {
            let run =
                RunCommand { argv: spec.argv, store: spec.store, holder: locks.holder().to_string(), grace };
            let (ended, outcome) = supervise::supervise(run, hold, signals, printer).await;
            printer.print_pending();
            report_end(locks, &spec.name, ended, outcome, printer)
        }
        HoldOutcome::Busy(busy) => {
            print_message(&acquire::busy_message(&busy));
            Ok(args.conflict_exit_code)
        }
        HoldOutcome::Interrupted(signal) => Ok(exit::from_signal(signal.as_raw())),
        HoldOutcome::Failed(error) => Err(acquire::acquire_error(&error, locks.store().describe())),
    }
}

/// The validated arguments. Checked before a store is opened.
struct RunSpec {
    name: Name,
    store: StoreUrl,
    argv: Vec<OsString>,
}

impl RunSpec {
    fn from_args(settings: &Settings, args: &RunArgs) -> anyhow::Result<Self> {
        let name = Name::new(&args.name)?;
        if args.shared {
            bail!(
                "-s: shared locks are not supported by this store yet\n\
                 leave it out for an exclusive lock"
            );
        }
        let argv = match (&args.shell, args.argv.is_empty()) {
            (Some(_), false) => {
                bail!("-c takes the whole command as one string; what follows the name is too much")
            }
            (Some(shell), true) => vec!["/bin/sh".into(), "-c".into(), shell.clone()],
            (None, false) => args.argv.clone(),
            (None, true) => bail!(
                "no command: nothing to run under {name}\n\
                 write it after the name, e.g. leasehold run {} -- make",
                leasehold_core::shell::quote(name.as_str())
            ),
        };
        Ok(Self { name, store: settings.store_url()?, argv })
    }
}

/// Prints how the command and the lease ended, and returns the exit code.
pub(crate) fn report_end(
    locks: &Locks,
    name: &Name,
    ended: anyhow::Result<CommandEnd>,
    outcome: ReleaseOutcome,
    talk: &EventPrinter,
) -> anyhow::Result<u8> {
    if let Some(overlap) = talk.overlap() {
        print_message(&format!(
            "overlap: the command ran for {} without a lease on {name} that could be proven\n\
             others may have run it in that time; check what it wrote, or use a class that fences",
            human(overlap)
        ));
    }
    match outcome {
        ReleaseOutcome::Debt { until } => print_message(&format!(
            "the release of {name} could not be confirmed: {} does not answer\n\
             the lease runs out by itself within {}",
            locks.store().describe(),
            human(until.since(BootClock.now()))
        )),
        ReleaseOutcome::AlreadyLost if matches!(ended, Ok(CommandEnd::ByItself(_))) => {
            print_message(&format!(
                "{name} was not ours any more when the command ended: another client may have run at the same time\n\
             check what it wrote, or have its target check LEASEHOLD_FENCE"
            ))
        }
        _ => {}
    }
    match ended? {
        CommandEnd::ByItself(status) => Ok(exit::from_status(status)),
        CommandEnd::Stopped { reason, description: did } => {
            let next = match reason {
                // The store did answer, so advice to check the store would mislead.
                Loss::NotOwned | Loss::Broken | Loss::HealConflict => {
                    format!(
                        "see who has it now ({}), and what the command had done, before you run it again",
                        show_command(name.as_str())
                    )
                }
                _ => format!(
                    "see that {} answers ({}), then run it again",
                    locks.store().describe(),
                    show_command(name.as_str())
                ),
            };
            print_message(&format!("lost the lease on {name}: {reason}\nthe command {did}\n{next}"));
            Ok(exit::LOST)
        }
    }
}
