//! Messages for people, on standard error.
//!
//! Each line begins with `leasehold: `, which separates it from the output of a command under `run`.

use std::io::Write;

use leasehold_core::shell;
use leasehold_core::types::is_invisible;

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

/// Escapes control characters, invisible ones, and those that reverse the text direction.
///
/// Messages and tables repeat text from remote peers. It must not move the cursor or change colours of the user's
/// terminal. The escapes are those of JSON, so JSON text stays the same document.
pub fn escape_control(text: &str) -> String {
    let mut all = String::new();
    for letter in text.chars() {
        match letter {
            '\n' => all.push_str("\\n"),
            '\r' => all.push_str("\\r"),
            '\t' => all.push_str("\\t"),
            '\u{2028}' | '\u{2029}' => escape_json(letter, &mut all),
            _ if letter.is_control() || is_invisible(letter) => escape_json(letter, &mut all),
            _ => all.push(letter),
        }
    }
    all
}

fn escape_json(letter: char, all: &mut String) {
    for unit in letter.encode_utf16(&mut [0; 2]) {
        all.push_str(&format!("\\u{unit:04x}"));
    }
}

/// The command that shows a lock, for people who copy it.
pub(crate) fn show_command(name: &str) -> String {
    format!("leasehold show {}", shell::quote_argument(name))
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
            "leasehold: cannot read \\u001b[2Jx\\u009b1m\\r\\u0007\nleasehold: ü\\u202e\\tz\n"
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
