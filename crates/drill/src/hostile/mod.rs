//! The drill of hostile clients: floods, silent connections, slow readers and unfinished bodies against
//! a real daemon, beside the holds of another tenant. `leasehold drill hostile-clients` runs it.
//!
//! `daemon` starts the process, `https` is the client, `calm_tenant` has the holds whose renewals are
//! counted, and `attacks` are what the other tenant and callers without a token do. `tally` counts what came of
//! them, `watch` probes the daemon meanwhile, and `verdict` judges.

mod attacks;
mod calm_tenant;
mod daemon;
mod https;
mod tally;
mod verdict;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use leasehold_core::clock::{BootClock, Clock, run_until};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::fleet::WorkerProgram;
use attacks::Attack;
use calm_tenant::CalmTenant;
use daemon::DaemonProcess;
use tally::AttackTally;
use verdict::{AttackResult, Findings, resident_limit_mib};
use watch::DaemonWatch;

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
    /// The report as text, with every promise that was broken.
    pub report: String,
}

/// Runs the drill. `program` must be the `leasehold` command: the daemon is started with it.
///
/// # Errors
/// The drill could not be run, or an attack had no effect; this is no verdict. A daemon that crashes is a
/// broken promise and no error.
pub async fn run(
    options: &HostileDrillOptions,
    program: &WorkerProgram,
    progress: &dyn Fn(&str),
) -> anyhow::Result<HostileVerdict> {
    let connections = raise_descriptor_limit().saturating_sub(OWN_DESCRIPTORS);
    let daemon = Arc::new(DaemonProcess::start(program).await?);
    let tenant = CalmTenant::start(&daemon, options.holds).await?;
    let (baseline_mib, _) = daemon.resident_mib().context("the kernel does not tell the daemon's memory")?;
    progress(&format!(
        "{} holds of one tenant on {}, {baseline_mib} MiB resident",
        options.holds,
        daemon.address()
    ));
    let mut findings = Findings::new(options.holds);
    for (attack, full) in Attack::ALL {
        let wanted = options.scaled(*full);
        let count = if attack.keeps_connections() { wanted.min(connections) } else { wanted };
        let result = run_attack(*attack, &daemon, &tenant, count).await;
        let line = findings.add_attack(*attack, wanted, count, &result);
        progress(&line);
        if let Some(crash) = daemon.crash_report() {
            findings.add_broken(crash);
            break;
        }
    }
    findings.add_calm_tenant(&tenant.stop().await);
    if let Some((_, peak_mib)) = daemon.resident_mib() {
        findings.add_peak(peak_mib, resident_limit_mib(baseline_mib, options.scale));
    }
    findings.judge()
}

/// Runs one attack, watches the daemon meanwhile, and counts its metrics before and after.
async fn run_attack(
    attack: Attack,
    daemon: &Arc<DaemonProcess>,
    tenant: &CalmTenant,
    count: usize,
) -> AttackResult {
    let began = BootClock.now();
    let mut problem = attack.check_target(daemon).await.err();
    let series_before = daemon.metric_series().await;
    // What came before belongs to no attack.
    let _ = tenant.take_kept_holds();
    let watch = DaemonWatch::start(daemon);
    let tally = Arc::new(AttackTally::default());
    let open = run_until(&BootClock, began + ATTACK_TIMEOUT, attack.run(daemon, count, &tally)).await;
    // While the attack's connections are still open.
    let watched = watch.stop().await;
    let kept_holds = tenant.take_kept_holds();
    let cut_off = open.is_none();
    drop(open);
    problem = problem.or_else(|| tally.shortfall(count, attack.least_effective_percent()));
    let new_series = match (series_before, daemon.metric_series().await) {
        (Ok(before), Ok(after)) => after.saturating_sub(before),
        (Err(error), _) | (_, Err(error)) => {
            problem = problem.or_else(|| Some(format!("the metrics cannot be counted: {error}")));
            0
        }
    };
    let took = BootClock.now().since(began);
    let resident_mib = daemon.resident_mib().unwrap_or_default();
    AttackResult {
        outcome: tally.to_string(),
        took,
        cut_off,
        problem,
        watched,
        kept_holds,
        new_series,
        resident_mib,
    }
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
