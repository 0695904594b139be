//! The wall clock, for people and records: nothing is decided by it.

use leasehold::clock::{BootClock, Clock};

/// Now, as RFC 3339 has it, in UTC and milliseconds.
pub(crate) fn now() -> String {
    let stamp = jiff::Timestamp::try_from(BootClock.wall()).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    format!("{stamp:.3}")
}

#[cfg(test)]
mod tests {
    #[test]
    fn looks_like_a_time() {
        let now = super::now();
        assert!(
            now.len() == 24 && now.ends_with('Z') && now.starts_with("20"),
            "{now}"
        );
    }
}
