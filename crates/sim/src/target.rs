//! The protected target: the fence kit's real gate in front of a list of applied writes.

use leasehold_core::{Fence, Name};
use leasehold_fence::{FenceGate, Verdict};

use super::drift::{MS, Nanos, SEC};
use super::mistake::Mistake;
use super::random::SimRandom;
use super::world::{SimEvent, WorldState};
use leasehold_drill::history::{HistoryEntry, WriteOutcome};
use tokio::sync::oneshot;

/// A write under way.
#[derive(Debug)]
pub(super) struct SimWrite {
    pub(super) slot: usize,
    pub(super) life: u32,
    pub(super) name: Name,
    pub(super) writer: String,
    pub(super) number: u64,
    pub(super) task: Option<u64>,
    pub(super) fence: Fence,
}

/// The target's reply: the outcome, and with a refusal the newest fence.
pub(super) type SimWriteReply = (WriteOutcome, Option<Fence>);

pub(super) struct SimTarget {
    gate: FenceGate,
    unfenced: bool,
    rows: Vec<HistoryEntry>,
    sent: u64,
}

impl std::fmt::Debug for SimTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimTarget").finish_non_exhaustive()
    }
}

impl SimTarget {
    pub(super) fn new(mistake: Mistake) -> Self {
        Self {
            gate: FenceGate::new(),
            unfenced: mistake == Mistake::UnfencedTarget,
            rows: Vec::new(),
            sent: 0,
        }
    }

    fn apply_write(&mut self, write: &SimWrite) -> SimWriteReply {
        // The control: without the gate, stale writes must show up as I3.
        let admitted =
            if self.unfenced { Ok(Verdict::Admitted(())) } else { self.gate.admit(&write.name, write.fence) };
        match admitted {
            Ok(Verdict::Admitted(())) => {
                self.rows.push(HistoryEntry::Applied {
                    place: self.rows.len() as u64 + 1,
                    name: write.name.to_string(),
                    writer: write.writer.clone(),
                    write: write.number,
                    task: write.task,
                    fence: Some(write.fence),
                });
                (WriteOutcome::Applied, None)
            }
            Ok(Verdict::Stale(_)) => (WriteOutcome::Refused, self.gate.newest(&write.name)),
            Err(_) => (WriteOutcome::Unknown, None),
        }
    }

    /// Takes all applied writes, in the order of their application.
    pub(super) fn take_rows(&mut self) -> Vec<HistoryEntry> {
        std::mem::take(&mut self.rows)
    }
}

impl WorldState {
    /// Sends a write. It arrives even if its sender dies meanwhile.
    pub(super) fn send_write(&mut self, write: SimWrite, to: oneshot::Sender<SimWriteReply>) {
        let number = self.target.sent;
        self.target.sent += 1;
        let random = SimRandom::keyed(self.plan.seed, [0x3217, number, 0]);
        // Late writes are what fences exist for, so at least 5 % are late while faults happen.
        let slow = !self.faults_ended && random.chance(self.plan.odds.slow.max(50));
        let travel: Nanos = if slow { random.between(MS, 5 * SEC) } else { random.between(MS / 10, 10 * MS) };
        self.schedule_after(travel, SimEvent::Write { write, to });
    }

    /// Delivers a write to the target.
    pub(super) fn deliver_write(&mut self, write: &SimWrite, to: oneshot::Sender<SimWriteReply>) {
        let answer = self.target.apply_write(write);
        let back = SimRandom::keyed(self.plan.seed, [0x3218, self.target.rows.len() as u64, 0])
            .between(MS / 10, 10 * MS);
        let (slot, life) = (write.slot, write.life);
        self.schedule_after(back, SimEvent::WriteReply { slot, life, to, answer });
    }
}
