//! Signals that reach leasehold while it runs a command.

use anyhow::Context;
use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// Passed on to the command.
const FORWARDED: [Signal; 6] = [
    Signal::INT,
    Signal::TERM,
    Signal::HUP,
    Signal::QUIT,
    Signal::USR1,
    Signal::USR2,
];
/// For job control: we are asked to stop, we go on, something about a child has changed.
const JOB_CONTROL: [Signal; 3] = [Signal::TSTP, Signal::CONT, Signal::CHILD];

/// What arrives, in order.
#[derive(Debug)]
pub(crate) struct Signals {
    arriving: mpsc::UnboundedReceiver<Signal>,
}

impl Signals {
    /// Listens from now on.
    pub(crate) fn listen() -> anyhow::Result<Self> {
        let (sender, arriving) = mpsc::unbounded_channel();
        let ignored = ignored();
        for kind in FORWARDED.into_iter().chain(JOB_CONTROL) {
            // `nohup` and shells without job control ignore signals on behalf of what they start. A listener would undo
            // that for us and for the command.
            if kind != Signal::CHILD && ignored & (1 << (kind.as_raw() - 1)) != 0 {
                continue;
            }
            let mut stream =
                signal(SignalKind::from_raw(kind.as_raw())).context("signals cannot be listened to")?;
            let sender = sender.clone();
            tokio::spawn(async move { while stream.recv().await.is_some() && sender.send(kind).is_ok() {} });
        }
        Ok(Self { arriving })
    }

    /// The next one.
    pub(crate) async fn next(&mut self) -> Signal {
        match self.arriving.recv().await {
            Some(signal) => signal,
            // Cannot be: the streams end with the runtime only.
            None => std::future::pending().await,
        }
    }

    /// The next one that asks us to end, while there is no command to pass it to.
    pub(crate) async fn ending(&mut self) -> Signal {
        loop {
            let signal = self.next().await;
            if matches!(signal, Signal::INT | Signal::TERM | Signal::HUP | Signal::QUIT) {
                return signal;
            }
        }
    }
}

/// The signals that are ignored when we begin, as the kernel's mask.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}

/// Is it one of those that are passed on?
pub(crate) fn forwarded(signal: Signal) -> bool {
    FORWARDED.contains(&signal)
}
