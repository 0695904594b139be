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
