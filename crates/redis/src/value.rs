//! The value of a lock's key: `holder|class|random|fence` if Leasehold wrote it, anything if not.

use std::time::Duration;

use leasehold_core::types::{Fence, Token, fingerprint};

/// The parts of a key's value that callers may see.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LockValue {
    pub(crate) holder: String,
    pub(crate) class: Option<String>,
    pub(crate) fence: Option<Fence>,
}

impl LockValue {
    /// Parses a value. A foreign value may be a secret, so only its fingerprint is shown.
    pub(crate) fn parse(value: &[u8]) -> Self {
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

    /// For a key that is not a string.
    pub(crate) fn wrong_type() -> Self {
        Self::foreign("a key of another type")
    }

    fn foreign(text: &str) -> Self {
        Self { holder: format!("foreign#{}", fingerprint(text)), class: None, fence: None }
    }
}

/// Converts a `PTTL` reply; `None` if the key never expires.
pub(crate) fn pttl_to_remaining(pttl: i64) -> Option<Duration> {
    u64::try_from(pttl).ok().map(Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_value_shows_its_holder_and_foreign_value_is_hidden() {
        let ours = LockValue::parse(b"web-1:7|approval|0123456789abcdef0123456789abcdef|1794774683928886");
        assert_eq!(ours.holder, "web-1:7");
        assert_eq!(ours.class.as_deref(), Some("approval"));
        assert_eq!(ours.fence, Fence::new(1_794_774_683_928_886));
        for foreign in [&b"secret"[..], b"", b"a|b|c|1", b"\xff\xfe", b"h|c|0123456789abcdef0123456789abcdef"]
        {
            let seen = LockValue::parse(foreign);
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
            let seen = LockValue::parse(format!("h|c|0123456789abcdef0123456789abcdef|{text}").as_bytes());
            assert_eq!(seen.fence.map(|fence| fence.to_string()), fits.then(|| text.to_owned()));
        }
    }

    #[test]
    fn no_expiry_is_none() {
        assert_eq!(pttl_to_remaining(-1), None);
        assert_eq!(pttl_to_remaining(0), Some(Duration::ZERO));
        assert_eq!(pttl_to_remaining(1500), Some(Duration::from_millis(1500)));
    }
}
