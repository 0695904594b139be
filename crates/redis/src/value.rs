//! What stands in a lock's key: `holder|class|random|fence` if it is ours, anything at all if it is not.

use std::time::Duration;

use leasehold_core::word::{Fence, Token, fingerprint};

/// A key's value, as far as people may see it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) holder: String,
    pub(crate) class: Option<String>,
    pub(crate) fence: Option<Fence>,
}

impl Seen {
    /// Reads a value. A foreign one may be somebody's secret: it is shown as a fingerprint only.
    pub(crate) fn read(value: &[u8]) -> Self {
        let text = String::from_utf8_lossy(value);
        let ours = text.rsplit_once('|').and_then(|(token, fence)| {
            let (token, fence) = (Token::parse(token).ok()?, fence.parse().ok()?);
            Some(Self {
                holder: token.holder().to_owned(),
                class: Some(token.class().to_owned()),
                fence: Some(fence),
            })
        });
        ours.unwrap_or_else(|| Self::foreign(&text))
    }

    /// A key that is not even a string.
    pub(crate) fn of_another_type() -> Self {
        Self::foreign("a key of another type")
    }

    fn foreign(text: &str) -> Self {
        Self {
            holder: format!("foreign#{}", fingerprint(text)),
            class: None,
            fence: None,
        }
    }
}

/// What `PTTL` says: `None` if the key never expires.
pub(crate) fn remaining(pttl: i64) -> Option<Duration> {
    u64::try_from(pttl).ok().map(Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ours_shows_who_and_foreign_shows_nothing() {
        let ours = Seen::read(b"web-1:7|approval|0123456789abcdef0123456789abcdef|1794774683928886");
        assert_eq!(ours.holder, "web-1:7");
        assert_eq!(ours.class.as_deref(), Some("approval"));
        assert_eq!(ours.fence, Fence::new(1_794_774_683_928_886));
        for foreign in [
            &b"secret"[..],
            b"",
            b"a|b|c|1",
            b"\xff\xfe",
            b"h|c|0123456789abcdef0123456789abcdef",
        ] {
            let seen = Seen::read(foreign);
            assert!(seen.holder.starts_with("foreign#") && seen.fence.is_none());
            assert!(!seen.holder.contains("secret"));
        }
    }

    #[test]
    fn r19_fences_keep_every_digit() {
        for (text, fits) in [
            ("9007199254740991", true),
            ("9007199254740992", false),
            ("9223372036854775807", false),
            ("1.79e+15", false),
        ] {
            let seen = Seen::read(format!("h|c|0123456789abcdef0123456789abcdef|{text}").as_bytes());
            assert_eq!(
                seen.fence.map(|fence| fence.to_string()),
                fits.then(|| text.to_owned())
            );
        }
    }

    #[test]
    fn no_expiry_is_none() {
        assert_eq!(remaining(-1), None);
        assert_eq!(remaining(0), Some(Duration::ZERO));
        assert_eq!(remaining(1500), Some(Duration::from_millis(1500)));
    }
}
