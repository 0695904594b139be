//! What an operator does to a process or to the daemon: change a policy for a while, break a lease. Both are counted once they have
//! taken effect.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::Locks;
use leasehold_core::clock::{Clock, ClockExt};
use leasehold_core::policy::Class;
use leasehold_core::store::Given;

use super::daemon::Daemon;
use super::director::Director;
use super::drift::{MS, Nanos};
use crate::history::Entry;

/// A class from a moment on; nothing is what the daemon's file says.
type Version = (Nanos, Option<Arc<Class>>);

/// What the daemon's classes became, and when: those whose holds it keeps live by that.
#[derive(Debug, Default)]
pub(super) struct InForce(BTreeMap<String, Vec<Version>>);

impl InForce {
    fn set(&mut self, class: &str, at: Nanos, to: Option<Arc<Class>>) {
        self.0.entry(class.to_owned()).or_default().push((at, to));
    }

    /// The next daemon begins with its file.
    pub(super) fn reset(&mut self, at: Nanos) {
        for versions in self.0.values_mut() {
            versions.push((at, None));
        }
    }

    /// What a class was at a moment and has become since, the newest last; never nothing at all.
    pub(super) fn since(&self, class: &str, from: Nanos) -> Vec<Option<Arc<Class>>> {
        let versions = self.0.get(class).map_or(&[][..], Vec::as_slice);
        let before = versions.partition_point(|(at, _)| *at < from);
        let first = before.checked_sub(1).and_then(|last| versions.get(last));
        let first = first.and_then(|(_, class)| class.clone());
        let later = versions.iter().skip(before).map(|(_, class)| class.clone());
        std::iter::once(first).chain(later).collect()
    }
}

impl Director {
    pub(super) fn override_policy(
        &mut self,
        slot: usize,
        class: usize,
        (field, value): (&str, &str),
        lasts: Nanos,
        kind: &'static str,
    ) {
        let (Some(class), now) = (self.plan.classes.get(class), self.now()) else {
            return;
        };
        let name = class.name.clone();
        let lasts = Duration::from_nanos(lasts.min(self.horizon.saturating_sub(now)).max(MS));
        let (field, value) = (field.to_owned(), value.to_owned());
        if self.serves(slot) {
            return self.override_daemon(name, (field, value), lasts, kind);
        }
        let Some(process) = self.processes.get_mut(slot).and_then(Option::as_mut) else {
            return;
        };
        let Some(worker) = process.worker(&name, 9) else {
            return;
        };
        process.spawn(worker.change(field, value, lasts, kind));
    }

    fn override_daemon(
        &self,
        class: String,
        (field, value): (String, String),
        lasts: Duration,
        kind: &'static str,
    ) {
        let Some((daemon, locks)) = self.reached() else {
            return;
        };
        let (world, clock) = (Arc::clone(&self.world), daemon.clock());
        daemon.operate(async move {
            if locks
                .set_policy(&class, &field, &value, "simulated", lasts)
                .is_err()
            {
                return;
            }
            world.lock().count(kind);
            let note = || {
                let resolved = locks.policies().class(&class, clock.now()).ok();
                let mut state = world.lock();
                let now = state.now;
                state.in_force.set(&class, now, resolved);
            };
            note();
            clock.sleep(lasts).await;
            note();
        });
    }

    pub(super) fn break_lease(&mut self, slot: usize, name: usize, kind: &'static str) {
        let state = self.world.lock();
        let now = state.now;
        let lease = state
            .names
            .get(name)
            .and_then(|name| state.engine.lease(name, now));
        drop(state);
        let Some((name, fence)) = lease.and_then(|lease| Some((lease.name, lease.fence?))) else {
            return;
        };
        let locks = if self.serves(slot) {
            self.reached().map(|(_, locks)| locks)
        } else {
            self.process(slot).and_then(|process| process.locks.clone())
        };
        let Some(locks) = locks else { return };
        let broke = Entry::Broke {
            name: name.to_string(),
            fence,
        };
        let world = Arc::clone(&self.world);
        let breaks = async move {
            let given = locks.break_lease(&name, fence, "operator: simulated").await;
            if given.is_ok_and(|given| given == Given::Released) {
                world.lock().count(kind);
            }
        };
        match &self.daemon {
            Some(daemon) if self.serves(slot) => daemon.operate(breaks),
            _ => {
                if let Some(process) = self.processes.get_mut(slot).and_then(Option::as_mut) {
                    process.spawn(breaks);
                }
            }
        }
        // The broken holder learns of it with its next renewal: until then two may believe.
        self.note(broke);
    }

    /// The daemon and its own client, if an operator finds it there: open, and not standing still.
    fn reached(&self) -> Option<(&Daemon, Locks)> {
        let daemon = self.daemon.as_ref().filter(|daemon| !daemon.leaves())?;
        let locks = daemon.locks()?;
        let state = self.world.lock();
        let host = state.hosts.iter().find(|host| host.serves)?;
        (host.paused_until <= state.now).then_some((daemon, locks))
    }
}
