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
}
