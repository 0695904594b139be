//! The classes of a history, written as policy file text, so that the real parser reads them.

use std::fmt::Write as _;

use super::random::SimRandom;

/// TTL of [`PROBE_CLASS`], in milliseconds.
pub(super) const PROBE_TTL_MS: u64 = 2_000;
/// The class used after the faults end, to check that every client can acquire every name.
pub(super) const PROBE_CLASS: &str = "probe";

/// One class. Times are in milliseconds.
#[derive(Debug, Clone)]
pub struct ClassPlan {
    /// One class per task, so that a history shows which task made a request.
    pub name: String,
    /// TTL of its leases before any override.
    pub ttl: u64,
    lock_delay: u64,
    fields: Vec<(&'static str, String)>,
}

impl ClassPlan {
    /// Draws a class of any legal shape with a TTL of at least `min_ttl` milliseconds.
    pub(super) fn draw(task: usize, random: &SimRandom, min_ttl: u64) -> Self {
        // Mostly short TTLs: a short lease meets more faults in the same simulated time.
        let ttl = if random.chance(250) {
            random.pick(&[10_000, 30_000, 60_000], 10_000)
        } else {
            random.between(min_ttl, 4_000)
        };
        let lock_delay = if random.chance(250) { ttl / 2 } else { 0 };
        let word = |chance: u64, this: &str, other: &str| {
            let word = if random.chance(chance) { this } else { other };
            format!("\"{word}\"")
        };
        let span = |millis: u64| format!("\"{}ms\"", millis.max(1));
        let mut fields = vec![
            ("ttl", span(ttl)),
            ("mode", word(120, "shadow", "enforce")),
            ("acquire.wait", format!("\"{}ms\"", if random.chance(500) { ttl } else { 0 })),
            ("acquire.retry", span(5)),
            ("acquire.timeout", span(ttl / 2)),
            ("acquire.on_error", word(400, "fail-open", "fail-closed")),
            ("acquire.on_heal_conflict", word(500, "fence", "continue")),
            ("renew.timeout", span(ttl / 8)),
            ("renew.max_failures", (1 + random.below(4)).to_string()),
            ("renew.on_failure", word(600, "fence", "continue")),
            ("release.attempts", (1 + random.below(3)).to_string()),
            ("release.timeout", span(ttl / 4)),
            ("release.lock_delay", format!("\"{lock_delay}ms\"")),
            ("release.when", word(120, "expired", "finished")),
        ];
        let every = if random.chance(850) { span(ttl / 3) } else { "\"never\"".to_owned() };
        fields.push(("renew.every", every));
        if random.chance(250) {
            fields.push(("stop_grace", span(ttl / 10)));
        }
        let limit = if random.chance(250) { span(ttl * 3) } else { "\"never\"".to_owned() };
        fields.push(("max_hold", limit));
        Self { name: format!("c{task}"), ttl, lock_delay, fields }
    }

    /// How long the store keeps a lease of this class, in milliseconds.
    pub(super) fn lease_ms(&self) -> u64 {
        self.ttl + self.lock_delay
    }
}

/// The policy file that all clients of a history read.
pub(super) fn policy_text(classes: &[ClassPlan]) -> String {
    let mut text = format!(
        "[class.{PROBE_CLASS}]\nttl = \"{PROBE_TTL_MS}ms\"\nacquire.wait = \"60s\"\nacquire.retry = \"25ms\"\nacquire.timeout = \"1s\"\n\
         renew.timeout = \"200ms\"\n"
    );
    for class in classes {
        let _ = writeln!(text, "[class.{}]", class.name);
        for (field, value) in &class.fields {
            let _ = writeln!(text, "{field} = {value}");
        }
    }
    text
}
