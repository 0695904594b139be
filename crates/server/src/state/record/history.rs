//! The history of holds: holder, fence, period, and how each ended. Survives restarts; bounded in
//! size.

use std::sync::Arc;

use jiff::Timestamp;
use leasehold::event::{Event, EventKind};
use leasehold::{Fence, Name};
use rusqlite::{Connection, params};

use leasehold_wire::HoldRecord;

use crate::state::state_db::StateDb;

const MAX_HISTORY_ROWS: u64 = 100_000;
// Pruning on every insert would double the writes, so it runs once per this many rows.
const PRUNE_EVERY_ROWS: u64 = 1_000;

/// Writes and reads the table of holds in the daemon's database.
#[derive(Debug)]
pub(crate) struct History {
    state_db: Arc<StateDb>,
    /// Identifies this run of the daemon, because hold ids restart with each run.
    epoch: String,
}

/// An end of a hold that the event stream reports under another label.
#[derive(Debug, Clone, Copy)]
pub(crate) enum HoldEnd {
    /// The client of a daemon-kept hold stopped sending heartbeats.
    ClientGone,
}

/// Selects rows of the history.
#[derive(Debug, Clone, Default)]
pub(crate) struct HistoryFilter {
    /// A name must begin with one of these; empty selects nothing.
    pub(crate) prefixes: Vec<String>,
    pub(crate) before: Option<u64>,
    pub(crate) limit: usize,
}

impl History {
    pub(crate) fn new(ledger: Arc<StateDb>, epoch: u64) -> Self {
        // Holds still open from the previous run count as ended with it. A renewal reopens the row.
        ledger.write_later(|db| {
            let _ = db.execute("UPDATE history SET ended = 'daemon_stopped' WHERE ended IS NULL", []);
        });
        Self { state_db: ledger, epoch: format!("{epoch:016x}") }
    }

