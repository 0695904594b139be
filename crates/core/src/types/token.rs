//! The token: the owner's secret.

use std::fmt;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::invisible::check_visible;
use super::{Holder, InvalidInput};
use crate::policy::check_name;
use crate::rng::{Random, RandomExt};

/// The owner's secret for one acquire: `holder|class|random128`.
///
/// Every acquire makes a new token and none is reused, so a stale handle can never touch a newer
/// lease. The text entitles its reader to renew and release; `Debug` and logs show a
/// [`fingerprint`](Self::fingerprint) only.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Token {
    text: Arc<str>,
    // Byte offsets of the two `|`, so that the parts need no search.
    separators: (usize, usize),
}

impl Token {
    /// Makes a unique token. `class` is the name of a class and therefore contains no `|`.
    #[must_use]
    pub fn fresh(holder: &Holder, class: &str, random: &dyn Random) -> Self {
        debug_assert!(!class.contains('|'));
        let text = format!("{holder}|{class}|{:032x}", random.wide());
        let first = holder.as_str().len();
        Self { text: text.into(), separators: (first, first + 1 + class.len()) }
    }

    /// Parses the text of a token, e.g. from a store.
    ///
    /// # Errors
    /// The text does not have the form of a token. The message does not repeat the text.
    pub fn parse(text: &str) -> Result<Self, InvalidInput> {
        let refuse =
            || InvalidInput::new("token", "(hidden)", "must have the form holder|class|32 hex digits");
        let mut parts = text.split('|');
        let (Some(holder), Some(class), Some(random), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(refuse());
        };
        let hex = random.len() == 32 && random.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        // An arbitrary class could carry escape sequences to the terminal of an operator that lists
        // the locks.
        if Holder::new(holder).is_err() || check_name(class).is_err() || !hex {
            return Err(refuse());
        }
        Ok(Self { text: text.into(), separators: (holder.len(), holder.len() + 1 + class.len()) })
    }

    /// The whole secret. Only stores and files that keep a hold may read it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.text
    }

    /// The holder part of the token.
    #[must_use]
    pub fn holder(&self) -> &str {
        &self.text[..self.separators.0]
    }

    /// The class part of the token.
    #[must_use]
    pub fn class(&self) -> &str {
        &self.text[self.separators.0 + 1..self.separators.1]
    }

    /// Refuses a token whose holder looks like another one; see [`Holder::check_visible`].
    ///
    /// # Errors
    /// The holder contains an invisible character; the message names its code point.
    pub fn check_visible(&self) -> Result<(), InvalidInput> {
        check_visible("holder", self.holder())
    }

    /// The random part: 32 hex digits. It is as secret as the token.
    #[must_use]
    pub fn random(&self) -> &str {
        &self.text[self.separators.1 + 1..]
    }

    /// The first eight hex digits of the token's SHA-256. It identifies one acquire in logs but
    /// does not allow to renew or release.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        fingerprint(&self.text)
    }
}

/// The first eight hex digits of a secret's SHA-256.
#[must_use]
pub fn fingerprint(secret: &str) -> String {
    Sha256::digest(secret.as_bytes()).iter().take(4).map(|byte| format!("{byte:02x}")).collect()
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({}|{}|#{})", self.holder(), self.class(), self.fingerprint())
    }
}
