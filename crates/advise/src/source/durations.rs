use leasehold_core::policy::duration;

use super::{ParseError, parse_error};
use crate::evidence::Evidence;
use crate::sample::Sample;

/// Parses a file of held durations, one per line, with a unit: `18s`, `250ms`. Empty lines and `#`
/// comments are skipped. A word before the duration gives its kind: `held` (the default), `store`
/// (response time) or `stall` (a pause).
///
/// # Errors
/// The first line that is not a duration.
pub fn parse_durations(text: &str) -> Result<Evidence, ParseError> {
    let (mut held, mut store, mut stalls) = (Vec::new(), Vec::new(), Vec::new());
    for (at, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let (kind, rest) = match line.split_once(char::is_whitespace) {
            Some((word, rest)) if word.bytes().all(|byte| byte.is_ascii_lowercase()) => (word, rest),
            _ => ("held", line),
        };
        let duration =
            duration::parse(rest).map_err(|why| parse_error(at, format!("`{}` {why}", rest.trim())))?;
        match kind {
            "held" => held.push(duration),
            "store" => store.push(duration),
            "stall" => stalls.push(duration),
            other => {
                return Err(parse_error(at, format!("`{other}` is not known; allowed: held, store, stall")));
            }
        }
    }
    Ok(Evidence {
        held: Sample::of(held),
        store: Sample::of(store),
        stalls: Sample::of(stalls),
        ..Evidence::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_kinds_comments_and_refuses_guesses() {
        let evidence =
            parse_durations("# measured on Monday\n18s\n\nheld 1m 30s\nstore 3ms # slow\nstall 700ms\n")
                .unwrap();
        let counts = (evidence.held.count(), evidence.store.count(), evidence.stalls.count());
        assert_eq!(counts, (2, 1, 1));
        let message = parse_durations("18s\n90\n").unwrap_err().to_string();
        assert!(message.starts_with("line 2: `90` has no unit"), "{message}");
        let message = parse_durations("pause 3s").unwrap_err().to_string();
        assert!(message.contains("allowed: held, store, stall"), "{message}");
    }
}
