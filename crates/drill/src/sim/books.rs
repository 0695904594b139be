//! The daemon's own file, which outlives it: steps are on the disk a little after they were asked for, and those that were not
//! yet are lost with the process.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use leasehold_server::{Full, Scribe, Step};
use rusqlite::Connection;

use super::dice::Dice;
use super::drift::MS;
use super::world::{Event, State, World};

/// The file, and what waits to be in it.
#[derive(Default)]
pub(super) struct Books {
    file: Option<Arc<Mutex<Connection>>>,
    waiting: VecDeque<Step>,
    /// The disk is at work.
    writing: bool,
    written: u64,
}

impl fmt::Debug for Books {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Books")
            .field("waiting", &self.waiting.len())
            .finish_non_exhaustive()
    }
}

impl Books {
    /// An empty file in memory.
    pub(super) fn new() -> Result<Self, String> {
        let file = Connection::open_in_memory().map_err(|error| error.to_string())?;
        Ok(Self {
            file: Some(Arc::new(Mutex::new(file))),
            ..Self::default()
        })
    }

    /// The process is gone, and with it what it had not written yet: to be dropped outside the lock.
    pub(super) fn lose(&mut self) -> VecDeque<Step> {
        self.writing = false;
        std::mem::take(&mut self.waiting)
    }
}

impl State {
    fn write_down(&mut self, step: Step, slot: usize, life: u32) {
        self.books.waiting.push_back(step);
        if self.books.writing {
            return;
        }
        self.books.writing = true;
        self.books.written += 1;
        let dice = Dice::keyed(self.plan.seed, [0xd15c, self.books.written, u64::from(life)]);
        let takes = if !self.healed && dice.chance(20) {
            self.count("daemon: its disk is slow");
            dice.between(20 * MS, 400 * MS)
        } else {
            dice.between(MS / 20, 2 * MS)
        };
        self.after(takes, Event::Disk { slot, life });
    }
}

/// The disk has done what it was asked for. Outside the world's lock: a step may wake whoever waits for it.
pub(super) fn written(world: &World) {
    let (file, steps) = {
        let mut state = world.lock();
        state.books.writing = false;
        (state.books.file.clone(), std::mem::take(&mut state.books.waiting))
    };
    let Some(file) = file else { return };
    let file = file.lock().unwrap_or_else(PoisonError::into_inner);
    for step in steps {
        step(&file);
    }
}

/// One life's way to the file.
pub(super) struct SimScribe {
    pub(super) world: Arc<World>,
    pub(super) slot: usize,
    pub(super) life: u32,
}

impl Scribe for SimScribe {
    fn take(&self, step: Step) -> Result<(), Full> {
        let mut state = self.world.lock();
        let lives = state.hosts.get(self.slot);
        if !lives.is_some_and(|host| host.alive && host.life == self.life) {
            drop(state);
            return Err(Full);
        }
        state.write_down(step, self.slot, self.life);
        Ok(())
    }
}
