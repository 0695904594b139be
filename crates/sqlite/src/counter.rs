//! Fences: numbers that only grow, from a bounded number of counters.
//!
//! A counter serves all names that hash to its slot. A file that has seen millions of names
//! therefore keeps at most [`COUNTER_SLOTS`] rows. The next fence is above the last one, above the
//! client's floor, and not below the wall clock in microseconds. So fences keep growing even if the
//! file is lost, as long as the wall clock does not go back.

use leasehold_core::store::{StoreError, StoreErrorKind};
use leasehold_core::{Fence, Name};

use crate::error::StepError;
use crate::step::Step;

/// Number of counters. Part of the file format: changing it would send names to other counters.
const COUNTER_SLOTS: u64 = 1024;

/// Issues the next fence of a name, above `floor`.
pub(crate) fn next_fence(step: &Step<'_>, name: &Name, floor: u64) -> Result<Fence, StepError> {
    let at_least = step.wall_micros().max(floor.saturating_add(1));
    let at_least = Fence::new(at_least.max(1)).ok_or_else(out_of_range_error)?;
    let number: i64 = step
        .prepare_cached(
            "INSERT INTO fences (slot, last) VALUES (?1, ?2)
             ON CONFLICT DO UPDATE SET last = max(last + 1, excluded.last) RETURNING last",
        )?
        .query_row((slot_of_name(name.as_str()), fence_to_column(at_least)), |row| row.get(0))?;
    // An error here rolls the step back, including the counter update above.
    let fence = fence_from_column(number)?;
    if fence.get() > step.wall_micros() {
        // If a power cut loses this commit, the wall clock alone would issue a
        // lower fence next time.
        step.require_sync();
    }
    Ok(fence)
}

/// Converts a fence to its column value.
pub(crate) fn fence_to_column(fence: Fence) -> i64 {
    i64::try_from(fence.get()).unwrap_or(i64::MAX)
}

/// Converts a column value to a fence; refuses values outside the valid range.
pub(crate) fn fence_from_column(number: i64) -> Result<Fence, StepError> {
    u64::try_from(number).ok().and_then(Fence::new).ok_or_else(|| out_of_range_error().into())
}

fn out_of_range_error() -> StoreError {
    StoreError::not_done(
        StoreErrorKind::Corrupt,
        format!(
            "a fence counter is outside 1 to {}: the host's clock is far in the future, a client brought a senseless \
             floor, or the file was edited; set the clock right and start with a new file",
            Fence::MAX
        ),
    )
}

/// FNV-1a. Part of the file format: a name must keep its counter across program versions.
fn slot_of_name(name: &str) -> i64 {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    i64::try_from(hash % COUNTER_SLOTS).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use leasehold_core::clock::Moment;
    use rusqlite::Connection;

    use super::*;

    #[test]
    fn fence_ahead_of_the_clock_requires_a_sync() {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch("CREATE TABLE fences (slot INTEGER PRIMARY KEY, last INTEGER NOT NULL) STRICT")
            .unwrap();
        let name = Name::new("job").unwrap();
        let take = |wall_us: u64, floor: u64| {
            let wall = SystemTime::UNIX_EPOCH + Duration::from_micros(wall_us);
            let step = Step::new(&db, Moment::ZERO, wall);
            let fence = next_fence(&step, &name, floor).unwrap().get();
            (fence, step.is_sync_required())
        };
        assert_eq!(take(1000, 0), (1000, false));
        assert_eq!(take(2000, 500), (2000, false));
        // Two grants in one microsecond; a wall clock set back; a client with a higher floor.
        assert_eq!(take(2000, 0), (2001, true));
        assert_eq!(take(10, 0), (2002, true));
        assert_eq!(take(3000, 9000), (9001, true));
        // The wall clock has caught up with the counter.
        assert_eq!(take(10_000, 0), (10_000, false));
    }

    #[test]
    fn slot_of_a_name_never_changes() {
        // FNV-1a of "" and "a" are published test vectors.
        assert_eq!(slot_of_name(""), 0x325);
        assert_eq!(slot_of_name("a"), 0x8c);
        assert_eq!(slot_of_name("job:42"), slot_of_name("job:42"));
    }

    #[test]
    fn slots_are_bounded_and_used() {
        let used: std::collections::HashSet<_> =
            (0..20_000).map(|n| slot_of_name(&format!("job:{n}"))).collect();
        assert!(used.iter().all(|slot| (0..1024).contains(slot)));
        assert!(used.len() > 1000, "{}", used.len());
    }
}
