//! `leasehold run`: acquire, start, watch over child, lease and signals, release.
//!
//! `acquire` gets the hold, `supervise` runs the command under it with its guardian (`guard`, `follow`), `child` and
//! `terminal` are how it is started, `signals` and `talk` what arrives meanwhile.

pub(crate) mod acquire;
mod args;
mod child;
mod follow;
mod guard;
pub(crate) mod signals;
pub(crate) mod supervise;
pub(crate) mod talk;
mod terminal;

use std::ffi::OsString;
use std::future::Future;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use leasehold::clock::{BootClock, Clock};
use leasehold::policy::Class;
use leasehold::policy::duration::human;
use leasehold::{Locks, Loss, Name, Outcome, StoreUrl};

use self::acquire::Got;
pub(crate) use self::args::RunArgs;
use self::signals::Signals;
use self::supervise::{Ended, Run};
use self::talk::Talk;
use crate::args::Place;
use crate::exit;
use crate::say::{say, told};
use crate::textfile::{Count, Textfile};
use crate::trace::Trace;

/// How long releases and undos may still take when everything else is over.
pub(crate) const SETTLE: Duration = Duration::from_secs(1);

/// Runs a command under a lock.
pub(crate) fn main(place: &Place, args: RunArgs) -> ExitCode {
    to_the_end(run(place, args))
}

/// Runs this on the main thread, which `child` relies on, and passes its code on.
pub(crate) fn to_the_end(work: impl Future<Output = anyhow::Result<u8>>) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    let code = match runtime {
        Ok(runtime) => {
            let code = runtime.block_on(work);
            // A store call that hangs must not hold up the end.
            runtime.shutdown_background();
            code
        }
        Err(error) => Err(error.into()),
    };
    ExitCode::from(code.unwrap_or_else(|error| {
        say(&told(&error));
        exit::FAILED
    }))
}

async fn run(place: &Place, args: RunArgs) -> anyhow::Result<u8> {
    let order = Order::read(place, &args)?;
    let mut signals = Signals::listen()?;
    let (ear, mut talk, news) = Talk::new();
    let trace = Trace::from_env()?;
    let count = Arc::new(Count::default());
    let opening = leasehold::open(order.store.to_string())
        .observer(ear)
        .observer(Arc::clone(&count) as _);
    let mut opening = trace.opening(opening);
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
    let class = locks.policies().class(&args.class, BootClock.now())?;
    let grace = grace_of(args.stop_grace, args.ttl, &class);
    let mut under = locks.class(&args.class).stop_grace(grace);
    if let Some(ttl) = args.ttl {
        under = under.ttl(ttl);
    }
    if let Some(wait) = args.nonblock.then_some(Duration::ZERO).or(args.wait) {
        under = under.wait(wait);
    }
    let got = acquire::acquire(&locks, &under, &order.name, &mut signals, &mut talk).await;
    let code = match got {
        Got::Held(hold) => {
            let run = Run {
                argv: order.argv,
                store: order.store,
                holder: locks.holder().to_string(),
                grace,
            };
            let (ended, outcome) = supervise::supervise(&run, hold, &mut signals, &mut talk, news).await;
            talk.rest();
            conclude(&locks, &order.name, ended, outcome, &talk)
        }
        Got::Busy(busy) => {
            say(&acquire::about_busy(&busy));
            Ok(args.conflict_exit_code)
        }
        Got::Interrupted(signal) => Ok(exit::of_signal(signal.as_raw())),
        Got::Failed(error) => Err(acquire::about_failure(&error, locks.store().describe())),
    };
    // Whatever happened: what was asked of the store and not answered is undone as far as it can be.
    locks.shutdown(SETTLE).await;
    if let Some(file) = file {
        file.end().await;
    }
    trace.finish().await;
    code
}

/// What is to be done, checked before anything is opened.
struct Order {
    name: Name,
    store: StoreUrl,
    argv: Vec<OsString>,
}

impl Order {
    fn read(place: &Place, args: &RunArgs) -> anyhow::Result<Self> {
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
                 write it after the name, e.g. leasehold run {name} -- make"
            ),
        };
        Ok(Self {
            name,
            store: place.store()?,
            argv,
        })
    }
}

/// A future in this process stops where it is dropped, so classes mostly say 0; a process needs time to stop.
pub(crate) fn grace_of(asked: Option<Duration>, ttl: Option<Duration>, class: &Class) -> Duration {
    let ttl = ttl.unwrap_or(class.ttl.get());
    asked
        .or(Some(class.stop_grace).filter(|grace| !grace.is_zero()))
        .unwrap_or_else(|| Class::process_grace(ttl))
}

/// Says what there is to say, and answers the exit code.
pub(crate) fn conclude(
    locks: &Locks,
    name: &Name,
    ended: anyhow::Result<Ended>,
    outcome: Outcome,
    talk: &Talk,
) -> anyhow::Result<u8> {
    if let Some(overlap) = talk.overlap() {
        say(&format!(
            "overlap: the command ran for {} without a lease on {name} that could be proven\n\
             others may have run it in that time; check what it wrote, or use a class that fences",
            human(overlap)
        ));
    }
    match outcome {
        Outcome::Debt { until } => say(&format!(
            "the release of {name} could not be confirmed: {} does not answer\n\
             the lease runs out by itself within {}",
            locks.store().describe(),
            human(until.since(BootClock.now()))
        )),
        Outcome::AlreadyLost if matches!(ended, Ok(Ended::ByItself(_))) => say(&format!(
            "{name} was not ours any more when the command ended: someone else may have run at the same time\n\
             check what it wrote, or have its target check LEASEHOLD_FENCE"
        )),
        _ => {}
    }
    match ended? {
        Ended::ByItself(status) => Ok(exit::of_status(status)),
        Ended::Stopped { reason, did } => {
            let next = match reason {
                // The store did answer.
                Loss::NotOwned | Loss::Broken | Loss::HealConflict => {
                    format!(
                        "see who has it now (leasehold show {name}), and what the command had done, before you run it again"
                    )
                }
                _ => format!(
                    "see that {} answers (leasehold show {name}), then run it again",
                    locks.store().describe()
                ),
            };
            say(&format!(
                "lost the lease on {name}: {reason}\nthe command {did}\n{next}"
            ));
            Ok(exit::LOST)
        }
    }
}
