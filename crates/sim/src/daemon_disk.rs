//! The daemon's database file, which survives the daemon.
//!
//! A write reaches the disk some time after the daemon queued it. If the process dies first, the
//! queued writes are lost.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use leasehold_server::{DatabaseTask, DatabaseWriter, WriterFull};
use rusqlite::Connection;

use super::drift::MS;
use super::random::SimRandom;
use super::world::{SimEvent, SimWorld, WorldState};

/// The file and the writes that have not reached it yet.
#[derive(Default)]
pub(super) struct DaemonDisk {
    file: Option<Arc<Mutex<Connection>>>,
    unwritten: VecDeque<DatabaseTask>,
    // True while a disk event is scheduled; one event writes the whole queue, so one is enough.
    writing: bool,
    batches: u64,
}

impl fmt::Debug for DaemonDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DaemonDisk").field("waiting", &self.unwritten.len()).finish_non_exhaustive()
    }
}

impl DaemonDisk {
    /// An empty file in memory.
    pub(super) fn new() -> Result<Self, String> {
        let file = Connection::open_in_memory().map_err(|error| error.to_string())?;
        Ok(Self { file: Some(Arc::new(Mutex::new(file))), ..Self::default() })
    }

    /// Takes the writes that die with the process. The caller drops them outside the world's lock,
    /// because dropping one may wake a task.
    pub(super) fn take_unwritten(&mut self) -> VecDeque<DatabaseTask> {
        self.writing = false;
        std::mem::take(&mut self.unwritten)
    }
}

impl WorldState {
    fn queue_disk_write(&mut self, step: DatabaseTask, slot: usize, life: u32) {
        self.daemon_disk.unwritten.push_back(step);
        if self.daemon_disk.writing {
            return;
        }
        self.daemon_disk.writing = true;
        self.daemon_disk.batches += 1;
        // Keyed by batch number and life, so that removing another fault does not change this delay.
        let random = SimRandom::keyed(self.plan.seed, [0xd15c, self.daemon_disk.batches, u64::from(life)]);
        let takes = if !self.faults_ended && random.chance(20) {
            self.count_fault("daemon: its disk is slow");
            random.between(20 * MS, 400 * MS)
        } else {
            random.between(MS / 20, 2 * MS)
        };
        self.schedule_after(takes, SimEvent::Disk { slot, life });
    }
}

/// Carries out all queued writes.
pub(super) fn flush_writes(world: &SimWorld) {
    // Outside the world's lock: a write may wake the task that waits for it.
    let (file, steps) = {
        let mut state = world.lock();
        state.daemon_disk.writing = false;
        (state.daemon_disk.file.clone(), std::mem::take(&mut state.daemon_disk.unwritten))
    };
    let Some(file) = file else { return };
    let file = file.lock().unwrap_or_else(PoisonError::into_inner);
    for step in steps {
        step(&file);
    }
}

/// One daemon life's handle to the file.
pub(super) struct SimDatabaseWriter {
    pub(super) world: Arc<SimWorld>,
    pub(super) slot: usize,
    pub(super) life: u32,
}

impl DatabaseWriter for SimDatabaseWriter {
    fn submit(&self, step: DatabaseTask) -> Result<(), WriterFull> {
        let mut state = self.world.lock();
        // A dropped task of a dead daemon may still try to write; the file must not see it.
        let lives = state.hosts.get(self.slot);
        if !lives.is_some_and(|host| host.alive && host.life == self.life) {
            drop(state);
            return Err(WriterFull);
        }
        state.queue_disk_write(step, self.slot, self.life);
        Ok(())
    }
}
