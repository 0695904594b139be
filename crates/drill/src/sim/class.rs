//! The classes of a history, as the text of a policy file: the real reader reads them.

use std::fmt::Write as _;

use super::dice::Dice;

/// The TTL of the class that the last look is taken with, in milliseconds.
pub(super) const PROBE_TTL: u64 = 2_000;
/// The class that the last look is taken with.
pub(super) const PROBE: &str = "probe";

/// One class. Times are in milliseconds.
#[derive(Debug, Clone)]
pub struct ClassPlan {
    /// Its name: one for each task, so that what a client does can be told apart.
    pub name: String,
    /// How long a lease lives.
    pub ttl: u64,
    lock_delay: u64,
    fields: Vec<(&'static str, String)>,
}

impl ClassPlan {
    /// A class of any legal shape, mostly with a short TTL, but at least this: short leases meet faults more often.
    pub(super) fn draw(task: usize, dice: &Dice, least: u64) -> Self {
        let ttl = if dice.chance(250) {
            dice.pick(&[10_000, 30_000, 60_000], 10_000)
        } else {
            dice.between(least, 4_000)
        };
        let lock_delay = if dice.chance(250) { ttl / 2 } else { 0 };
        let word = |chance: u64, this: &str, other: &str| {
            let word = if dice.chance(chance) { this } else { other };
            format!("\"{word}\"")
        };
        let span = |millis: u64| format!("\"{}ms\"", millis.max(1));
        let mut fields = vec![
            ("ttl", span(ttl)),
            ("mode", word(120, "shadow", "enforce")),
            (
                "acquire.wait",
                format!("\"{}ms\"", if dice.chance(500) { ttl } else { 0 }),
            ),
            ("acquire.retry", span(5)),
            ("acquire.timeout", span(ttl / 2)),
            ("acquire.on_error", word(400, "fail-open", "fail-closed")),
            ("acquire.on_heal_conflict", word(500, "fence", "continue")),
            ("renew.timeout", span(ttl / 8)),
            ("renew.max_failures", (1 + dice.below(4)).to_string()),
            ("renew.on_failure", word(600, "fence", "continue")),
            ("release.attempts", (1 + dice.below(3)).to_string()),
            ("release.timeout", span(ttl / 4)),
            ("release.lock_delay", format!("\"{lock_delay}ms\"")),
            ("release.when", word(120, "expired", "finished")),
        ];
        let every = if dice.chance(850) {
            span(ttl / 3)
        } else {
            "\"never\"".to_owned()
        };
        fields.push(("renew.every", every));
        if dice.chance(250) {
            fields.push(("stop_grace", span(ttl / 10)));
        }
        let limit = if dice.chance(250) {
            span(ttl * 3)
        } else {
            "\"never\"".to_owned()
        };
        fields.push(("max_hold", limit));
        Self {
            name: format!("c{task}"),
            ttl,
            lock_delay,
            fields,
        }
    }

    /// How long the store keeps a lease of it, in milliseconds.
    pub(super) fn kept(&self) -> u64 {
        self.ttl + self.lock_delay
    }
}

/// The policy file of all clients.
pub(super) fn text(classes: &[ClassPlan]) -> String {
    let mut text = format!(
        "[class.{PROBE}]\nttl = \"{PROBE_TTL}ms\"\nacquire.wait = \"60s\"\nacquire.retry = \"25ms\"\nacquire.timeout = \"1s\"\n\
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
