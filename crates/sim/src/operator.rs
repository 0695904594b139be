//! What an operator does to a process or the daemon: override a policy, or break a lease.
//!
//! Both count as faults only once they have taken effect.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::Locks;
use leasehold_core::clock::{Clock, ClockExt};
use leasehold_core::policy::Class;
use leasehold_core::store::ReleaseResponse;

use super::daemon::SimDaemon;
use super::drift::{MS, Nanos};
use super::simulation::Simulation;
use leasehold_drill::history::HistoryEntry;

/// A class from a moment on; `None` is the class of the daemon's policy file.
type ClassVersion = (Nanos, Option<Arc<Class>>);

/// The versions of the daemon's classes over time; the holds it keeps follow them.
#[derive(Debug, Default)]
pub(super) struct ClassVersions(BTreeMap<String, Vec<ClassVersion>>);

impl ClassVersions {
    fn set(&mut self, class: &str, at: Nanos, to: Option<Arc<Class>>) {
        self.0.entry(class.to_owned()).or_default().push((at, to));
    }

    /// Records that a new daemon starts from its policy file.
    pub(super) fn reset(&mut self, at: Nanos) {
        for versions in self.0.values_mut() {
            versions.push((at, None));
        }
    }

    /// The class in force at `from` and all later versions, the newest last. Never empty.
    pub(super) fn since(&self, class: &str, from: Nanos) -> Vec<Option<Arc<Class>>> {
        let versions = self.0.get(class).map_or(&[][..], Vec::as_slice);
        let before = versions.partition_point(|(at, _)| *at < from);
        let first = before.checked_sub(1).and_then(|last| versions.get(last));
        let first = first.and_then(|(_, class)| class.clone());
        let later = versions.iter().skip(before).map(|(_, class)| class.clone());
        std::iter::once(first).chain(later).collect()
    }
}

impl Simulation {
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
        // An override must not outlast the faults, or the recovery phase would run under it.
        let lasts = Duration::from_nanos(lasts.min(self.horizon.saturating_sub(now)).max(MS));
        let (field, value) = (field.to_owned(), value.to_owned());
        if self.is_daemon_slot(slot) {
            return self.override_daemon(name, (field, value), lasts, kind);
        }
        let Some(process) = self.processes.get_mut(slot).and_then(Option::as_mut) else {
            return;
        };
        let Some(worker) = process.worker(&name, 9) else {
            return;
        };
        process.spawn(worker.override_policy(field, value, lasts, kind));
    }

    fn override_daemon(
        &self,
        class: String,
        (field, value): (String, String),
        lasts: Duration,
        kind: &'static str,
    ) {
        let Some((daemon, locks)) = self.reachable_daemon() else {
            return;
        };
        let (world, clock) = (Arc::clone(&self.world), daemon.clock());
        daemon.spawn_operator_task(async move {
            if locks.set_policy(&class, &field, &value, "simulated", lasts).is_err() {
                return;
            }
            world.lock().count_fault(kind);
            let note = || {
                let resolved = locks.policies().class(&class, clock.now()).ok();
                let mut state = world.lock();
                let now = state.now;
                state.class_versions.set(&class, now, resolved);
            };
            // Recorded at both ends: the override expires by itself after `lasts`.
            note();
            clock.sleep(lasts).await;
            note();
        });
    }

    pub(super) fn break_lease(&mut self, slot: usize, name: usize, kind: &'static str) {
        let state = self.world.lock();
        let now = state.now;
        let lease = state.names.get(name).and_then(|name| state.engine.lease(name, now));
        drop(state);
        let Some((name, fence)) = lease.and_then(|lease| Some((lease.name, lease.fence?))) else {
            return;
        };
        let locks = if self.is_daemon_slot(slot) {
            self.reachable_daemon().map(|(_, locks)| locks)
        } else {
            self.process(slot).and_then(|process| process.locks.clone())
        };
        let Some(locks) = locks else { return };
        let broke = HistoryEntry::Broke { name: name.to_string(), fence };
        let world = Arc::clone(&self.world);
        let breaks = async move {
            let given = locks.break_lease(&name, fence, "operator: simulated").await;
            if given.is_ok_and(|given| given == ReleaseResponse::Released) {
                world.lock().count_fault(kind);
            }
        };
        match &self.daemon {
            Some(daemon) if self.is_daemon_slot(slot) => daemon.spawn_operator_task(breaks),
            _ => {
                if let Some(process) = self.processes.get_mut(slot).and_then(Option::as_mut) {
                    process.spawn(breaks);
                }
            }
        }
        // The broken holder learns of it at its next renewal. Until then two clients may believe they hold.
        self.record(broke);
    }

    /// The daemon and its client, if an operator could reach it: open, running and not paused.
    fn reachable_daemon(&self) -> Option<(&SimDaemon, Locks)> {
        let daemon = self.daemon.as_ref().filter(|daemon| !daemon.is_shutting_down())?;
        let locks = daemon.locks()?;
        let state = self.world.lock();
        let host = state.hosts.iter().find(|host| host.is_daemon)?;
        (host.paused_until <= state.now).then_some((daemon, locks))
    }
}
