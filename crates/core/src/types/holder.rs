//! The holder's name.

use std::fmt;
use std::sync::Arc;

use super::InvalidInput;
use super::invisible::check_visible;

/// The name of a lock's holder as operators read it, by default `host:pid`. It appears in listings,
/// in `Busy` and in the store's value.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Holder(Arc<str>);

impl Holder {
    /// The maximum length in bytes.
    pub const MAX: usize = 128;

    /// Validates a holder's name.
    ///
    /// # Errors
    /// The text is empty, too long, or contains a forbidden character.
    pub fn new(text: &str) -> Result<Self, InvalidInput> {
        let fits = !text.is_empty() && text.len() <= Self::MAX;
        // `|` separates the token's fields; braces and spaces do not survive every store's
        // notation.
        let plain =
            text.chars().all(|ch| !ch.is_whitespace() && !ch.is_control() && !matches!(ch, '|' | '{' | '}'));
        if fits && plain {
            Ok(Self(text.into()))
        } else {
            Err(InvalidInput::new(
                "holder",
                text,
                format!("must be 1 to {} printable bytes without spaces, `|`, `{{` or `}}`", Self::MAX),
            ))
        }
    }

    /// Refuses a holder that looks like another one, or that reverses the text around it. Every acquire checks this.
    ///
    /// # Errors
    /// The holder contains an invisible character; the message names its code point.
    pub fn check_visible(&self) -> Result<(), InvalidInput> {
        check_visible("holder", &self.0)
    }

    /// The default name `host:pid` of this process.
    #[must_use]
    pub fn of_this_process() -> Self {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let clean: String = host
            .chars()
            .map(|ch| if ch.is_ascii_alphanumeric() || matches!(ch, '-' | '.' | '_') { ch } else { '-' })
            // The longest host name on Linux; the pid then always fits into `MAX`.
            .take(64)
            .collect();
        let host = if clean.is_empty() { "localhost".to_owned() } else { clean };
        Self(format!("{host}:{}", std::process::id()).into())
    }

    /// The holder as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.0)
    }
}
