//! Signals that leasehold receives while it runs a command.

use anyhow::Context;
use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// Signals that are passed on to the command.
const FORWARDED_SIGNALS: [Signal; 6] =
    [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::USR2];
/// Signals for job control: stop request, continue, and a child's state change.
const JOB_CONTROL_SIGNALS: [Signal; 3] = [Signal::TSTP, Signal::CONT, Signal::CHILD];

/// The received signals, in order.
#[derive(Debug)]
pub(crate) struct Signals {
    receiver: mpsc::UnboundedReceiver<Signal>,
}

impl Signals {
    pub(crate) fn listen() -> anyhow::Result<Self> {
        let (sender, arriving) = mpsc::unbounded_channel();
        let ignored = ignored_mask();
        for kind in FORWARDED_SIGNALS.into_iter().chain(JOB_CONTROL_SIGNALS) {
            // `nohup` and shells without job control ignore signals on behalf of what they start. A listener
            // would undo that for us and for the command.
            if kind != Signal::CHILD && ignored & (1 << (kind.as_raw() - 1)) != 0 {
                continue;
            }
            let mut stream =
                signal(SignalKind::from_raw(kind.as_raw())).context("signals cannot be listened to")?;
            let sender = sender.clone();
            tokio::spawn(async move { while stream.recv().await.is_some() && sender.send(kind).is_ok() {} });
        }
        Ok(Self { receiver: arriving })
    }

    pub(crate) async fn next(&mut self) -> Signal {
        match self.receiver.recv().await {
            Some(signal) => signal,
            // Unreachable: the streams end only with the runtime.
            None => std::future::pending().await,
        }
    }

    /// The next signal that asks leasehold to end; used while there is no command to pass it to.
    pub(crate) async fn next_ending(&mut self) -> Signal {
        loop {
            let signal = self.next().await;
            if matches!(signal, Signal::INT | Signal::TERM | Signal::HUP | Signal::QUIT) {
                return signal;
            }
        }
    }
}

/// The signals that were ignored when this process started, as the kernel's bit mask.
fn ignored_mask() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

pub(crate) fn is_forwarded(signal: Signal) -> bool {
    FORWARDED_SIGNALS.contains(&signal)
}
