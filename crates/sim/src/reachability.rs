//! When each client could reach the store: it ran, was not cut off, and the store served.

use std::collections::BTreeMap;

use super::drift::Nanos;
use super::engine::StoreHealth;
use super::world::WorldState;

/// Per life of a host, the spans in which it could reach the store, in order.
#[derive(Debug, Default)]
pub struct Reachability(BTreeMap<(usize, u32), Vec<(Nanos, Nanos)>>);

impl Reachability {
    /// Adds a span that ends now.
    pub fn add_span(&mut self, life: (usize, u32), from: Nanos, to: Nanos) {
        let spans = self.0.entry(life).or_default();
        match spans.last_mut() {
            Some(last) if last.1 == from => last.1 = to,
            _ => spans.push((from, to)),
        }
    }

    /// How long the store was reachable within a span.
    pub(super) fn time_between(&self, life: (usize, u32), from: Nanos, to: Nanos) -> Nanos {
        let spans = self.0.get(&life).map_or(&[][..], Vec::as_slice);
        let within = |(a, b): &(Nanos, Nanos)| (*b).min(to).saturating_sub((*a).max(from));
        spans.iter().map(within).sum()
    }
}

impl WorldState {
    /// Moves the time forward; does nothing if `to` is not later than now.
    pub(super) fn advance_to(&mut self, to: Nanos) {
        // Hosts and store change only at events, so their state now applies to the whole span.
        let from = self.now;
        if to <= from {
            return;
        }
        self.now = to;
        // A full store still executes releases.
        if !matches!(self.engine.health, StoreHealth::Serving | StoreHealth::Full) {
            return;
        }
        for (slot, host) in self.hosts.iter().enumerate() {
            if host.alive && host.partition.is_none() && host.paused_until <= from {
                self.orphans.reachability.add_span((slot, host.life), from, to);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drift::SEC;
    use crate::mistake::Mistake;
    use crate::plan::SimPlan;
    use crate::simulation::Simulation;

    #[test]
    fn only_open_spans_of_the_same_life_count() {
        let (first, second) = ((0, 1), (0, 2));
        let mut ways = Reachability::default();
        ways.add_span(first, 10, 20);
        ways.add_span(first, 20, 30);
        ways.add_span(first, 50, 60);
        ways.add_span(second, 60, 90);
        assert_eq!(ways.time_between(first, 0, 100), 30);
        assert_eq!(ways.time_between(first, 15, 55), 20);
        assert_eq!(ways.time_between(first, 30, 50), 0);
        assert_eq!(ways.time_between(second, 0, 70), 10);
        assert_eq!(ways.time_between((1, 1), 0, 100), 0);
        assert_eq!(ways.0.get(&first).unwrap().len(), 2, "what goes on is one span");
    }

    #[test]
    fn the_store_is_reachable_while_the_client_runs_and_it_serves() {
        let mut plan = SimPlan::new(1, Mistake::Nothing);
        plan.faults.clear();
        let director = Simulation::new(&plan).unwrap();
        let open = |change: &dyn Fn(&mut WorldState, Nanos)| {
            let mut state = director.world.lock();
            let from = state.now;
            change(&mut state, from);
            state.advance_to(from + SEC);
            state.advance_to(from);
            assert_eq!(state.now, from + SEC, "time does not go back");
            state.orphans.reachability.time_between((0, 1), from, from + SEC)
        };
        assert_eq!(open(&|_, _| {}), SEC);
        for away in [StoreHealth::Silent, StoreHealth::Refusing, StoreHealth::ReadOnly, StoreHealth::Loading]
        {
            assert_eq!(open(&|state, _| state.engine.health = away), 0, "{away:?}");
        }
        assert_eq!(open(&|state, _| state.engine.health = StoreHealth::Full), SEC);
        assert_eq!(open(&|state, _| state.hosts[0].partition = Some(true)), 0);
        assert_eq!(open(&|state, _| state.hosts[0].partition = None), SEC);
        assert_eq!(open(&|state, now| state.hosts[0].paused_until = now + SEC), 0);
        assert_eq!(open(&|_, _| {}), SEC, "it goes on by itself");
        assert_eq!(open(&|state, _| state.hosts[0].alive = false), 0);
        let another = |state: &mut WorldState, _| (state.hosts[0].alive, state.hosts[0].life) = (true, 2);
        assert_eq!(open(&another), 0);
    }
}
