//! The name of a lock.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::InvalidInput;
use super::invisible::check_visible;

/// The name of a lock, e.g. `job:42`: 1 to 512 bytes, printable, no spaces, no control characters,
/// no `{` or `}`.
///
/// The part before the first `:` is the *namespace* (`job`), the only part that metrics show.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

impl Name {
    /// The maximum length in bytes.
    pub const MAX: usize = 512;

    /// Validates a name.
    ///
    /// # Errors
    /// The text is empty, too long, or contains a forbidden character.
    pub fn new(text: &str) -> Result<Self, InvalidInput> {
        let refuse = |why: String| Err(InvalidInput::new("name", text, why));
        if text.is_empty() {
            return refuse("must not be empty".into());
        }
        if text.len() > Self::MAX {
            return refuse(format!("is {} bytes long; at most {} are allowed", text.len(), Self::MAX));
        }
        for ch in text.chars() {
            // Braces would select a Redis Cluster slot; an operator cannot see or type the others.
            if matches!(ch, '{' | '}') || ch.is_whitespace() || ch.is_control() || is_always_refused(ch) {
                return refuse(format!(
                    "must not contain {ch:?}; printable characters except spaces and `{{` `}}` are allowed"
                ));
            }
        }
        Ok(Self(text.into()))
    }

    /// Refuses a name that looks like another one. Every acquire checks this; renewals, releases and listings do not,
    /// so that leases from before the rule can be ended.
    ///
    /// # Errors
    /// The name contains an invisible character; the message names its code point.
    pub fn check_visible(&self) -> Result<(), InvalidInput> {
        check_visible("name", &self.0)
    }

    /// The text of the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The part before the first `:`, or `default` if there is none.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.0
            .split_once(':')
            .map_or("default", |(space, _)| if space.is_empty() { "default" } else { space })
    }
}

// Refused from the first release on, so no lease has them. What `is_invisible` adds is refused for new leases only:
// a lease that exists must stay within reach of renewal, release and break.
fn is_always_refused(ch: char) -> bool {
    matches!(ch, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

impl FromStr for Name {
    type Err = InvalidInput;
    fn from_str(text: &str) -> Result<Self, InvalidInput> {
        Self::new(text)
    }
}

impl TryFrom<&str> for Name {
    type Error = InvalidInput;
    fn try_from(text: &str) -> Result<Self, InvalidInput> {
        Self::new(text)
    }
}

impl TryFrom<String> for Name {
    type Error = InvalidInput;
    fn try_from(text: String) -> Result<Self, InvalidInput> {
        Self::new(&text)
    }
}

impl TryFrom<&String> for Name {
    type Error = InvalidInput;
    fn try_from(text: &String) -> Result<Self, InvalidInput> {
        Self::new(text)
    }
}

impl TryFrom<&Self> for Name {
    type Error = InvalidInput;
    fn try_from(name: &Self) -> Result<Self, InvalidInput> {
        Ok(name.clone())
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.0)
    }
}
