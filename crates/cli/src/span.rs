//! Durations in arguments and settings: a number with a unit, at most a hundred years.

use std::time::Duration;

use leasehold::policy::duration;

/// A hundred years. Sums of a few such values still fit every clock; `Duration::MAX` does not.
pub const MAX_DURATION: Duration = Duration::from_secs(876_000 * 3600);

// No valid duration has more characters. The error repeats the text, which must fit one line.
const MAX_DURATION_CHARS: usize = 40;

/// Reads `10s`, `1m30s`, `25ms`.
pub fn parse(text: &str) -> Result<Duration, String> {
    if text.chars().nth(MAX_DURATION_CHARS).is_some() {
        return Err("is not a duration; write a number and a unit, such as `10s`, `1m30s` or `25ms`".into());
    }
    let span = duration::parse(text)?;
    if span > MAX_DURATION {
        return Err("is too long; 876000h (a hundred years) is the most".into());
    }
    Ok(span)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hundred_years_are_the_maximum() {
        assert_eq!(parse("876000h"), Ok(MAX_DURATION));
        for text in ["876001h", "9223372036854775807s", "999999999999h"] {
            let message = parse(text).unwrap_err();
            assert!(message.contains("876000h"), "{text}: {message}");
        }
    }

    #[test]
    fn an_invalid_duration_is_not_repeated_at_length() {
        let message = parse(&"1".repeat(10_000)).unwrap_err();
        assert!(message.len() < 100, "{message}");
    }
}
