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
    /// The store has forgotten that, or a message that it had seen before has asked for the place again.
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

    /// Who has asked for this place.
    pub(super) fn of(&self, token: &Token) -> Option<(usize, u32)> {
        self.0.get(token).map(|place| place.from)
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

    /// A message that the store has seen before asks again, and not on behalf of anyone: who had left may be back.
    pub(super) fn returns(&mut self, token: &Token) {
        if let Some(place) = self.0.get_mut(token) {
            place.back |= place.left;
        }
    }

    /// The store forgets: who had left may be back, and nobody leaves twice.
    pub(super) fn forget(&mut self) {
        for place in self.0.values_mut() {
            place.back |= place.left;
        }
    }

    /// How many wait that should not: nobody waits any more. Not those whose process is gone, and with it whoever could leave, nor
    /// those who had left and are back through no fault of theirs; their places run out.
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const NOW: Moment = Moment::ZERO;

    fn token(seed: u64) -> Token {
        Token::fresh(&Holder::new("c0.1").unwrap(), "c0", &SeededRandom::new(seed))
    }

    /// A name that someone has, and another one who asks for it and waits.
    struct Queue {
        table: Table,
        places: Places,
        ask: Ask,
    }

    impl Queue {
        fn new() -> Self {
            let name = Name::new("sim:0").unwrap();
            let mut table = Table::default();
            let held = Ask::new(name.clone(), token(1), Ttl::MAX);
            table.acquire(&held, NOW, 0).unwrap();
            let mut ask = Ask::new(name, token(2), Ttl::MAX);
            ask.queue = Some(Duration::from_secs(4));
            let places = Places::default();
            let mut queue = Self { table, places, ask };
            queue.asks();
            queue
        }

        fn asks(&mut self) {
            self.places.asks(&self.ask, (0, 1));
            self.table.acquire(&self.ask, NOW, 0).unwrap();
        }

        /// Without a tombstone, as a hold does that knows of no ask on its way.
        fn leaves(&mut self) {
            let giving = Giving::owned(self.ask.name.clone(), self.ask.token.clone());
            self.places.gives(&giving);
            self.table.release(&giving, NOW, 0, |_| true);
        }

        fn kept(&self) -> u64 {
            self.places.kept(&self.table, NOW, |_| true)
        }
    }

    #[test]
    fn a_place_counts_until_it_is_given_up_or_nobody_is_there_to_do_so() {
        let mut queue = Queue::new();
        assert_eq!(queue.kept(), 1);
        assert_eq!(queue.places.kept(&queue.table, NOW, |_| false), 0);
        queue.leaves();
        assert_eq!(queue.kept(), 0);
    }

    #[test]
    fn what_a_repeated_message_took_again_does_not_count() {
        let mut queue = Queue::new();
        queue.leaves();
        queue.asks();
        assert_eq!(
            queue.kept(),
            1,
            "its own message: it should not have left like this"
        );
        queue.places.returns(&queue.ask.token);
        assert_eq!(queue.kept(), 0);
    }

    #[test]
    fn a_message_repeated_before_anyone_left_excuses_nothing() {
        let mut queue = Queue::new();
        queue.asks();
        queue.places.returns(&queue.ask.token);
        assert_eq!(queue.kept(), 1);
    }
}
