//! When clients could reach the store: they ran, were not cut off from it, and it served.

use std::collections::BTreeMap;

use super::drift::Nanos;
use super::engine::Service;
use super::world::State;

/// For each life of a host, the spans of time in which its way was open, in order.
#[derive(Debug, Default)]
pub(super) struct Ways(BTreeMap<(usize, u32), Vec<(Nanos, Nanos)>>);

impl Ways {
    /// This life's way was open from then to now.
    pub(super) fn open(&mut self, life: (usize, u32), from: Nanos, to: Nanos) {
        let spans = self.0.entry(life).or_default();
        match spans.last_mut() {
            Some(last) if last.1 == from => last.1 = to,
            _ => spans.push((from, to)),
        }
    }

    /// For how long it was open in a span of time.
    pub(super) fn between(&self, life: (usize, u32), from: Nanos, to: Nanos) -> Nanos {
        let spans = self.0.get(&life).map_or(&[][..], Vec::as_slice);
        let within = |(a, b): &(Nanos, Nanos)| (*b).min(to).saturating_sub((*a).max(from));
        spans.iter().map(within).sum()
    }
}

impl State {
    /// Time goes on, if this is later than now; whatever else changes, changes at a moment and not on the way to it.
    pub(super) fn pass(&mut self, to: Nanos) {
        let from = self.now;
        if to <= from {
            return;
        }
        self.now = to;
        // A full store takes back a lease all the same.
        if !matches!(self.engine.service, Service::Serving | Service::Full) {
            return;
        }
        for (slot, host) in self.hosts.iter().enumerate() {
            if host.alive && host.cut.is_none() && host.paused_until <= from {
                self.orphans.ways.open((slot, host.life), from, to);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::director::Director;
    use crate::sim::drift::SEC;
    use crate::sim::mistake::Mistake;
    use crate::sim::plan::Plan;

    #[test]
    fn only_what_was_open_counts_and_only_of_that_life() {
        let (first, second) = ((0, 1), (0, 2));
        let mut ways = Ways::default();
        ways.open(first, 10, 20);
        ways.open(first, 20, 30);
        ways.open(first, 50, 60);
        ways.open(second, 60, 90);
        assert_eq!(ways.between(first, 0, 100), 30);
        assert_eq!(ways.between(first, 15, 55), 20);
        assert_eq!(ways.between(first, 30, 50), 0);
        assert_eq!(ways.between(second, 0, 70), 10);
        assert_eq!(ways.between((1, 1), 0, 100), 0);
        assert_eq!(ways.0.get(&first).unwrap().len(), 2, "what goes on is one span");
    }

    #[test]
    fn a_way_is_open_while_its_client_runs_uncut_and_the_store_serves() {
        let mut plan = Plan::new(1, Mistake::Nothing);
        plan.strikes.clear();
        let director = Director::new(&plan).unwrap();
        let open = |change: &dyn Fn(&mut State, Nanos)| {
            let mut state = director.world.lock();
            let from = state.now;
            change(&mut state, from);
            state.pass(from + SEC);
            state.pass(from);
            assert_eq!(state.now, from + SEC, "time does not go back");
            state.orphans.ways.between((0, 1), from, from + SEC)
        };
        assert_eq!(open(&|_, _| {}), SEC);
        for away in [
            Service::Silent,
            Service::Refusing,
            Service::ReadOnly,
            Service::Loading,
        ] {
            assert_eq!(open(&|state, _| state.engine.service = away), 0, "{away:?}");
        }
        assert_eq!(open(&|state, _| state.engine.service = Service::Full), SEC);
        assert_eq!(open(&|state, _| state.hosts[0].cut = Some(true)), 0);
        assert_eq!(open(&|state, _| state.hosts[0].cut = None), SEC);
        assert_eq!(open(&|state, now| state.hosts[0].paused_until = now + SEC), 0);
        assert_eq!(open(&|_, _| {}), SEC, "it goes on by itself");
        assert_eq!(open(&|state, _| state.hosts[0].alive = false), 0);
        let another = |state: &mut State, _| (state.hosts[0].alive, state.hosts[0].life) = (true, 2);
        assert_eq!(open(&another), 0);
    }
}
