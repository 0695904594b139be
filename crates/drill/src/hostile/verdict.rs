//! What the drill has found: broken promises, and attacks that had no effect.

use std::fmt::Write;
use std::time::Duration;

use anyhow::bail;

use super::HostileVerdict;
use super::attacks::Attack;
use super::calm_tenant::{CalmCounts, KeptHoldCounts};
use super::watch::WatchCounts;

/// The most memory that the daemon may have resident under the full load, in MiB.
const MAX_RESIDENT_MIB: u64 = 256;
// What the daemon's bounds allow however small the load is: 1,024 connections with TLS and a head each, bodies
// of one identity, and pages of the history.
const LEAST_GROWTH_MIB: u64 = 64;
// The daemon keeps this many connections without an identity.
const MAX_UNIDENTIFIED_CONNECTIONS: usize = 1024;
// Connections with an identity that are not the calm tenant's holds: floods, probes, the store's.
const OTHER_SOCKETS: usize = 100;
// One kept hold in so many may be late.
const MAX_LATE_PART: u64 = 10;
// Series that appear with the first request of a kind.
const MAX_NEW_SERIES: usize = 50;

/// The limit of resident memory. A part of the load may add that part of what the full load may.
pub(super) fn resident_limit_mib(baseline_mib: u64, scale: f64) -> u64 {
    let growth = MAX_RESIDENT_MIB.saturating_sub(baseline_mib);
    // Through thousandths: a scale has no more digits.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to 1000")]
    let thousandths = (scale.clamp(0.0, 1.0) * 1000.0) as u64;
    baseline_mib + (growth * thousandths / 1000).max(LEAST_GROWTH_MIB.min(growth))
}

/// One attack and what was seen meanwhile.
#[derive(Debug)]
pub(super) struct AttackResult {
    pub(super) outcome: String,
    pub(super) took: Duration,
    /// The attack took longer than it may.
    pub(super) cut_off: bool,
    /// Why the attack shows nothing.
    pub(super) problem: Option<String>,
    pub(super) watched: WatchCounts,
    pub(super) kept_holds: KeptHoldCounts,
    pub(super) new_series: usize,
    /// Resident memory after the attack, and the most so far.
    pub(super) resident_mib: (u64, u64),
}

/// Collects the report.
#[derive(Debug)]
pub(super) struct Findings {
    holds: usize,
    report: String,
    broken: Vec<String>,
    problems: Vec<String>,
}

impl Findings {
    pub(super) fn new(holds: usize) -> Self {
        Self { holds, report: String::new(), broken: Vec::new(), problems: Vec::new() }
    }

    /// Judges an attack and returns its line of the report.
    pub(super) fn add_attack(
        &mut self,
        attack: Attack,
        wanted: usize,
        count: usize,
        result: &AttackResult,
    ) -> String {
        let (name, watched) = (attack.name(), &result.watched);
        let fewer =
            if count < wanted { format!(" (of {wanted}: the limit of open files)") } else { String::new() };
        let line = format!(
            "{name:<18} {count}{fewer} in {:.1?}{}: {}; daemon {} MiB, {} at most, {} sockets; {} probes, slowest {:.1?}; {} kept holds, slowest {:.1?}",
            result.took,
            if result.cut_off { " (cut off)" } else { "" },
            result.outcome,
            result.resident_mib.0,
            result.resident_mib.1,
            watched.sockets,
            watched.probes,
            watched.slowest_probe,
            result.kept_holds.done,
            result.kept_holds.slowest,
        );
        self.add_line(&line);
        if let Some(problem) = &result.problem {
            self.problems.push(format!("{name}: {problem}"));
        }
        if watched.failed_probes > 0 {
            let (failed, probes) = (watched.failed_probes, watched.probes);
            self.add_broken(format!("{name}: /healthz did not answer {failed} of {probes} probes in time"));
        }
        let KeptHoldCounts { done, late, failed, slowest } = result.kept_holds;
        if failed > 0 {
            self.add_broken(format!("{name}: a kept hold could not be created or deleted"));
        } else if late * MAX_LATE_PART > done {
            self.add_broken(format!(
                "{name}: of {done} kept holds {late} were late, the slowest {slowest:.1?}"
            ));
        }
        let max_sockets = MAX_UNIDENTIFIED_CONNECTIONS + self.holds + OTHER_SOCKETS;
        // Unfinished bodies have a token: the limit of all connections bounds them.
        if attack != Attack::UnfinishedBodies && watched.sockets > max_sockets {
            self.add_broken(format!("{name}: {} sockets, {max_sockets} allowed", watched.sockets));
        }
        if result.new_series > MAX_NEW_SERIES {
            self.add_broken(format!(
                "{name}: {} new series of metrics, {MAX_NEW_SERIES} allowed",
                result.new_series
            ));
        }
        line
    }

