//! Quotes text for a POSIX shell: messages show commands that people copy, and lock names are chosen by others.

/// One word of a shell. A word of harmless characters stays as it is.
///
/// ```
/// use leasehold_core::shell::quote;
/// assert_eq!(quote("job:42"), "job:42");
/// assert_eq!(quote("x;reboot"), "'x;reboot'");
/// ```
#[must_use]
pub fn quote(text: &str) -> String {
    let harmless =
        |ch: char| ch.is_ascii_alphanumeric() || matches!(ch, '-' | '_' | '.' | ',' | ':' | '/' | '@' | '+');
    if !text.is_empty() && text.chars().all(harmless) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// The last argument of a command: a text that begins with `-` must not become an option.
#[must_use]
pub fn quote_argument(text: &str) -> String {
    let dashes = if text.starts_with('-') { "-- " } else { "" };
    format!("{dashes}{}", quote(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_back_what_was_quoted() {
        for text in
            ["job:42", "a'b", "$(reboot)", "`x`;\"y\"\\", "''", "", "~", "a=b", "#x", "-n", "*", "x y", "!!"]
        {
            let read = std::process::Command::new("/bin/sh")
                .args(["-c", &format!("printf %s {}", quote(text))])
                .output()
                .unwrap();
            assert_eq!(String::from_utf8(read.stdout).unwrap(), text);
        }
        assert_eq!(quote("/var/lib/x-1_2.db"), "/var/lib/x-1_2.db");
        assert_eq!(quote_argument("--store=x y"), "-- '--store=x y'");
        assert_eq!(quote_argument("job:1"), "job:1");
    }
}
