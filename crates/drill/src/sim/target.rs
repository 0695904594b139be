//! The protected target: the real gate of the fence kit in front of a ledger.

use leasehold_core::{Fence, Name};
use leasehold_fence::{FenceGate, Verdict};

use super::dice::Dice;
use super::drift::{MS, Nanos, SEC};
use super::mistake::Mistake;
use super::world::{Event, State};
use crate::history::{Entry, Wrote};
use tokio::sync::oneshot;

/// A write on its way.
#[derive(Debug)]
pub(super) struct Write {
    pub(super) slot: usize,
    pub(super) life: u32,
    pub(super) name: Name,
    pub(super) writer: String,
    pub(super) number: u64,
    pub(super) task: Option<u64>,
    pub(super) fence: Fence,
}

/// What the target says: how, and with a refusal the newest fence.
pub(super) type Answered = (Wrote, Option<Fence>);

/// The target.
pub(super) struct Target {
    gate: FenceGate,
    unfenced: bool,
    rows: Vec<Entry>,
    sent: u64,
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Target").finish_non_exhaustive()
    }
}

impl Target {
    pub(super) fn new(mistake: Mistake) -> Self {
        Self {
            gate: FenceGate::new(),
            unfenced: mistake == Mistake::UnfencedTarget,
            rows: Vec::new(),
            sent: 0,
        }
    }

    fn take(&mut self, write: &Write) -> Answered {
        let admitted = if self.unfenced {
            Ok(Verdict::Admitted(()))
        } else {
            self.gate.admit(&write.name, write.fence)
        };
        match admitted {
            Ok(Verdict::Admitted(())) => {
                self.rows.push(Entry::Applied {
                    place: self.rows.len() as u64 + 1,
                    name: write.name.to_string(),
                    writer: write.writer.clone(),
                    write: write.number,
                    task: write.task,
                    fence: Some(write.fence),
                });
                (Wrote::Applied, None)
            }
            Ok(Verdict::Stale(_)) => (Wrote::Refused, self.gate.newest(&write.name)),
            Err(_) => (Wrote::Unknown, None),
        }
    }

    /// The ledger.
    pub(super) fn rows(&mut self) -> Vec<Entry> {
        std::mem::take(&mut self.rows)
    }
}

impl State {
    /// Sends a write. From here on it is on its way, whatever becomes of its sender.
    pub(super) fn write(&mut self, write: Write, to: oneshot::Sender<Answered>) {
        let number = self.target.sent;
        self.target.sent += 1;
        let dice = Dice::keyed(self.plan.seed, [0x3217, number, 0]);
        let slow = !self.healed && dice.chance(self.plan.odds.slow.max(50));
        let travel: Nanos = if slow {
            dice.between(MS, 5 * SEC)
        } else {
            dice.between(MS / 10, 10 * MS)
        };
        self.after(travel, Event::Write { write, to });
    }

    /// A write arrives.
    pub(super) fn arrive(&mut self, write: &Write, to: oneshot::Sender<Answered>) {
        let answer = self.target.take(write);
        let back =
            Dice::keyed(self.plan.seed, [0x3218, self.target.rows.len() as u64, 0]).between(MS / 10, 10 * MS);
        let (slot, life) = (write.slot, write.life);
        self.after(
            back,
            Event::Wrote {
                slot,
                life,
                to,
                answer,
            },
        );
    }
}
