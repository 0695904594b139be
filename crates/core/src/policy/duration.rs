//! Durations with units, as people write and read them.
//!
//! A bare `90` is refused, because seconds and milliseconds look the same.

use std::time::Duration;

use jiff::SignedDuration;
use jiff::fmt::friendly::{Designator, Spacing, SpanParser, SpanPrinter};

static PARSER: SpanParser = SpanParser::new();
static PRINTER: SpanPrinter =
    SpanPrinter::new().designator(Designator::Compact).spacing(Spacing::BetweenUnits);

/// Parses `10s`, `1m30s`, `1m 30s`, `25ms`.
///
/// # Errors
/// The text has no unit, is negative, or is not a duration; the message shows how to write it.
pub fn parse(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    if text.is_empty() {
        return Err("is empty; write a number and a unit, such as `10s`".into());
    }
    // The parser would report a generic error; a missing unit is the common mistake.
    if text.parse::<f64>().is_ok() {
        return Err(format!("has no unit; write `{text}s` for seconds or `{text}ms` for milliseconds"));
    }
    let signed: SignedDuration = PARSER
        .parse_duration(text)
        .map_err(|_| "is not a duration; write a number and a unit, such as `10s`, `1m30s` or `25ms`")?;
    Duration::try_from(signed).map_err(|_| "is negative; a duration counts forward".into())
}

/// Formats for people: `30s`, `1m 30s`, `25ms`. Rounded to milliseconds from one second on, to
/// microseconds below.
#[must_use]
pub fn human(duration: Duration) -> String {
    let grain: u128 = if duration >= Duration::from_secs(1) { 1_000_000 } else { 1_000 };
    let rounded = (duration.as_nanos() + grain / 2) / grain * grain;
    exact(u64::try_from(rounded).map_or(duration, Duration::from_nanos))
}

/// Formats for files: like [`human`] without rounding, so that [`parse`] returns the same duration.
#[must_use]
pub fn exact(duration: Duration) -> String {
    PRINTER.unsigned_duration_to_string(&duration)
}

/// Formats for sums that a reader can check: one unit only, `620ms` below a second and `59.38s`
/// above.
#[must_use]
pub fn decimal(duration: Duration) -> String {
    let (whole, rest, digits, unit) = if duration < Duration::from_secs(1) {
        (u64::from(duration.subsec_millis()), duration.subsec_nanos() % 1_000_000, 6, "ms")
    } else {
        (duration.as_secs(), duration.subsec_nanos(), 9, "s")
    };
    let fraction = format!("{rest:0digits$}");
    let fraction = fraction.trim_end_matches('0');
    if fraction.is_empty() { format!("{whole}{unit}") } else { format!("{whole}.{fraction}{unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_units_and_refuses_guesses() {
        for (text, millis) in
            [("10s", 10_000), ("1m30s", 90_000), ("1m 30s", 90_000), ("25ms", 25), ("0s", 0)]
        {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for (text, why) in [
            ("90", "no unit; write `90s`"),
            ("1.5", "no unit"),
            ("-3", "no unit"),
            ("-3s", "negative"),
            ("", "empty"),
            ("soon", "not a duration"),
            ("ttl/3", "not a duration"),
            ("NaN", "no unit"),
        ] {
            let message = parse(text).unwrap_err();
            assert!(message.contains(why), "{text}: {message}");
        }
    }

    #[test]
    fn prints_for_people() {
        for (nanos, text) in [
            (0, "0s"),
            (25_000_000, "25ms"),
            (30_000_000_000, "30s"),
            (90_000_000_000, "1m 30s"),
            (900_000_000_000, "15m"),
            (86_400_000_000_000, "24h"),
            (6_666_666_666, "6s 667ms"),
            (1_500_000, "1ms 500µs"),
        ] {
            assert_eq!(human(Duration::from_nanos(nanos)), text);
        }
        assert_eq!(decimal(Duration::from_millis(59_380)), "59.38s");
        assert_eq!(decimal(Duration::from_millis(620)), "620ms");
        assert_eq!(decimal(Duration::from_micros(37_500)), "37.5ms");
        assert_eq!(decimal(Duration::ZERO), "0ms");
    }

    #[test]
    fn exact_reads_back() {
        for nanos in [0, 1, 999, 6_666_666_666, 86_400_000_000_001] {
            let duration = Duration::from_nanos(nanos);
            assert_eq!(parse(&exact(duration)), Ok(duration));
        }
    }
}
