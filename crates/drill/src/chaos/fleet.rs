//! Workers that come back when they are killed.

use leasehold_core::rng::{RandomExt, SeededRandom};

use super::CLASSES;
use crate::fleet::{Error, Orders, Skew};
use crate::history::Entry;
use crate::scenario::PATIENCE;
use crate::scenario::scene::Scene;

/// One place in the fleet: who has it now, and what whoever has it does.
struct Seat {
    who: Option<String>,
    orders: Orders,
}

/// The fleet of one run.
pub(super) struct Fleet {
    seats: Vec<Seat>,
    /// A name is never used twice: a new process is a new client.
    born: u32,
    prefix: String,
    /// The wall clock of all workers, where it can be set.
    pub(super) clock: Option<Skew>,
}

impl Fleet {
    /// So many workers, each with so many clients, on these names, with classes drawn by seed. Nobody is started yet.
    pub(super) fn new(
        scene: &Scene,
        prefix: &str,
        seats: u32,
        clients: u32,
        names: &[&str],
        random: &SeededRandom,
    ) -> Self {
        let seats = (0..seats).map(|_| {
            let class = pick(CLASSES, random).copied().unwrap_or("scheduler");
            let mut orders = scene
                .orders("", class, "")
                .clients(clients)
                .steps(
                    u32::try_from(2 + random.below(10)).unwrap_or(2),
                    10 + random.below(60),
                )
                .rest(5 + random.below(40));
            orders.names = names.iter().map(|name| scene.stage.name(name)).collect();
            Seat { who: None, orders }
        });
        Self {
            seats: seats.collect(),
            born: 0,
            prefix: prefix.to_owned(),
            clock: None,
        }
    }

    /// Starts whoever is missing.
    pub(super) async fn fill(&mut self, scene: &mut Scene) -> Result<(), Error> {
        let before = self.clock.as_ref().map(Skew::words).unwrap_or_default();
        for seat in self.seats.iter_mut().filter(|seat| seat.who.is_none()) {
            self.born += 1;
            let mut orders = seat.orders.clone();
            orders.who = format!("{}{}", self.prefix, self.born);
            seat.who = Some(orders.who.clone());
            scene.crew.start_under(&before, orders).await?;
        }
        Ok(())
    }

    /// Everybody who is there.
    pub(super) fn all(&self) -> Vec<String> {
        self.seats.iter().filter_map(|seat| seat.who.clone()).collect()
    }

    /// Whoever is seen at work next.
    pub(super) async fn at_work(&self, scene: &Scene) -> Result<String, Error> {
        let all = self.all();
        let from = scene.tape.place();
        let seen = scene
            .tape
            .wait(from, PATIENCE, |record| {
                matches!(
                    record.what,
                    Entry::Claimed {
                        proven_until: Some(_),
                        ..
                    }
                ) && all.contains(&worker(&record.who))
            })
            .await;
        seen.map(|record| worker(&record.who))
            .ok_or_else(|| Error::Waited("for somebody to work".to_owned()))
    }

    /// Kills these.
    pub(super) async fn kill(&mut self, scene: &mut Scene, whom: &[String]) {
        for seat in &mut self.seats {
            if let Some(who) = seat.who.take_if(|who| whom.contains(who)) {
                scene.crew.kill(&who).await;
            }
        }
    }
}

/// The process of a client.
fn worker(client: &str) -> String {
    client.split('.').next().unwrap_or(client).to_owned()
}

/// One of these.
pub(super) fn pick<'a, T>(of: &'a [T], random: &SeededRandom) -> Option<&'a T> {
    let index = random.below(u64::try_from(of.len()).unwrap_or(0));
    of.get(usize::try_from(index).unwrap_or(0))
}
