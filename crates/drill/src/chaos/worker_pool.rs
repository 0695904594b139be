//! Workers that are restarted after a kill.

use leasehold_core::rng::{RandomExt, SeededRandom};

use super::DRAWN_CLASSES;
use crate::fleet::{DrillError, FakeWallClock, WorkerSpec};
use crate::history::HistoryEntry;
use crate::scenario::EVENT_TIMEOUT;
use crate::scenario::context::ScenarioContext;

/// A slot for one worker: the running one, and the spec for each worker that is started in it.
struct WorkerSlot {
    running: Option<String>,
    spec: WorkerSpec,
}

/// The workers of one run.
pub(super) struct WorkerPool {
    slots: Vec<WorkerSlot>,
    /// Number of workers started. Names are never used twice: the checker treats each process as a
    /// new client.
    started_count: u32,
    name_prefix: String,
    /// The fake wall clock of all workers, if they have one.
    pub(super) clock: Option<FakeWallClock>,
}

impl WorkerPool {
    /// Creates the slots, with classes and timing drawn by seed. Starts no worker.
    pub(super) fn new(
        context: &ScenarioContext,
        prefix: &str,
        seats: u32,
        clients: u32,
        names: &[&str],
        random: &SeededRandom,
    ) -> Self {
        let seats = (0..seats).map(|_| {
            let class = pick_random(DRAWN_CLASSES, random).copied().unwrap_or("scheduler");
            let mut orders = context
                .worker_spec("", class, "")
                .clients(clients)
                .steps(u32::try_from(2 + random.below(10)).unwrap_or(2), 10 + random.below(60))
                .rest(5 + random.below(40));
            orders.names = names.iter().map(|name| context.testbed.lock_name(name)).collect();
            WorkerSlot { running: None, spec: orders }
        });
        Self { slots: seats.collect(), started_count: 0, name_prefix: prefix.to_owned(), clock: None }
    }

    /// Starts a worker in each empty slot.
    pub(super) async fn start_missing(&mut self, context: &mut ScenarioContext) -> Result<(), DrillError> {
        let before = self.clock.as_ref().map(FakeWallClock::command_prefix).unwrap_or_default();
        for seat in self.slots.iter_mut().filter(|seat| seat.running.is_none()) {
            self.started_count += 1;
            let mut orders = seat.spec.clone();
            orders.who = format!("{}{}", self.name_prefix, self.started_count);
            seat.running = Some(orders.who.clone());
            context.workers.start_with_prefix(&before, orders).await?;
        }
        Ok(())
    }

    /// The names of the running workers.
    pub(super) fn running_names(&self) -> Vec<String> {
        self.slots.iter().filter_map(|seat| seat.running.clone()).collect()
    }

    /// Waits until a worker works under a proven lease, and returns its name. A fault at an idle
    /// worker would show nothing.
    pub(super) async fn wait_for_working_worker(
        &self,
        context: &ScenarioContext,
    ) -> Result<String, DrillError> {
        let all = self.running_names();
        let from = context.history.position();
        let seen = context
            .history
            .wait_for(from, EVENT_TIMEOUT, |record| {
                matches!(record.what, HistoryEntry::Claimed { proven_until: Some(_), .. })
                    && all.contains(&worker_of_client(&record.who))
            })
            .await;
        seen.map(|record| worker_of_client(&record.who))
            .ok_or_else(|| DrillError::WaitTimedOut("for a client to work".to_owned()))
    }

    /// Kills these workers and empties their slots.
    pub(super) async fn kill(&mut self, context: &mut ScenarioContext, whom: &[String]) {
        for seat in &mut self.slots {
            if let Some(who) = seat.running.take_if(|who| whom.contains(who)) {
                context.workers.kill(&who).await;
            }
        }
    }
}

/// The name of a client's worker: client names are `worker.number`.
fn worker_of_client(client: &str) -> String {
    client.split('.').next().unwrap_or(client).to_owned()
}

pub(super) fn pick_random<'a, T>(of: &'a [T], random: &SeededRandom) -> Option<&'a T> {
    let index = random.below(u64::try_from(of.len()).unwrap_or(0));
    of.get(usize::try_from(index).unwrap_or(0))
}
