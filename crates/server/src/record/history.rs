//! Who held what, with which fence, from when to when, and how it ended. Survives restarts; bounded in size.

use std::sync::Arc;

use jiff::Timestamp;
use leasehold::event::{Event, What};
use leasehold::{Fence, Name};
use rusqlite::{Connection, params};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::ledger::Ledger;

/// How many holds are remembered.
const KEPT: u64 = 100_000;
/// How often the oldest are forgotten: every so many.
const FORGET: u64 = 1_000;

/// The history's table.
#[derive(Debug)]
pub(crate) struct History {
    ledger: Arc<Ledger>,
    /// Which life of the daemon: numbers of holds begin anew with each.
    epoch: String,
}

/// One hold.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct HistoryRow {
    /// Grows; give it as `before` to read on.
    pub(crate) seq: u64,
    /// What was locked.
    pub(crate) name: String,
    /// Under which class.
    pub(crate) class: String,
    /// Who held it.
    pub(crate) holder: String,
    /// With which fence; missing if it was local only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub(crate) fence: Option<Fence>,
    /// From when.
    #[schema(format = DateTime, value_type = String)]
    pub(crate) from: String,
    /// Until when; missing if it is held still.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime, value_type = Option<String>)]
    pub(crate) to: Option<String>,
    /// How it ended: `released`, `deadline` (the lease ran out), `not_owned`, `broken`, `client_gone`, …; missing if it is
    /// held still.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ended: Option<String>,
    /// Who ended it and why, if someone did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) why: Option<String>,
}

/// How a hold ended that the stream has another word for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Ended {
    /// The client of a hold that the daemon kept was not heard of any more.
    ClientGone,
}

/// Which rows.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wanted {
    pub(crate) prefix: String,
    pub(crate) before: Option<u64>,
    pub(crate) limit: usize,
}

impl History {
    pub(crate) fn new(ledger: Arc<Ledger>, epoch: u64) -> Self {
        // What the last life left open has ended with it, as far as anyone knows; a renewal opens it again.
        ledger.note(|db| {
            let _ = db.execute(
                "UPDATE history SET ended = 'daemon_stopped' WHERE ended IS NULL",
                [],
            );
        });
        Self {
            ledger,
            epoch: format!("{epoch:016x}"),
        }
    }

    pub(crate) fn on(&self, event: &Event) {
        let at = micros(event);
        let (epoch, hold) = (self.epoch.clone(), signed(event.hold));
        let fence = event.fence.map(|fence| signed(fence.get()));
        match &event.what {
            What::Acquired { .. } | What::FellBack { .. } => self.open(event, at),
            What::Resumed { .. } => self.reopen(event, at),
            What::Healed { .. } | What::ProvenAgain { retaken: true, .. } => self.ledger.note(move |db| {
                let _ = db.execute(
                    "UPDATE history SET fence = ?3 WHERE epoch = ?1 AND hold = ?2 AND ended IS NULL",
                    params![epoch, hold, fence],
                );
            }),
            What::Broken { by } => {
                let (name, by) = (event.name.as_ref().map(ToString::to_string), by.clone());
                self.ledger.note(move |db| {
                    let _ = db.execute(
                        "UPDATE history SET until = ?3, ended = 'broken', why = ?4
                         WHERE name = ?1 AND fence = ?2 AND ended IS NULL",
                        params![name, fence, at, by],
                    );
                });
            }
            What::PolicyChanged { change } => {
                let (class, change) = (event.class.to_string(), change.clone());
                self.ledger.note(move |db| {
                    let _ = db.execute(
                        "INSERT INTO policy_change (at, class, change) VALUES (?1, ?2, ?3)",
                        params![at, class, change],
                    );
                    let _ = db.execute(
                        "DELETE FROM policy_change WHERE seq <= (SELECT max(seq) FROM policy_change) - 10000",
                        [],
                    );
                });
            }
            What::Abandoned { reason, .. } => self.close(hold, at, reason.label()),
            What::Released { .. } => self.close(hold, at, "released"),
            What::Kept { .. } => self.close(hold, at, "kept"),
            What::AlreadyLost { .. } => self.close(hold, at, "already_lost"),
            What::Debt { .. } => self.close(hold, at, "debt"),
            What::OverlapEnded { .. } => self.close(hold, at, "unproven"),
            _ => {}
        }
    }

