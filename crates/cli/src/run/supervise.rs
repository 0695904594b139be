//! Runs the command under the hold, with leasehold's signals, events and terminal.
//!
//! The lock is released only after every process of the command has ended.

use std::ffi::OsString;
use std::pin::pin;
use std::time::Duration;

use leasehold::{Hold, ReleaseOutcome, StoreUrl};
use leasehold_supervise::{CommandEnd, CommandSpec, Controls, HeldCommand, PrepareOutcome, was_stopped};
use rustix::process::{Signal, getpid, kill_process};

use super::event_printer::EventPrinter;
use super::signals::{Signals, is_forwarded};
use super::terminal::Terminal;
use crate::message::print_message;

/// The binary that provides the helper processes: the running one, even if its file was replaced or removed.
pub(crate) const HELPER_PROGRAM: &str = "/proc/self/exe";

#[derive(Debug)]
pub(crate) struct RunCommand {
    pub(crate) argv: Vec<OsString>,
    /// Passed to the command in its environment.
    pub(crate) store: StoreUrl,
    /// Passed to the command in its environment.
    pub(crate) holder: String,
    /// The time between the hold's deadline and the end of the lease.
    pub(crate) grace: Duration,
}

/// Runs the command, and releases the lease after its last process has ended.
pub(crate) async fn supervise(
    run: RunCommand,
    hold: Hold,
    signals: &mut Signals,
    printer: &mut EventPrinter,
) -> (anyhow::Result<CommandEnd>, ReleaseOutcome) {
    let ended = start_and_watch(run, &hold, signals, printer).await;
    (ended, hold.release().await)
}

async fn start_and_watch(
    run: RunCommand,
    hold: &Hold,
    signals: &mut Signals,
    printer: &mut EventPrinter,
) -> anyhow::Result<CommandEnd> {
    let mut spec = CommandSpec::new(run.argv, run.grace);
    spec.environment = vec![
        ("LEASEHOLD_CLASS", hold.class().into()),
        ("LEASEHOLD_HOLDER", run.holder.into()),
        ("LEASEHOLD_STORE", run.store.expose().into()),
    ];
    spec.helper = Some(HELPER_PROGRAM.into());
    spec.sole = true;
    let held = match HeldCommand::prepare(&spec, hold, []).await? {
        PrepareOutcome::Held(held) => held,
        PrepareOutcome::Late(end) => return Ok(end),
    };
    let mut terminal = Terminal::if_foreground();
    if let Some(terminal) = &terminal {
        terminal.lend(held.group());
    }
    let (supervised, mut controls) = held.start();
    let mut end = pin!(supervised.wait());
    let ended = loop {
        // The order matters after a suspension: the end and the loss of the hold come before the signal that
        // woke this process.
        tokio::select! {
            biased;
            ended = &mut end => break ended,
            notice = controls.next_notice() => print_message(&notice),
            signal = signals.next() => on_signal(signal, hold, &mut controls, &mut terminal),
            () = printer.next() => {}
        }
    };
    if let Some(terminal) = &terminal {
        terminal.take_back();
    }
    while let Some(notice) = controls.take_notice() {
        print_message(&notice);
    }
    Ok(ended?)
}

fn on_signal(signal: Signal, hold: &Hold, controls: &mut Controls, terminal: &mut Option<Terminal>) {
    match signal {
        Signal::CHILD => {
            if let Some(terminal) = terminal
                && was_stopped(controls.group())
            {
                // The shell waits for leasehold to stop as well, and needs its terminal back.
                terminal.take_back();
                let _ = kill_process(getpid(), Signal::STOP);
            }
        }
        Signal::TSTP => {
            controls.pass_on(Signal::TSTP);
            let _ = kill_process(getpid(), Signal::STOP);
        }
        // Past the deadline the command must not run a single statement, so CONT is not passed on.
        Signal::CONT if hold.check().is_ok() => {
            // `fg` has put leasehold in the foreground; after `bg` there is no terminal to lend.
            if let Some(foreground) = Terminal::if_foreground() {
                foreground.lend(controls.group());
                *terminal = Some(foreground);
            }
            controls.pass_on(Signal::CONT);
        }
        signal if is_forwarded(signal) => controls.pass_on(signal),
        _ => {}
    }
}
