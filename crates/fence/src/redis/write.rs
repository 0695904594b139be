//! A write that only a holder with a current fence may do.

use std::fmt;
use std::time::Duration;

use leasehold_core::InvalidInput;

use super::key;

/// Limit of writes in one step: the server does nothing else meanwhile (hazard R16).
const MAX_WRITES: usize = 64;

/// Limit of an expiry, 100 years: greater values overflow in the server, in
/// the middle of the script.
const MAX_EXPIRY: Duration = Duration::from_secs(100 * 366 * 24 * 3600);

/// One write of [`RedisFence::apply`](super::RedisFence::apply).
#[derive(Clone)]
#[must_use = "a write does nothing until it is applied"]
pub struct Write<'a> {
    /// The key, unchanged.
    pub(super) key: &'a str,
    /// The new value; `None` deletes the key.
    pub(super) value: Option<Vec<u8>>,
    /// When the server deletes the *data*. The mark stays.
    pub(super) expires: Option<Duration>,
}

impl<'a> Write<'a> {
    /// `SET key value`: replaces any value, of any type, and its expiry.
    pub fn set(key: &'a str, value: impl AsRef<[u8]>) -> Self {
        Self { key, value: Some(value.as_ref().to_vec()), expires: None }
    }

    /// `DEL key`: a stale holder cannot delete what its successor has written.
    pub fn delete(key: &'a str) -> Self {
        Self { key, value: None, expires: None }
    }

    /// Sets an expiry (`PX`) of 1 ms to 100 years; parts of a millisecond are rounded up.
    pub fn expires(mut self, after: Duration) -> Self {
        self.expires = Some(after);
        self
    }

    /// The expiry in the script's format; rounded up, because 0 would be an error.
    pub(super) fn expiry_millis(&self) -> String {
        self.expires.map(|after| after.as_nanos().div_ceil(1_000_000).to_string()).unwrap_or_default()
    }
}

impl fmt::Debug for Write<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The value is the caller's data and must not appear in logs.
        f.debug_struct("Write")
            .field("key", &self.key)
            .field("bytes", &self.value.as_ref().map(Vec::len))
            .field("expires", &self.expires)
            .finish()
    }
}

/// Refuses everything that the server would refuse. Redis has no rollback, so an error in the
/// middle of the script would leave the first writes done.
pub(super) fn check_writes(writes: &[Write<'_>]) -> Result<(), InvalidInput> {
    if writes.len() > MAX_WRITES {
        return Err(InvalidInput::new(
            "writes",
            writes.len().to_string(),
            format!("at most {MAX_WRITES} writes are done in one step"),
        ));
    }
    for write in writes {
        key::check_key(write.key)?;
        match write.expires {
            Some(after) if after.is_zero() || after > MAX_EXPIRY => {
                return Err(InvalidInput::new(
                    "expires",
                    format!("{after:?}"),
                    "must be from 1 ms to 100 years",
                ));
            }
            // The script would silently ignore the expiry of a deletion.
            Some(_) if write.value.is_none() => {
                return Err(InvalidInput::new("expires", write.key, "a deletion does not expire"));
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
            assert!(check_writes(&[Write::set("fine", "v"), bad.clone()]).is_err(), "{bad:?}");
        }
        assert!(check_writes(&vec![Write::delete("k"); MAX_WRITES]).is_ok());
        assert!(check_writes(&vec![Write::delete("k"); MAX_WRITES + 1]).is_err());
    }

    #[test]
    fn a_short_expiry_is_never_rounded_to_none() {
        assert_eq!(Write::set("k", "v").expires(Duration::from_nanos(1)).expiry_millis(), "1");
        assert_eq!(Write::set("k", "v").expires(Duration::from_micros(1500)).expiry_millis(), "2");
        assert_eq!(Write::set("k", "v").expiry_millis(), "");
    }

    #[test]
    fn values_are_not_shown() {
        assert!(!format!("{:?}", Write::set("k", "secret")).contains("secret"));
    }
}
