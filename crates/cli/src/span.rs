//! Durations as they are typed: with a unit, and not longer than anybody can mean.

use std::time::Duration;

use leasehold::policy::duration;

/// A hundred years. A few such times can be added up and set on any clock; what fits a duration as such cannot.
pub(crate) const LONGEST: Duration = Duration::from_secs(876_000 * 3600);

/// More letters than any duration has. What is wrong is told with what was typed, which should fit a line.
const LETTERS: usize = 40;

/// Reads `10s`, `1m30s`, `25ms`.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    if text.chars().nth(LETTERS).is_some() {
        return Err("is not a duration; write a number and a unit, such as `10s`, `1m30s` or `25ms`".into());
    }
    let span = duration::parse(text)?;
    if span > LONGEST {
        return Err("is too long; 876000h (a hundred years) is the most".into());
    }
    Ok(span)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hundred_years_are_the_most() {
        assert_eq!(parse("876000h"), Ok(LONGEST));
        for text in ["876001h", "9223372036854775807s", "999999999999h"] {
            let said = parse(text).unwrap_err();
            assert!(said.contains("876000h"), "{text}: {said}");
        }
    }

    #[test]
    fn what_is_not_a_duration_is_not_repeated_at_length() {
        let said = parse(&"1".repeat(10_000)).unwrap_err();
        assert!(said.len() < 100, "{said}");
    }
}