    fn open(&self, event: &Event, at: i64) {
        let Some(name) = event.name.as_ref().map(ToString::to_string) else {
            return;
        };
        let (epoch, hold) = (self.epoch.clone(), signed(event.hold));
        let (class, holder) = (event.class.to_string(), event.holder.to_string());
        let fence = event.fence.map(|fence| signed(fence.get()));
        self.ledger.note(move |db| {
            let _ = db.execute(
                "INSERT INTO history (epoch, hold, name, class, holder, fence, since) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                params![epoch, hold, name, class, holder, fence, at],
            );
            forget(db);
        });
    }

    /// A hold of the last life goes on.
    fn reopen(&self, event: &Event, at: i64) {
        let name = event.name.as_ref().map(ToString::to_string);
        let fence = event.fence.map(|fence| signed(fence.get()));
        let (epoch, hold) = (self.epoch.clone(), signed(event.hold));
        let (class, holder) = (event.class.to_string(), event.holder.to_string());
        self.ledger.note(move |db| {
            let again = db.execute(
                "UPDATE history SET epoch = ?3, hold = ?4, until = NULL, ended = NULL
                 WHERE name = ?1 AND fence = ?2 AND ended IN ('daemon_stopped', 'shutdown')",
                params![name, fence, epoch, hold],
            );
            if again == Ok(0) {
                let _ = db.execute(
                    "INSERT INTO history (epoch, hold, name, class, holder, fence, since) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                    params![epoch, hold, name, class, holder, fence, at],
                );
            }
        });
    }

    fn close(&self, hold: i64, at: i64, ended: &'static str) {
        let epoch = self.epoch.clone();
        self.ledger.note(move |db| {
            let _ = db.execute(
                "UPDATE history SET until = ?3, ended = ?4 WHERE epoch = ?1 AND hold = ?2 AND ended IS NULL",
                params![epoch, hold, at, ended],
            );
        });
    }

    /// Corrects how the hold with this fence ended: the stream only knows that it was released.
    pub(crate) fn ended(&self, name: &Name, fence: Fence, how: Ended) {
        let Ended::ClientGone = how;
        let (name, fence) = (name.to_string(), signed(fence.get()));
        self.ledger.note(move |db| {
            let _ = db.execute(
                "UPDATE history SET ended = 'client_gone' WHERE name = ?1 AND fence = ?2 AND ended = 'released'",
                params![name, fence],
            );
        });
    }

    /// Rows, newest first, that `seen` lets through.
    pub(crate) async fn read(
        &self,
        wanted: Wanted,
        seen: impl Fn(&Name) -> bool + Send + 'static,
    ) -> Result<Vec<HistoryRow>, String> {
        self.ledger
            .read(move |db| {
                let mut rows = Vec::new();
                let mut statement = db.prepare_cached(
                    "SELECT seq, name, class, holder, fence, since, until, ended, why FROM history
                     WHERE seq < ?1 ORDER BY seq DESC",
                )?;
                let before = wanted.before.map_or(i64::MAX, signed);
                let mut found = statement.query(params![before])?;
                while let Some(row) = found.next()? {
                    let name: String = row.get(1)?;
                    let mine =
                        name.starts_with(&wanted.prefix) && Name::new(&name).is_ok_and(|name| seen(&name));
                    if !mine {
                        continue;
                    }
                    rows.push(HistoryRow {
                        seq: u64::try_from(row.get::<_, i64>(0)?).unwrap_or(0),
                        name,
                        class: row.get(2)?,
                        holder: row.get(3)?,
                        fence: row
                            .get::<_, Option<i64>>(4)?
                            .and_then(|fence| Fence::new(u64::try_from(fence).ok()?)),
                        from: stamp(row.get(5)?),
                        to: row.get::<_, Option<i64>>(6)?.map(stamp),
                        ended: row.get(7)?,
                        why: row.get(8)?,
                    });
                    if rows.len() == wanted.limit {
                        break;
                    }
                }
                Ok(rows)
            })
            .await
    }
}

fn forget(db: &Connection) {
    let last = u64::try_from(db.last_insert_rowid()).unwrap_or(0);
    if last.is_multiple_of(FORGET) && last > KEPT {
        let _ = db.execute(
            "DELETE FROM history WHERE seq <= ?1",
            params![signed(last - KEPT)],
        );
    }
}

fn micros(event: &Event) -> i64 {
    Timestamp::try_from(event.wall).map_or(0, Timestamp::as_microsecond)
}

/// A time as the wire has it.
pub(crate) fn stamp(micros: i64) -> String {
    format!(
        "{:.3}",
        Timestamp::from_microsecond(micros).unwrap_or(Timestamp::UNIX_EPOCH)
    )
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
