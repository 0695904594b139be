//! Fences: numbers that only grow, from a bounded number of counters.
//!
//! A counter serves all names that hash to its slot, so a file that has seen millions of names keeps at most
//! [`SLOTS`] of them (trap 33). The next fence is above the last one, not below the wall clock in
//! microseconds and above the asker's floor; so it goes on growing even if the file is lost, as long as the
//! clock does not go back.

use leasehold_core::store::{Cause, Failure};
use leasehold_core::{Fence, Name};

use crate::error::Halt;
use crate::step::Step;

/// How many counters there are at most.
const SLOTS: u64 = 1024;

/// Issues the next fence of a name, above `floor`.
pub(crate) fn next(step: &Step<'_>, name: &Name, floor: u64) -> Result<Fence, Halt> {
    let at_least = step.wall_micros().max(floor.saturating_add(1));
    let at_least = Fence::new(at_least.max(1)).ok_or_else(exhausted)?;
    let number: i64 = step
        .prepare_cached(
            "INSERT INTO fences (slot, last) VALUES (?1, ?2)
             ON CONFLICT DO UPDATE SET last = max(last + 1, excluded.last) RETURNING last",
        )?
        .query_row((slot(name.as_str()), to_column(at_least)), |row| row.get(0))?;
    // A refusal undoes the whole step, and with it what was just written.
    let fence = from_column(number)?;
    if fence.get() > step.wall_micros() {
        // The clock alone would not bring the counter back to here if a power cut took this step away.
        step.require_disk();
    }
    Ok(fence)
}

/// A fence as the database keeps it.
pub(crate) fn to_column(fence: Fence) -> i64 {
    i64::try_from(fence.get()).unwrap_or(i64::MAX)
}

/// A fence that the database has kept.
pub(crate) fn from_column(number: i64) -> Result<Fence, Halt> {
    u64::try_from(number)
        .ok()
        .and_then(Fence::new)
        .ok_or_else(|| exhausted().into())
}

fn exhausted() -> Failure {
    Failure::not_done(
        Cause::Corrupt,
        format!(
            "a fence counter is outside 1 to {}: the host's clock is far in the future, a client brought a senseless \
             floor, or the file was edited; set the clock right and start with a new file",
            Fence::MAX
        ),
    )
}

/// FNV-1a. It is part of the file's format: a name must find its counter after every update of this program.
fn slot(name: &str) -> i64 {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    i64::try_from(hash % SLOTS).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use leasehold_core::clock::Moment;
    use rusqlite::Connection;

    use super::*;

    #[test]
    fn a_fence_ahead_of_the_clock_must_reach_the_disk() {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch("CREATE TABLE fences (slot INTEGER PRIMARY KEY, last INTEGER NOT NULL) STRICT")
            .unwrap();
        let name = Name::new("job").unwrap();
        let take = |wall_us: u64, floor: u64| {
            let wall = SystemTime::UNIX_EPOCH + Duration::from_micros(wall_us);
            let step = Step::new(&db, Moment::ZERO, wall);
            let fence = next(&step, &name, floor).unwrap().get();
            (fence, step.must_reach_disk())
        };
        assert_eq!(take(1000, 0), (1000, false));
        assert_eq!(take(2000, 500), (2000, false));
        // Twice in a microsecond; a clock set back; a client that has seen more.
        assert_eq!(take(2000, 0), (2001, true));
        assert_eq!(take(10, 0), (2002, true));
        assert_eq!(take(3000, 9000), (9001, true));
        // The clock has caught up.
        assert_eq!(take(10_000, 0), (10_000, false));
    }

    #[test]
    fn slots_never_move() {
        // FNV-1a of "" and "a" are published numbers; the third pins what files in the field rely on.
        assert_eq!(slot(""), 0x325);
        assert_eq!(slot("a"), 0x8c);
        assert_eq!(slot("job:42"), slot("job:42"));
    }

    #[test]
    fn slots_are_bounded_and_used() {
        let used: std::collections::HashSet<_> = (0..20_000).map(|n| slot(&format!("job:{n}"))).collect();
        assert!(used.iter().all(|slot| (0..1024).contains(slot)));
        assert!(used.len() > 1000, "{}", used.len());
    }
}
