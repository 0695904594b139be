//! Messages for people, on standard error.
//!
//! Each line begins with `leasehold: `, which separates it from the output of a command under `run`.

use std::io::Write;

/// Prints what happened, why, and what to do: at most three lines.
pub(crate) fn print_message(text: &str) {
    // One write, so that lines of several processes do not mix. A failed write cannot be reported.
    let _ = std::io::stderr().lock().write_all(prefix_lines(text).as_bytes());
}

/// The text with `leasehold: ` before each line, without control characters.
pub fn prefix_lines(text: &str) -> String {
    let mut all = String::new();
    for line in text.lines() {
        all.push_str("leasehold: ");
        all.push_str(&escape_control(line));
        all.push('\n');
    }
    all
}

/// Escapes control characters.
///
/// Messages repeat file names and text from remote peers. Those must not move the cursor or change
/// colours of the user's terminal.
pub fn escape_control(text: &str) -> String {
    let mut all = String::new();
    for letter in text.chars() {
        // Also invisible characters and those that reverse the text direction.
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

/// An error with its causes, in at most three lines. A cause whose text was already printed is left out.
pub fn error_text(error: &anyhow::Error) -> String {
    let mut all = String::new();
    for cause in error.chain() {
        let text = cause.to_string();
        if !all.contains(&text) {
            let comma = if all.is_empty() { "" } else { ": " };
            all.push_str(comma);
            all.push_str(&text);
        }
    }
    limit_lines(&all)
}

// Only policy files have longer messages, and `policy check` prints those in full.
pub(crate) fn limit_lines(text: &str) -> String {
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
    use super::{error_text, limit_lines, prefix_lines};

    #[test]
    fn no_message_moves_the_cursor() {
        assert_eq!(
            prefix_lines("cannot read \u{1b}[2Jx\u{9b}1m\r\u{7}\nü\u{202e}\tz"),
            "leasehold: cannot read \\u{1b}[2Jx\\u{9b}1m\\r\\u{7}\nleasehold: ü\\u{202e}\\tz\n"
        );
    }

    #[test]
    fn no_cause_is_printed_twice() {
        let cause = anyhow::anyhow!("connection refused (nothing was changed)");
        let error = cause.context("store x: connection refused (nothing was changed)").context("cannot list");
        assert_eq!(error_text(&error), "cannot list: store x: connection refused (nothing was changed)");
        let error = anyhow::anyhow!("refused").context("cannot connect");
        assert_eq!(error_text(&error), "cannot connect: refused");
    }

    #[test]
    fn no_message_has_more_than_three_lines() {
        assert_eq!(limit_lines("a\nb\nc"), "a\nb\nc");
        let cut = limit_lines("a\nb\nc\nd");
        assert!(cut.starts_with("a\nb\n2 more lines"), "{cut}");
        assert_eq!(cut.lines().count(), 3);
    }
}
