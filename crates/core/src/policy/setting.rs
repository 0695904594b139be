//! One setting: the value of a field as stated, parsed but not yet resolved against other fields.

use std::fmt;
use std::time::Duration;

use super::duration;
use super::field::{Field, Shape, nearest};
use super::rule::Rule;

/// A keyword value of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keyword {
    Any,
    Durable,
    Consensus,
    Enforce,
    Shadow,
    FailClosed,
    FailOpen,
    Fence,
    Continue,
    Finished,
    Expired,
}

impl Keyword {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::Durable => "durable",
            Self::Consensus => "consensus",
            Self::Enforce => "enforce",
            Self::Shadow => "shadow",
            Self::FailClosed => "fail-closed",
            Self::FailOpen => "fail-open",
            Self::Fence => "fence",
            Self::Continue => "continue",
            Self::Finished => "finished",
            Self::Expired => "expired",
        }
    }
}

/// A duration, or a formula over the class's own `ttl` or `poll`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DurationExpr {
    Fixed(Duration),
    /// A third of the TTL
    TtlOver(u32),
    /// `2*poll`, or `poll` for one.
    PollTimes(u32),
    Never,
    // The default rule of the field.
    Auto,
}

/// The parsed value of a field.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Setting {
    Span(DurationExpr),
    Count(u32),
    Word(Keyword),
    Rules(Vec<Rule>),
}

// TOML has numbers and lists; overrides are text only.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum RawValue<'a> {
    Text(&'a str),
    Integer(&'a str),
    List(Vec<&'a str>),
    // Another TOML type, by its name.
    Other(&'static str),
}

impl RawValue<'_> {
    /// The given value, for messages.
    pub(crate) fn given(&self) -> String {
        match self {
            Self::Text(text) | Self::Integer(text) => (*text).to_owned(),
            Self::List(items) => items.join(", "),
            Self::Other(kind) => format!("a {kind}"),
        }
    }
}

impl Setting {
    /// Parses a value from a file.
    pub(crate) fn read(field: Field, raw: &RawValue<'_>) -> Result<Self, String> {
        match (field.shape(), raw) {
            (Shape::Span { .. }, RawValue::Text(text)) => parse_duration_expr(field, text).map(Self::Span),
            (Shape::Span { .. }, RawValue::Integer(number)) => Err(format!(
                "has no unit; write \"{number}s\" for seconds or \"{number}ms\" for milliseconds (allowed: {})",
                field.allowed()
            )),
            (Shape::Count { min, max }, RawValue::Integer(number)) => number
                .parse::<u32>()
                .ok()
                .filter(|count| (min..=max).contains(count))
                .map(Self::Count)
                .ok_or_else(|| format!("is not allowed: must be {}", field.allowed())),
            (Shape::Count { .. }, RawValue::Text(_)) => {
                Err(format!("is text: must be {}, without quotes", field.allowed()))
            }
            (Shape::Word(words), RawValue::Text(text)) => parse_keyword(words, text).map(Self::Word),
            (Shape::Rules, RawValue::List(items)) => parse_rules(items.iter().copied()).map(Self::Rules),
            (_, raw) => {
                let kind = match raw {
                    RawValue::Text(_) => "text",
                    RawValue::Integer(_) => "a number",
                    RawValue::List(_) => "a list of texts",
                    RawValue::Other(kind) => kind,
                };
                Err(format!("is {kind}: must be {}", field.allowed()))
            }
        }
    }

    /// Parses a value from an override or a request, where all values are text. Rules are separated
    /// by `;`, and `none` means no rule.
    pub(crate) fn read_text(field: Field, text: &str) -> Result<Self, String> {
        let text = text.trim();
        match field.shape() {
            Shape::Count { .. } => Self::read(field, &RawValue::Integer(text)),
            Shape::Rules if text == "none" => Ok(Self::Rules(Vec::new())),
            Shape::Rules => parse_rules(text.split(';')).map(Self::Rules),
            Shape::Span { .. } | Shape::Word(_) => Self::read(field, &RawValue::Text(text)),
        }
    }
}

fn parse_rules<'a>(items: impl Iterator<Item = &'a str>) -> Result<Vec<Rule>, String> {
    let rules = items
        .map(|item| item.trim().parse().map_err(|why| format!("rule `{}` {why}", truncate_rule(item))))
        .collect::<Result<Vec<Rule>, String>>()?;
    // Each rule costs memory and time for every counted event.
    if rules.len() > 16 {
        return Err(format!("has {} rules; at most 16 are allowed", rules.len()));
    }
    Ok(rules)
}

fn truncate_rule(text: &str) -> String {
    text.trim().chars().take(80).collect()
}

fn parse_keyword(words: &'static [Keyword], text: &str) -> Result<Keyword, String> {
    if let Some(word) = words.iter().find(|word| word.as_str() == text) {
        return Ok(*word);
    }
    let known: Vec<_> = words.iter().map(|word| word.as_str()).collect();
    let hint = nearest(text, known.iter().copied())
        .map_or_else(String::new, |near| format!("did you mean {near:?}? "));
    let known: Vec<_> = known.iter().map(|word| format!("{word:?}")).collect();
    Err(format!("is not known here: {hint}allowed is {}", known.join(" or ")))
}

fn parse_duration_expr(field: Field, text: &str) -> Result<DurationExpr, String> {
    let Shape::Span { min, max, ttl_over, poll_times, never, auto } = field.shape() else {
        return Err(format!("must be {}", field.allowed()));
    };
    // `2 * poll` and `ttl / 3` are accepted with spaces.
    let squeezed: String = text.split_whitespace().collect();
    let factor = |number: &str| number.parse::<u32>().ok().filter(|n| (1..=1000).contains(n));
    if let Some(number) = squeezed.strip_prefix("ttl/") {
        return match factor(number) {
            Some(over) if ttl_over => Ok(DurationExpr::TtlOver(over)),
            _ => Err(format!("is not allowed here: must be {}", field.allowed())),
        };
    }
    if let Some(number) = squeezed.strip_suffix("poll") {
        let times = if number.is_empty() { Some(1) } else { number.strip_suffix('*').and_then(factor) };
        return match times {
            Some(times) if poll_times => Ok(DurationExpr::PollTimes(times)),
            _ => Err(format!("is not allowed here: must be {}", field.allowed())),
        };
    }
    match squeezed.as_str() {
        "never" if never => return Ok(DurationExpr::Never),
        "auto" if auto => return Ok(DurationExpr::Auto),
        _ => {}
    }
    let fixed = duration::parse(text).map_err(|why| format!("{why} (allowed: {})", field.allowed()))?;
    if (min..=max).contains(&fixed) {
        Ok(DurationExpr::Fixed(fixed))
    } else {
        let why = if fixed.is_zero() { "is zero" } else { "is out of bounds" };
        Err(format!("{why}: must be {}", field.allowed()))
    }
}

impl fmt::Display for DurationExpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(fixed) => f.write_str(&duration::exact(*fixed)),
            Self::TtlOver(over) => write!(f, "ttl/{over}"),
            Self::PollTimes(1) => f.write_str("poll"),
            Self::PollTimes(times) => write!(f, "{times}*poll"),
            Self::Never => f.write_str("never"),
            Self::Auto => f.write_str("auto"),
        }
    }
}

