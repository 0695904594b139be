//! Talk to people: on standard error, each line with our name before it, so that it is told from the command's own.

use std::io::Write;

/// What happened, why, what to do: at most three lines.
pub(crate) fn say(text: &str) {
    let mut all = String::new();
    for line in text.lines() {
        all.push_str("leasehold: ");
        all.push_str(line);
        all.push('\n');
    }
    // One write, so that lines of several processes do not mix; and nobody to tell if it fails.
    let _ = std::io::stderr().lock().write_all(all.as_bytes());
}

/// An error with what is behind it, in at most three lines. What one of them has said already, its cause does not repeat.
pub(crate) fn told(error: &anyhow::Error) -> String {
    let mut all = String::new();
    for cause in error.chain() {
        let text = cause.to_string();
        if !all.contains(&text) {
            let comma = if all.is_empty() { "" } else { ": " };
            all.push_str(comma);
            all.push_str(&text);
        }
    }
    brief(&all)
}

/// At most three lines. Only a policy file can have more to say, and there is a verb for that.
pub(crate) fn brief(text: &str) -> String {
    let lines: Vec<_> = text.lines().collect();
    match lines.as_slice() {
        [first, second, _, rest @ ..] if !rest.is_empty() => {
            let more = rest.len() + 1;
            format!("{first}\n{second}\n{more} more lines: `leasehold policy check FILE` shows all problems")
        }
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{brief, told};

    #[test]
    fn nothing_is_said_twice() {
        let cause = anyhow::anyhow!("connection refused (nothing was changed)");
        let error = cause
            .context("store x: connection refused (nothing was changed)")
            .context("cannot list");
        assert_eq!(
            told(&error),
            "cannot list: store x: connection refused (nothing was changed)"
        );
        let error = anyhow::anyhow!("refused").context("cannot connect");
        assert_eq!(told(&error), "cannot connect: refused");
    }

    #[test]
    fn no_message_has_more_than_three_lines() {
        assert_eq!(brief("a\nb\nc"), "a\nb\nc");
        let cut = brief("a\nb\nc\nd");
        assert!(cut.starts_with("a\nb\n2 more lines"), "{cut}");
        assert_eq!(cut.lines().count(), 3);
    }
}
