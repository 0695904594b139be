//! What of a hold is in the daemon's file, so that its next life can take it up.

use leasehold::Fence;
use rusqlite::{Connection, params};

use super::Holds;

/// What must be known to take a hold up again.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) id: String,
    /// Which request for this id was granted; a secret is made from it.
    pub(crate) attempt: String,
    pub(crate) owner: String,
    pub(crate) name: String,
    pub(crate) class: String,
    pub(crate) holder: String,
    pub(crate) fence: Fence,
    pub(crate) ttl_ms: Option<u64>,
    pub(crate) heartbeat_ms: u64,
    /// Microseconds of the wall clock.
    pub(crate) since: i64,
}

impl Holds {
    /// Keeps what is needed to take a hold up again. In the file before the client hears of it; it has its turn from the call on.
    pub(super) fn save(&self, row: Row) -> impl Future<Output = Result<(), String>> + Send + use<> {
        self.ledger.ask(move |db| put(db, &row))
    }

    /// The hold has another lease than before. Its client can do without the next life knowing: nobody waits for the disk.
    pub(super) fn renote(&self, row: Row) {
        self.ledger.note(move |db| {
            if let Err(error) = put(db, &row) {
                tracing::error!(%error, name = row.name, "the next life will not know of this hold's new lease");
            }
        });
    }

    /// The hold is over: there is nothing to take up.
    pub(super) fn unsave(&self, id: &str) {
        let id = id.to_owned();
        self.ledger.note(move |db| {
            let _ = db.execute("DELETE FROM hold WHERE id = ?1", params![id]);
        });
    }

    /// What the last life held.
    pub(crate) async fn saved(&self) -> Result<Vec<Row>, String> {
        self.ledger
            .read(|db| {
                let mut statement = db.prepare(
                    "SELECT id, owner, name, class, holder, fence, ttl_ms, heartbeat_ms, since, attempt FROM hold",
                )?;
                let rows = statement.query_map([], |row| {
                    let fence = u64::try_from(row.get::<_, i64>(5)?).ok().and_then(Fence::new);
                    Ok(Row {
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

fn put(db: &Connection, row: &Row) -> rusqlite::Result<()> {
    db.execute(
        "INSERT OR REPLACE INTO hold (id, owner, name, class, holder, fence, ttl_ms, heartbeat_ms, since, attempt)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
        params![
            row.id,
            row.owner,
            row.name,
            row.class,
            row.holder,
            signed(row.fence.get()),
            row.ttl_ms.map(signed),
            signed(row.heartbeat_ms),
            row.since,
            row.attempt
        ],
    )
    .map(|_| ())
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use leasehold::Name;
    use leasehold::clock::Moment;
    use leasehold::policy::OnFailure;

    use super::super::book::Held;
    use super::*;
    use crate::ledger::Ledger;

    fn row(attempt: &str, fence: u64) -> Row {
        Row {
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

    fn held() -> Held {
        Held {
            hold: None,
            name: Name::new("job:1").unwrap(),
            owner: "w1".to_owned(),
            holder: "w1".to_owned(),
            class: "workflow".to_owned(),
            heartbeat: Duration::from_millis(500),
            due: Moment::ZERO,
            on_failure: OnFailure::Continue,
            ttl: Duration::from_secs(30),
            asked: None,
            retaken: None,
        }
    }

    /// The keeper has a hold as soon as it is granted, and can lose its lease and take another before the request that was granted
    /// it has come to write it down, or while that is being written. The next life would find the first one gone.
    #[tokio::test]
    async fn what_was_taken_anew_stays_in_the_file_whoever_comes_last() {
        for held_up in [true, false] {
            let holds = Holds::new(Arc::new(Ledger::open(None).unwrap()));
            assert!(holds.begin("h1", held(), Moment::ZERO).is_ok());
            let (first, second) = (row("first", 7), row("second", 8));
            if held_up {
                holds.retaken(second);
                holds.granted(first).await.unwrap();
            } else {
                let saving = holds.granted(first);
                holds.retaken(second);
                saving.await.unwrap();
            }
            let saved = holds.saved().await.unwrap();
            let saved: Vec<_> = saved
                .iter()
                .map(|row| (row.attempt.as_str(), row.fence.get()))
                .collect();
            assert_eq!(saved, [("second", 8)], "held up: {held_up}");
        }
    }
}
