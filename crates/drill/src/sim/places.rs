//! Places in the queues of the store, and who has them: they must be given up by whoever does not wait any more.

use std::collections::{BTreeSet, HashMap};

use leasehold_core::clock::Moment;
use leasehold_core::memory::Table;
use leasehold_core::rng::SeededRandom;
use leasehold_core::store::{Ask, Claim, Giving};
use leasehold_core::{Holder, Name, Token, Ttl};

#[derive(Debug)]
struct Place {
    name: Name,
    /// Host and life of the process that asked.
    from: (usize, u32),
    /// It has been given up, or was over with a grant.
    left: bool,
    /// The store has forgotten that.
    back: bool,
}

/// Every place that there has been.
#[derive(Debug, Default)]
pub(super) struct Places(HashMap<Token, Place>);

impl Places {
    /// Someone asks, and waits if it is not its turn.
    pub(super) fn asks(&mut self, ask: &Ask, from: (usize, u32)) {
        if ask.queue.is_some() && !self.0.contains_key(&ask.token) {
            let place = Place {
                name: ask.name.clone(),
                from,
                left: false,
                back: false,
            };
            self.0.insert(ask.token.clone(), place);
        }
    }

    /// Someone leaves.
    pub(super) fn gives(&mut self, giving: &Giving) {
        if let Claim::Owner(token) | Claim::Place(token) = &giving.claim {
            self.over(token);
        }
    }

    /// Someone waits no more.
    pub(super) fn over(&mut self, token: &Token) {
        if let Some(place) = self.0.get_mut(token) {
            place.left = true;
        }
    }

    /// The store forgets: who had left may be back, and nobody leaves twice.
    pub(super) fn forget(&mut self) {
        for place in self.0.values_mut() {
            place.back |= place.left;
        }
    }

    /// How many wait that should not: nobody waits any more. Not those whose process is gone, and with it whoever could leave, nor
    /// those who have left a store that forgot it; their places run out.
    pub(super) fn kept(&self, table: &Table, now: Moment, lives: impl Fn((usize, u32)) -> bool) -> u64 {
        let mut table = table.clone();
        for (token, place) in &self.0 {
            if place.back || !lives(place.from) {
                let giving = Giving::place(place.name.clone(), token.clone());
                table.release(&giving, now, 0, |_| false);
            }
        }
        let Ok(me) = Holder::new("director") else { return 0 };
        let me = Token::fresh(&me, "probe", &SeededRandom::new(0));
        let names: BTreeSet<_> = self.0.values().map(|place| &place.name).collect();
        let waiting = names.into_iter().map(|name| {
            // Waiters are shown with a lease only.
            let _ = table.acquire(&Ask::new(name.clone(), me.clone(), Ttl::MIN), now, 0);
            let lease = table.inspect(name, now);
            lease.and_then(|lease| lease.waiters).unwrap_or(0)
        });
        waiting.sum()
    }
}
