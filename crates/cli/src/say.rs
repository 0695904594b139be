//! Talk to people: on standard error, each line with our name before it, so that it is told from the command's own.

use std::io::Write;

/// What happened, why, what to do: at most three lines.
pub(crate) fn say(text: &str) {
    // One write, so that lines of several processes do not mix; and nobody to tell if it fails.
    let _ = std::io::stderr().lock().write_all(lined(text).as_bytes());
}

/// The lines as they are read.
pub(crate) fn lined(text: &str) -> String {
    let mut all = String::new();
    for line in text.lines() {
        all.push_str("leasehold: ");
        all.push_str(&plain(line));
        all.push('\n');
    }
    all
}

/// What a terminal would act on instead of showing it, written out. Names of files, and words of whoever is at the other end of
/// a connection, are repeated in messages, and must not move the cursor or colour what follows.
pub(crate) fn plain(text: &str) -> String {
    let mut all = String::new();
    for letter in text.chars() {
        // Also what turns the direction of writing round, or has no width.
        let hidden = matches!(letter, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}');
        if hidden || letter.is_control() {
            all.extend(letter.escape_default());
        } else {
            all.push(letter);
        }
    }
    all
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
    use super::{brief, lined, told};

    #[test]
    fn nothing_that_is_said_moves_the_cursor() {
        assert_eq!(
            lined("cannot read \u{1b}[2Jx\u{9b}1m\r\u{7}\nü\u{202e}\tz"),
            "leasehold: cannot read \\u{1b}[2Jx\\u{9b}1m\\r\\u{7}\nleasehold: ü\\u{202e}\\tz\n"
        );
    }

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
