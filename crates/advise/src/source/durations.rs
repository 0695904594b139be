use leasehold_core::policy::duration;

use super::{Unreadable, unreadable};
use crate::evidence::Evidence;
use crate::sample::Sample;

/// A file of held durations, one a line, with a unit: `18s`, `250ms`. Empty lines and `#` comments are skipped. A word before
/// the duration says what it is: `held` (as without), `store` (an answer's latency) or `stall` (a pause).
///
/// # Errors
/// The first line that is no duration.
pub fn durations(text: &str) -> Result<Evidence, Unreadable> {
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
            duration::parse(rest).map_err(|why| unreadable(at, format!("`{}` {why}", rest.trim())))?;
        match kind {
            "held" => held.push(duration),
            "store" => store.push(duration),
            "stall" => stalls.push(duration),
            other => {
                return Err(unreadable(
                    at,
                    format!("`{other}` is not known; allowed: held, store, stall"),
                ));
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
            durations("# measured on Monday\n18s\n\nheld 1m 30s\nstore 3ms # slow\nstall 700ms\n").unwrap();
        let counts = (
            evidence.held.count(),
            evidence.store.count(),
            evidence.stalls.count(),
        );
        assert_eq!(counts, (2, 1, 1));
        let said = durations("18s\n90\n").unwrap_err().to_string();
        assert!(said.starts_with("line 2: `90` has no unit"), "{said}");
        let said = durations("pause 3s").unwrap_err().to_string();
        assert!(said.contains("allowed: held, store, stall"), "{said}");
    }
}
