//! Wall-clock timestamps, for display and records only: no decision depends on them.

use leasehold::clock::{BootClock, Clock};

/// The current time as RFC 3339 in UTC, with milliseconds.
pub(crate) fn now() -> String {
    let stamp = jiff::Timestamp::try_from(BootClock.wall()).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    format!("{stamp:.3}")
}

#[cfg(test)]
mod tests {
    #[test]
    fn now_is_an_rfc3339_timestamp() {
        let now = super::now();
        assert!(now.len() == 24 && now.ends_with('Z') && now.starts_with("20"), "{now}");
    }
}
