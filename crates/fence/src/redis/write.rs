//! A write to be done only by a holder that is not stale.

use std::fmt;
use std::time::Duration;

use leasehold_core::Invalid;

use super::key;

/// The most writes in one step: the server does nothing else meanwhile (hazard R16).
const MAX: usize = 64;

/// The longest expiry, a hundred years: greater ones overflow in the server, in the middle of the script.
const LONGEST: Duration = Duration::from_secs(100 * 366 * 24 * 3600);

/// One write of [`RedisFence::apply`](super::RedisFence::apply).
#[derive(Clone)]
#[must_use = "a write does nothing until it is applied"]
pub struct Write<'a> {
    /// The key, as it is.
    pub(super) key: &'a str,
    /// What to set it to; `None` deletes it.
    pub(super) value: Option<Vec<u8>>,
    /// When the server forgets the *data*. The mark stays.
    pub(super) expires: Option<Duration>,
}

impl<'a> Write<'a> {
    /// `SET key value`: replaces whatever is there, of any type, and its expiry.
    pub fn set(key: &'a str, value: impl AsRef<[u8]>) -> Self {
        Self {
            key,
            value: Some(value.as_ref().to_vec()),
            expires: None,
        }
    }

    /// `DEL key`.
    pub fn delete(key: &'a str) -> Self {
        Self {
            key,
            value: None,
            expires: None,
        }
    }

    /// With an expiry (`PX`), 1 ms to 100 years; parts of a millisecond are rounded up.
    pub fn expires(mut self, after: Duration) -> Self {
        self.expires = Some(after);
        self
    }

    /// The expiry as the script takes it.
    pub(super) fn millis(&self) -> String {
        self.expires
            .map(|after| after.as_nanos().div_ceil(1_000_000).to_string())
            .unwrap_or_default()
    }
}

impl fmt::Debug for Write<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The value is the caller's data and has no place in logs.
        f.debug_struct("Write")
            .field("key", &self.key)
            .field("bytes", &self.value.as_ref().map(Vec::len))
            .field("expires", &self.expires)
            .finish()
    }
}

/// Everything the server would refuse is refused here: it has no roll-back, so an error in the middle of the script
/// would leave the first writes done.
pub(super) fn check(writes: &[Write<'_>]) -> Result<(), Invalid> {
    if writes.len() > MAX {
        return Err(Invalid::new(
            "writes",
            writes.len().to_string(),
            format!("at most {MAX} writes are done in one step"),
        ));
    }
    for write in writes {
        key::check(write.key)?;
        match write.expires {
            Some(after) if after.is_zero() || after > LONGEST => {
                return Err(Invalid::new(
                    "expires",
                    format!("{after:?}"),
                    "must be from 1 ms to 100 years",
                ));
            }
            Some(_) if write.value.is_none() => {
                return Err(Invalid::new("expires", write.key, "a deletion does not expire"));
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_server_would_refuse_half_way_is_refused_first() {
        for bad in [
            Write::set("", "v"),
            Write::set("leasehold:fence:1:{k}", "1"),
            Write::set("k", "v").expires(Duration::ZERO),
            Write::set("k", "v").expires(Duration::MAX),
            Write::delete("k").expires(Duration::from_secs(1)),
        ] {
            assert!(check(&[Write::set("fine", "v"), bad.clone()]).is_err(), "{bad:?}");
        }
        assert!(check(&vec![Write::delete("k"); MAX]).is_ok());
        assert!(check(&vec![Write::delete("k"); MAX + 1]).is_err());
    }

    #[test]
    fn a_short_expiry_is_never_rounded_to_none() {
        assert_eq!(
            Write::set("k", "v").expires(Duration::from_nanos(1)).millis(),
            "1"
        );
        assert_eq!(
            Write::set("k", "v").expires(Duration::from_micros(1500)).millis(),
            "2"
        );
        assert_eq!(Write::set("k", "v").millis(), "");
    }

    #[test]
    fn values_are_not_shown() {
        assert!(!format!("{:?}", Write::set("k", "secret")).contains("secret"));
    }
}
