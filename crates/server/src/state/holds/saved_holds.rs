//! The rows from which the next run of the daemon resumes its holds.

use leasehold::Fence;
use rusqlite::{Connection, params};

use super::{HoldKey, Holds};

/// What the next run needs to resume a hold.
#[derive(Debug, Clone)]
pub(crate) struct SavedHold {
    pub(crate) id: String,
    /// The attempt that was granted; the token is derived from it.
    pub(crate) attempt: String,
    pub(crate) owner: String,
    pub(crate) name: String,
    pub(crate) class: String,
    pub(crate) holder: String,
    pub(crate) fence: Fence,
    pub(crate) ttl_ms: Option<u64>,
    pub(crate) heartbeat_ms: u64,
    /// Time of the grant: wall clock, microseconds.
    pub(crate) since: i64,
}

impl SavedHold {
    pub(crate) fn key(&self) -> HoldKey {
        HoldKey::new(&self.owner, &self.id)
    }
}

impl Holds {
    /// Stores a hold. It must be durable before the client learns of its grant. The write is queued
    /// by the call itself.
    pub(super) fn save(&self, row: SavedHold) -> impl Future<Output = Result<(), String>> + Send + use<> {
        self.state_db.write_confirmed(move |db| upsert_hold(db, &row))
    }

    /// Stores a re-acquired lease without waiting for the disk. If the write is lost, only the next
    /// run suffers: it cannot resume the hold.
    pub(super) fn save_later(&self, row: SavedHold) {
        self.state_db.write_later(move |db| {
            if let Err(error) = upsert_hold(db, &row) {
                tracing::error!(%error, name = row.name, "the next life will not know of this hold's new lease");
            }
        });
    }

    /// Deletes the row of an ended hold.
    pub(crate) fn delete_saved(&self, key: &HoldKey) {
        let key = key.clone();
        self.state_db.write_later(move |db| {
            let _ = db.execute("DELETE FROM hold WHERE owner = ?1 AND id = ?2", params![key.owner, key.id]);
        });
    }

    /// Reads the holds of the previous run.
    pub(crate) async fn load_saved(&self) -> Result<Vec<SavedHold>, String> {
        self.state_db
            .read(|db| {
                let mut statement = db.prepare(
                    "SELECT id, owner, name, class, holder, fence, ttl_ms, heartbeat_ms, since, attempt FROM hold",
                )?;
                let rows = statement.query_map([], |row| {
                    let fence = u64::try_from(row.get::<_, i64>(5)?).ok().and_then(Fence::new);
                    Ok(SavedHold {
                        id: row.get(0)?,
                        owner: row.get(1)?,
                        name: row.get(2)?,
                        class: row.get(3)?,
                        holder: row.get(4)?,
                        fence: fence.unwrap_or(Fence::MIN),
                        ttl_ms: row
                            .get::<_, Option<i64>>(6)?
                            .and_then(|ms| u64::try_from(ms).ok()),
                        heartbeat_ms: u64::try_from(row.get::<_, i64>(7)?).unwrap_or(0),
                        since: row.get(8)?,
                        attempt: row.get(9)?,
                    })
                })?;
                rows.collect()
            })
            .await
    }
}

fn upsert_hold(db: &Connection, row: &SavedHold) -> rusqlite::Result<()> {
    db.execute(
        "INSERT OR REPLACE INTO hold (id, owner, name, class, holder, fence, ttl_ms, heartbeat_ms, since, attempt)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
        params![
            row.id,
            row.owner,
            row.name,
            row.class,
            row.holder,
            to_i64(row.fence.get()),
            row.ttl_ms.map(to_i64),
            to_i64(row.heartbeat_ms),
            row.since,
            row.attempt
        ],
    )
    .map(|_| ())
}

fn to_i64(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use leasehold::Name;
    use leasehold::clock::Moment;
    use leasehold::policy::OnFailure;
    use leasehold_core::HeartbeatDeadline;

    use super::super::registry::HoldEntry;
    use super::*;
    use crate::state::state_db::StateDb;

    fn row(attempt: &str, fence: u64) -> SavedHold {
        SavedHold {
            id: "h1".to_owned(),
            attempt: attempt.to_owned(),
            owner: "w1".to_owned(),
            name: "job:1".to_owned(),
            class: "workflow".to_owned(),
            holder: "w1".to_owned(),
            fence: Fence::new(fence).unwrap(),
            ttl_ms: None,
            heartbeat_ms: 500,
            since: 1,
        }
    }

    fn held() -> HoldEntry {
        HoldEntry {
            hold: None,
            name: Name::new("job:1").unwrap(),
            holder: "w1".to_owned(),
            class: "workflow".to_owned(),
            client: HeartbeatDeadline::new(
                Duration::from_millis(500),
                OnFailure::Continue,
                Duration::from_secs(30),
            ),
            release_request: None,
            retaken_row: None,
        }
    }

    /// The keeper owns a hold as soon as it is granted. It can lose and re-acquire the lease before
    /// the granting request has stored the first one, or while it does. The row must then name the
    /// second lease: the next run would find the first one gone.
    #[tokio::test]
    async fn the_newer_lease_stays_in_the_file_in_any_order() {
        for held_up in [true, false] {
            let holds = Holds::new(Arc::new(StateDb::open(None).unwrap()));
            assert!(holds.reserve(&HoldKey::new("w1", "h1"), held(), 1, Moment::ZERO).is_ok());
            let (first, second) = (row("first", 7), row("second", 8));
            if held_up {
                holds.save_retaken(second);
                holds.save_grant(first).await.unwrap();
            } else {
                let saving = holds.save_grant(first);
                holds.save_retaken(second);
                saving.await.unwrap();
            }
            let saved = holds.load_saved().await.unwrap();
            let saved: Vec<_> = saved.iter().map(|row| (row.attempt.as_str(), row.fence.get())).collect();
            assert_eq!(saved, [("second", 8)], "held up: {held_up}");
        }
    }
}