    pub(crate) fn on(&self, event: &Event) {
        let at = event_micros(event);
        let (epoch, hold) = (self.epoch.clone(), to_i64(event.hold));
        let fence = event.fence.map(|fence| to_i64(fence.get()));
        // Errors of single writes are ignored below: they cost a history row, never a lease.
        match &event.what {
            EventKind::Acquired { .. } | EventKind::FellBack { .. } => self.open(event, at),
            EventKind::Resumed { .. } => self.reopen(event, at),
            // A re-acquired lease has a new fence, but it is the same hold and the same row.
            EventKind::Healed { .. } | EventKind::ProvenAgain { retaken: true, .. } => {
                self.state_db.write_later(move |db| {
                    let _ = db.execute(
                        "UPDATE history SET fence = ?3 WHERE epoch = ?1 AND hold = ?2 AND ended IS NULL",
                        params![epoch, hold, fence],
                    );
                })
            }
            EventKind::Broken { by } => {
                let (name, by) = (event.name.as_ref().map(ToString::to_string), by.clone());
                self.state_db.write_later(move |db| {
                    let _ = db.execute(
                        "UPDATE history SET until = ?3, ended = 'broken', why = ?4
                         WHERE name = ?1 AND fence = ?2 AND ended IS NULL",
                        params![name, fence, at, by],
                    );
                });
            }
            EventKind::PolicyChanged { change } => {
                let (class, change) = (event.class.to_string(), change.clone());
                self.state_db.write_later(move |db| {
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
            EventKind::Abandoned { reason, .. } => self.close(hold, at, reason.label()),
            EventKind::Released { .. } => self.close(hold, at, "released"),
            EventKind::Kept { .. } => self.close(hold, at, "kept"),
            EventKind::AlreadyLost { .. } => self.close(hold, at, "already_lost"),
            EventKind::Debt { .. } => self.close(hold, at, "debt"),
            EventKind::OverlapEnded { .. } => self.close(hold, at, "unproven"),
            _ => {}
        }
    }

    fn open(&self, event: &Event, at: i64) {
        let Some(name) = event.name.as_ref().map(ToString::to_string) else {
            return;
        };
        let (epoch, hold) = (self.epoch.clone(), to_i64(event.hold));
        let (class, holder) = (event.class.to_string(), event.holder.to_string());
        let fence = event.fence.map(|fence| to_i64(fence.get()));
        self.state_db.write_later(move |db| {
            let _ = db.execute(
                "INSERT INTO history (epoch, hold, name, class, holder, fence, since) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                params![epoch, hold, name, class, holder, fence, at],
            );
            prune(db);
        });
    }

    /// Reopens the row of a hold that the previous run had, or inserts one.
    fn reopen(&self, event: &Event, at: i64) {
        let name = event.name.as_ref().map(ToString::to_string);
        let fence = event.fence.map(|fence| to_i64(fence.get()));
        let (epoch, hold) = (self.epoch.clone(), to_i64(event.hold));
        let (class, holder) = (event.class.to_string(), event.holder.to_string());
        self.state_db.write_later(move |db| {
            let again = db.execute(
                "UPDATE history SET epoch = ?3, hold = ?4, until = NULL, ended = NULL
                 WHERE name = ?1 AND fence = ?2 AND ended IN ('daemon_stopped', 'shutdown')",
                params![name, fence, epoch, hold],
            );
            // No row: it was pruned, or the lease was granted elsewhere.
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
        self.state_db.write_later(move |db| {
            let _ = db.execute(
                "UPDATE history SET until = ?3, ended = ?4 WHERE epoch = ?1 AND hold = ?2 AND ended IS NULL",
                params![epoch, hold, at, ended],
            );
        });
    }

    /// Corrects how the hold with this fence ended: the event stream only reports a release.
    pub(crate) fn correct_end(&self, name: &Name, fence: Fence, how: HoldEnd) {
        let HoldEnd::ClientGone = how;
        let (name, fence) = (name.to_string(), to_i64(fence.get()));
        self.state_db.write_later(move |db| {
            let _ = db.execute(
                "UPDATE history SET ended = 'client_gone' WHERE name = ?1 AND fence = ?2 AND ended = 'released'",
                params![name, fence],
            );
        });
    }

    /// Reads rows, newest first, whose names begin with one of the filter's prefixes and that `seen`
    /// admits.
    pub(crate) async fn read(
        &self,
        wanted: HistoryFilter,
        seen: impl Fn(&Name) -> bool + Send + 'static,
    ) -> Result<Vec<HoldRecord>, String> {
        if wanted.prefixes.is_empty() {
            return Ok(Vec::new());
        }
        self.state_db
            .read(move |db| {
                // In SQL, which compares names without copying rows: a caller may see few of them.
                let begins = vec!["substr(name, 1, length(?)) = ?"; wanted.prefixes.len()].join(" OR ");
                // No LIMIT: scopes compare whole segments, so `seen` drops some of the rows that begin
                // right. Pruning bounds the rows that are looked at.
                let mut statement = db.prepare_cached(&format!(
                    "SELECT seq, name, class, holder, fence, since, until, ended, why FROM history
                     WHERE seq < ? AND ({begins}) ORDER BY seq DESC",
                ))?;
                let before = wanted.before.map_or(i64::MAX, to_i64);
                let prefixes = wanted.prefixes.iter().flat_map(|prefix| [prefix, prefix]);
                let prefixes = prefixes.map(|prefix| rusqlite::types::Value::from(prefix.clone()));
                let values = std::iter::once(rusqlite::types::Value::from(before)).chain(prefixes);
                let mut found = statement.query(rusqlite::params_from_iter(values))?;
                let mut rows = Vec::new();
                while let Some(row) = found.next()? {
                    let name: String = row.get(1)?;
                    if !Name::new(&name).is_ok_and(|name| seen(&name)) {
                        continue;
                    }
                    rows.push(read_record(row, name)?);
                    if rows.len() == wanted.limit {
                        break;
                    }
                }
                Ok(rows)
            })
            .await
    }
}

fn read_record(row: &rusqlite::Row<'_>, name: String) -> rusqlite::Result<HoldRecord> {
    let fence: Option<i64> = row.get(4)?;
    Ok(HoldRecord {
        seq: u64::try_from(row.get::<_, i64>(0)?).unwrap_or(0),
        name,
        class: row.get(2)?,
        holder: row.get(3)?,
        fence: fence.and_then(|fence| Fence::new(u64::try_from(fence).ok()?)),
        from: format_micros(row.get(5)?),
        to: row.get::<_, Option<i64>>(6)?.map(format_micros),
        ended: row.get(7)?,
        why: row.get(8)?,
    })
}

fn prune(db: &Connection) {
    let last = u64::try_from(db.last_insert_rowid()).unwrap_or(0);
    if last.is_multiple_of(PRUNE_EVERY_ROWS) && last > MAX_HISTORY_ROWS {
        let _ = db.execute("DELETE FROM history WHERE seq <= ?1", params![to_i64(last - MAX_HISTORY_ROWS)]);
    }
}

fn event_micros(event: &Event) -> i64 {
    Timestamp::try_from(event.wall).map_or(0, Timestamp::as_microsecond)
}

/// Formats a time as in responses.
pub(crate) fn format_micros(micros: i64) -> String {
    format!("{:.3}", Timestamp::from_microsecond(micros).unwrap_or(Timestamp::UNIX_EPOCH))
}

fn to_i64(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
