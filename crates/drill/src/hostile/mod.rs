//! The drill of hostile clients: floods, silent connections, slow readers and unfinished bodies against
//! a real daemon, beside the holds of another tenant. `leasehold drill hostile-clients` runs it.
//!
//! `daemon` starts the process, `https` is the client, `calm_tenant` has the holds whose renewals are
//! counted, and `attacks` are what the other tenant and callers without a token do.

mod attacks;
mod calm_tenant;
mod daemon;
mod https;

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::clock::{BootClock, Clock, run_until};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::fleet::WorkerProgram;
use attacks::Attack;
use calm_tenant::CalmTenant;
use daemon::DaemonProcess;

/// The most memory that the daemon may have resident at any time, in MiB.
const MAX_RESIDENT_MIB: u64 = 256;
// Descriptors of this process that are not connections of an attack.
const OWN_DESCRIPTORS: usize = 1000;
// An attack that takes longer is cut off and counts as it stands.
const ATTACK_TIMEOUT: Duration = Duration::from_secs(120);

/// The size of the drill.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct HostileDrillOptions {
    /// The part of the full number of requests and connections, up to 1.
    pub scale: f64,
    /// The holds of the other tenant.
    pub holds: usize,
}

impl HostileDrillOptions {
    /// A drill with this part of the full load.
    #[must_use]
    pub fn new(scale: f64) -> Self {
        Self { scale, holds: 200 }
    }

    fn scaled(&self, full: u32) -> usize {
        // Not negative, and at most `full`: the cast neither wraps nor truncates more than a fraction.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded above")]
        let scaled = (f64::from(full) * self.scale.clamp(0.0, 1.0)).ceil() as usize;
        scaled.max(1)
    }
}

/// The result of the drill.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct HostileVerdict {
    /// Whether every promise was kept.
    pub kept: bool,
    /// The report as text.
    pub report: String,
}

/// Runs the drill. `program` must be the `leasehold` command: the daemon is started with it.
///
/// # Errors
/// The drill could not be run; this is no verdict.
pub async fn run(
    options: &HostileDrillOptions,
    program: &WorkerProgram,
    progress: &dyn Fn(&str),
) -> anyhow::Result<HostileVerdict> {
    let connections = raise_descriptor_limit().saturating_sub(OWN_DESCRIPTORS);
    let daemon = Arc::new(DaemonProcess::start(program).await?);
    let tenant = CalmTenant::start(&daemon, options.holds).await?;
    progress(&format!("{} holds of one tenant on {}", options.holds, daemon.address()));
    let (mut report, mut answered) = (String::new(), true);
    for (attack, full) in Attack::ALL {
        let wanted = options.scaled(*full);
        let count = if attack.keeps_connections() { wanted.min(connections) } else { wanted };
        let began = BootClock.now();
        let done = run_until(&BootClock, began + ATTACK_TIMEOUT, attack.run(&daemon, count)).await;
        // While the attack's connections are still open.
        let alive = daemon.is_alive().await;
        answered &= alive;
        let outcome = match &done {
            Some(outcome) => outcome.summary.clone(),
            None => "cut off".to_owned(),
        };
        let fewer =
            if count < wanted { format!(" (of {wanted}: the limit of open files)") } else { String::new() };
        let line = format!(
            "{:<18} {count}{fewer} in {:.1?}: {outcome}; daemon {} MiB; /healthz {}",
            attack.name(),
            BootClock.now().since(began),
            daemon.peak_resident_mib()?,
            if alive { "answers" } else { "DOES NOT ANSWER" },
        );
        progress(&line);
        writeln!(report, "{line}")?;
        drop(done);
    }
    let renewals = tenant.stop().await;
    let peak = daemon.peak_resident_mib()?;
    let kept = answered && renewals.missed == 0 && renewals.done > 0 && peak < MAX_RESIDENT_MIB;
    writeln!(
        report,
        "renewals: {} done, {} missed, {} retried, slowest {:.1?}",
        renewals.done, renewals.missed, renewals.retried, renewals.slowest
    )?;
    writeln!(report, "resident memory of the daemon: {peak} MiB at most, {MAX_RESIDENT_MIB} allowed")?;
    writeln!(report, "{}", if kept { "every promise was kept" } else { "A PROMISE WAS BROKEN" })?;
    Ok(HostileVerdict { kept, report })
}

/// Raises the soft limit of open files to the hard one, and returns it.
fn raise_descriptor_limit() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let now = if setrlimit(Resource::Nofile, raised).is_ok() { limit.maximum } else { limit.current };
    now.and_then(|files| usize::try_from(files).ok()).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_is_scaled_and_never_zero() {
        assert_eq!(HostileDrillOptions::new(0.1).scaled(16_000), 1600);
        assert_eq!(HostileDrillOptions::new(7.0).scaled(2000), 2000);
        assert_eq!(HostileDrillOptions::new(0.0).scaled(2000), 1);
    }
}