impl fmt::Display for Setting {
    // Must round-trip through `Setting::read_text`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Span(span) => span.fmt(f),
            Self::Count(count) => count.fmt(f),
            Self::Word(word) => f.write_str(word.as_str()),
            Self::Rules(rules) if rules.is_empty() => f.write_str("none"),
            Self::Rules(rules) => {
                let rules: Vec<_> = rules.iter().map(Rule::to_string).collect();
                f.write_str(&rules.join("; "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_every_form_where_it_belongs() {
        for (field, text) in [
            (Field::Ttl, "1m"),
            (Field::Ttl, "2*poll"),
            (Field::RenewEvery, "ttl/3"),
            (Field::RenewEvery, "never"),
            (Field::RenewTimeout, "ttl/6"),
            (Field::AcquireRetryAfter, "poll"),
            (Field::Drift, "auto"),
            (Field::MaxHold, "never"),
            (Field::StopGrace, "0s"),
            (Field::RenewMaxFailures, "3"),
            (Field::Escalate, "none"),
            (Field::Escalate, "abandoned rate > 1/m for 5m -> fence; unavailable rate > 1/s for 1m -> fence"),
            (Field::AcquireOnError, "fail-open"),
        ] {
            assert_eq!(Setting::read_text(field, text).unwrap().to_string(), text);
        }
        assert_eq!(
            Setting::read_text(Field::Ttl, " 2 * poll "),
            Ok(Setting::Span(DurationExpr::PollTimes(2)))
        );
    }

    #[test]
    fn refuses_with_what_is_allowed() {
        for (field, text, why) in [
            (Field::Ttl, "60", "has no unit"),
            (Field::Ttl, "0s", "is zero: must be a duration with a unit from 100ms to 24h"),
            (Field::Ttl, "25h", "out of bounds"),
            (Field::Ttl, "-1s", "negative"),
            (Field::Ttl, "ttl/3", "not allowed here"),
            (Field::Ttl, "0*poll", "not allowed here"),
            (Field::RenewEvery, "ttl/0", "\"never\""),
            (Field::AcquireWait, "never", "not a duration"),
            (Field::AcquireWait, "-1s", "negative"),
            (Field::RenewMaxFailures, "0", "whole number from 1 to 1000"),
            (Field::RenewMaxFailures, "-1", "whole number from 1"),
            (Field::AcquireOnError, "fail-close", "did you mean \"fail-closed\"?"),
            (Field::Mode, "dry", "\"enforce\" or \"shadow\""),
            (Field::Escalate, "fallback", "rule `fallback` has no action"),
        ] {
            let message = Setting::read_text(field, text).unwrap_err();
            assert!(message.contains(why), "{text}: {message}");
        }
        let message = Setting::read(Field::Ttl, &RawValue::Integer("60")).unwrap_err();
        assert!(message.contains("write \"60s\""), "{message}");
        let message = Setting::read(Field::RenewMaxFailures, &RawValue::Text("3")).unwrap_err();
        assert!(message.contains("without quotes"), "{message}");
        let message = Setting::read(Field::Mode, &RawValue::Other("boolean")).unwrap_err();
        assert!(message.contains("is boolean: must be"), "{message}");
    }
}
