//! The language of escalation rules:
//! `fallback rate > 0.1/s for 5m and duplicates rising -> fail-closed`.
//!
//! `SIGNAL rate > NUMBER/UNIT for DURATION [and SIGNAL rising] -> ACTION`, where the unit is `s`,
//! `m` or `h`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::duration;
use super::field::nearest;

/// The events that a rule counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Signal {
    /// Acquires that fell back to a local-only hold.
    Fallback,
    /// Work that was completed twice, as the protected side reports it.
    Duplicates,
    /// Holds that were fenced.
    Abandoned,
    /// Renewals or releases that were answered with *not owned*.
    NotOwned,
    /// Releases that were not confirmed in the foreground.
    ReleaseFailed,
    /// Acquires that were refused because the store did not answer.
    Unavailable,
}

impl Signal {
    /// All signals, for parsing and messages.
    pub const ALL: [Self; 6] = [
        Self::Fallback,
        Self::Duplicates,
        Self::Abandoned,
        Self::NotOwned,
        Self::ReleaseFailed,
        Self::Unavailable,
    ];

    /// The name in rules.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fallback => "fallback",
            Self::Duplicates => "duplicates",
            Self::Abandoned => "abandoned",
            Self::NotOwned => "not_owned",
            Self::ReleaseFailed => "release_failed",
            Self::Unavailable => "unavailable",
        }
    }
}

/// The effect of an active rule. It only ever makes a class stricter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Action {
    /// `acquire.on_error` becomes `fail-closed`.
    FailClosed,
    /// `renew.on_failure` becomes `fence`.
    Fence,
}

impl Action {
    /// The name in rules.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::FailClosed => "fail-closed",
            Self::Fence => "fence",
        }
    }
}

/// One escalation rule.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Rule {
    /// The signal whose rate is measured.
    pub signal: Signal,
    /// The threshold in events per second; the rate must be above it.
    pub above: f64,
    // As written, so that the rule prints as its author knows it.
    rate: String,
    /// The window: the rate must be above the threshold for so long, and quiet for so long before
    /// the rule ends.
    pub window: Duration,
    /// A second signal that must grow within the window.
    pub rising: Option<Signal>,
    /// What the rule changes while it is active.
    pub action: Action,
}

// The shortest and longest window.
const RULE_WINDOW_BOUNDS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(24 * 60 * 60));

impl FromStr for Rule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // Rules are repeated in events and origins, so their length is bounded.
        if text.len() > 256 {
            return Err("is longer than 256 bytes".into());
        }
        let (condition, action) =
            text.split_once("->").ok_or("has no action; end it with `-> fail-closed` or `-> fence`")?;
        let action = match action.trim() {
            "fail-closed" => Action::FailClosed,
            "fence" => Action::Fence,
            other => {
                return Err(format!("ends with `-> {other}`; allowed are `-> fail-closed` and `-> fence`"));
            }
        };
        let mut parts = condition.split(" and ");
        let main = parts.next().unwrap_or_default();
        let rising = parts.next().map(parse_rising).transpose()?;
        if parts.next().is_some() {
            return Err("has more than one `and`; one is allowed: `and SIGNAL rising`".into());
        }
        let (watched, rest) = main.split_once(" rate ").ok_or(
            "does not say what to watch; begin with `SIGNAL rate > NUMBER/s for DURATION`, e.g. `fallback rate > 0.1/s for 5m`",
        )?;
        let signal = parse_signal(watched)?;
        let rest = rest
            .trim()
            .strip_prefix('>')
            .ok_or("compares with something else than `>`; only `rate > NUMBER/s` is allowed")?;
        let (rate, lasting) = rest
            .split_once(" for ")
            .ok_or("does not say for how long; add `for DURATION` after the rate, e.g. `for 5m`")?;
        let rate: String = rate.split_whitespace().collect();
        let above = parse_rate(&rate)?;
        let lasting = duration::parse(lasting).map_err(|why| format!("has a time that {why}"))?;
        if !(RULE_WINDOW_BOUNDS.0..=RULE_WINDOW_BOUNDS.1).contains(&lasting) {
            return Err(format!("looks back {}; allowed is from 1s to 24h", duration::human(lasting)));
        }
        Ok(Self { signal, above, rate, window: lasting, rising, action })
    }
}

/// Parses `0.1/s`, `6/m` or `10/h` to events per second.
fn parse_rate(rate: &str) -> Result<f64, String> {
    let unclear =
        || format!("has a rate `{rate}`; write a number and a unit, such as `0.1/s`, `6/m` or `10/h`");
    let (number, unit) = rate.split_once('/').ok_or_else(unclear)?;
    let number: f64 = number.parse().map_err(|_| unclear())?;
    let seconds = match unit {
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(unclear()),
    };
    let above = number / seconds;
    // A rate beyond a million per second cannot be counted here; NaN and infinity fail the same
    // test.
    if above > 0.0 && above <= 1e6 {
        Ok(above)
    } else {
        Err(format!("has a rate `{rate}`; it must be above 0 and at most 1000000/s"))
    }
}

/// Parses a condition such as `duplicates rising`.
fn parse_rising(part: &str) -> Result<Signal, String> {
    let name = part
        .trim()
        .strip_suffix("rising")
        .ok_or_else(|| format!("has `and {}`; only `and SIGNAL rising` is allowed", part.trim()))?;
    parse_signal(name)
}

fn parse_signal(name: &str) -> Result<Signal, String> {
    let name = name.trim();
    if let Some(found) = Signal::ALL.into_iter().find(|signal| signal.as_str() == name) {
        return Ok(found);
    }
    let known = Signal::ALL.map(Signal::as_str);
    let hint = nearest(name, known).map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
    Err(format!("watches `{name}`, which is not a signal{hint} (known: {})", known.join(", ")))
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lasting = duration::exact(self.window).replace(' ', "");
        write!(f, "{} rate > {} for {lasting}", self.signal.as_str(), self.rate)?;
        if let Some(rising) = self.rising {
            write!(f, " and {} rising", rising.as_str())?;
        }
        write!(f, " -> {}", self.action.as_str())
    }
}