    pub(super) fn add_calm_tenant(&mut self, counts: &CalmCounts) {
        self.add_line(&format!(
            "renewals: {} done, {} missed, {} retried, slowest {:.1?}",
            counts.done, counts.missed, counts.retried, counts.slowest
        ));
        if counts.missed > 0 {
            self.add_broken(format!("{} holds were lost or renewed too late", counts.missed));
        }
        if counts.done == 0 {
            self.problems.push("nothing was renewed".to_owned());
        }
    }

    pub(super) fn add_peak(&mut self, peak_mib: u64, limit_mib: u64) {
        self.add_line(&format!("resident memory of the daemon: {peak_mib} MiB at most, {limit_mib} allowed"));
        if peak_mib >= limit_mib {
            self.add_broken(format!("{peak_mib} MiB were resident, {limit_mib} are allowed"));
        }
    }

    pub(super) fn add_broken(&mut self, promise: String) {
        self.broken.push(promise);
    }

    /// The verdict. A broken promise outranks an attack that had no effect: it may be the reason for that.
    pub(super) fn judge(mut self) -> anyhow::Result<HostileVerdict> {
        if self.broken.is_empty() && !self.problems.is_empty() {
            bail!("{}the drill could not be run: {}", self.report, self.problems.join("\n"));
        }
        for promise in std::mem::take(&mut self.broken) {
            self.add_line(&format!("broken: {promise}"));
            self.broken.push(promise);
        }
        let kept = self.broken.is_empty();
        self.add_line(if kept { "every promise was kept" } else { "A PROMISE WAS BROKEN" });
        Ok(HostileVerdict { kept, report: self.report })
    }

    fn add_line(&mut self, line: &str) {
        let _ = writeln!(self.report, "{line}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn harmless() -> AttackResult {
        AttackResult {
            outcome: "as expected".to_owned(),
            took: Duration::from_secs(1),
            cut_off: false,
            problem: None,
            watched: WatchCounts { probes: 4, ..WatchCounts::default() },
            kept_holds: KeptHoldCounts { done: 20, late: 2, ..KeptHoldCounts::default() },
            new_series: 0,
            resident_mib: (40, 40),
        }
    }

    fn judge(attack: Attack, result: &AttackResult, peak_mib: u64) -> anyhow::Result<HostileVerdict> {
        let mut findings = Findings::new(200);
        findings.add_attack(attack, 10, 10, result);
        findings.add_calm_tenant(&CalmCounts { done: 1, ..CalmCounts::default() });
        findings.add_peak(peak_mib, resident_limit_mib(30, 0.1));
        findings.judge()
    }

    /// A drill that only looks at the end passes whatever happens during the attacks.
    #[test]
    fn finding_13_each_bound_is_judged_at_any_scale() {
        assert!(judge(Attack::Labels, &harmless(), 60).unwrap().kept);
        let broken = |attack, result: &AttackResult, peak_mib| {
            let verdict = judge(attack, result, peak_mib).unwrap();
            assert!(!verdict.kept, "{}", verdict.report);
            verdict.report
        };
        let many = AttackResult { new_series: 2000, ..harmless() };
        assert!(broken(Attack::Labels, &many, 60).contains("2000 new series"));
        let watched = WatchCounts { sockets: 1700, probes: 1, ..WatchCounts::default() };
        let crowded = AttackResult { watched, ..harmless() };
        assert!(broken(Attack::IdleConnections, &crowded, 60).contains("1700 sockets"));
        let watched = WatchCounts { failed_probes: 1, probes: 9, ..WatchCounts::default() };
        let silent = AttackResult { watched, ..harmless() };
        assert!(broken(Attack::History, &silent, 60).contains("1 of 9 probes"));
        let kept_holds = KeptHoldCounts { done: 20, late: 3, ..KeptHoldCounts::default() };
        let slow = AttackResult { kept_holds, ..harmless() };
        assert!(broken(Attack::History, &slow, 60).contains("of 20 kept holds 3 were late"));
        // A tenth of 2,000 unfinished bodies is 84 MiB, if nothing bounds them.
        assert!(broken(Attack::UnfinishedBodies, &harmless(), 30 + 84).contains("114 MiB were resident"));
        // A promise was broken: that is the verdict, whatever else could not be done.
        let dead = AttackResult { problem: Some("connection refused".to_owned()), ..many };
        broken(Attack::Labels, &dead, 60);
    }

    #[test]
    fn finding_01_an_attack_without_effect_is_no_verdict() {
        let refused = AttackResult { problem: Some("200 failed (status 401)".to_owned()), ..harmless() };
        let error = judge(Attack::Labels, &refused, 60).unwrap_err().to_string();
        assert!(error.contains("could not be run") && error.contains("status 401"), "{error}");
    }

    #[test]
    fn the_limit_of_memory_is_scaled() {
        assert_eq!(resident_limit_mib(30, 1.0), 256);
        assert_eq!(resident_limit_mib(30, 0.5), 143);
        assert_eq!(resident_limit_mib(30, 0.1), 94);
        assert_eq!(resident_limit_mib(300, 0.1), 300);
    }
}
