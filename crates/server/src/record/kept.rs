//! Leases that clients keep themselves, as far as they pass through here: so that feed, metrics and history know of them.
//!
//! Nothing is decided by what stands here; the store alone knows the truth. A lease that was granted elsewhere, or before
//! the daemon's restart, is noticed at its first renewal.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold::clock::Moment;
use leasehold::event::{Loss, Op, What};
use leasehold::leasehold_core::Token;
use leasehold::store::{Answer, Ask, Failure, Given, Renewal, Renewed};
use leasehold::{Fence, Holder, Name};

use super::{About, Recorder};

/// The most leases that are followed; others are served all the same.
const LIMIT: usize = 200_000;

/// The leases that are followed.
pub(crate) struct Kept {
    recorder: Arc<Recorder>,
    table: Mutex<HashMap<String, Lease>>,
}

struct Lease {
    id: u64,
    name: Name,
    class: String,
    holder: Holder,
    fence: Fence,
    since: Moment,
    until: Moment,
    /// An operator has asked the holder to let go: why.
    asked: Option<String>,
}

impl Lease {
    fn about(&self) -> About<'_> {
        About {
            name: &self.name,
            class: &self.class,
            holder: &self.holder,
            fence: Some(self.fence),
            hold: self.id,
        }
    }
}

impl Kept {
    pub(crate) fn new(recorder: Arc<Recorder>) -> Self {
        Self {
            recorder,
            table: Mutex::default(),
        }
    }

    fn table(&self) -> MutexGuard<'_, HashMap<String, Lease>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An acquire has ended.
    pub(crate) fn acquired(
        &self,
        ask: &Ask,
        answer: &Result<Answer, Failure>,
        took: Duration,
        waited: bool,
        now: Moment,
    ) {
        let Some(holder) = holder(&ask.token) else { return };
        let fence = match answer {
            Ok(Answer::Granted(grant)) => Some(grant.fence),
            _ => None,
        };
        let about = |fence| About {
            name: &ask.name,
            class: ask.token.class(),
            holder: &holder,
            fence,
            hold: 0,
        };
        let what = match answer {
            Ok(Answer::Granted(grant)) => {
                let mut lease = Lease {
                    id: 0,
                    name: ask.name.clone(),
                    class: ask.token.class().to_owned(),
                    holder: holder.clone(),
                    fence: grant.fence,
                    since: now,
                    until: now + grant.ttl.unwrap_or_else(|| ask.kept()),
                    asked: None,
                };
                let mut table = self.table();
                if let Some(known) = table.get_mut(ask.token.expose())
                    && known.fence == grant.fence
                {
                    // The same question again, and the same grant.
                    known.until = known.until.max(lease.until);
                    return;
                }
                lease.id = self.recorder.next_id();
                let what = What::Acquired {
                    took,
                    waited,
                    takeover: None,
                    behind_debt: None,
                };
                self.recorder.tell(&lease.about(), what);
                if table.len() < LIMIT {
                    table.insert(ask.token.expose().to_owned(), lease);
                }
                return;
            }
            // It asks again, or will say that it has given up.
            Ok(Answer::Busy(busy)) if busy.queued => return,
            Ok(Answer::Busy(busy)) => What::Busy {
                took,
                holder: busy.holder.clone(),
                held_here: false,
            },
            Ok(Answer::Void) => return,
            Err(failure) => What::Unavailable {
                took,
                cause: failure.cause,
            },
        };
        self.recorder.tell(&about(fence), what);
    }

    /// A renewal was answered. Answers why the holder is asked to let go, if it is.
    pub(crate) fn renewed(
        &self,
        renewal: &Renewal,
        result: &Result<Renewed, Failure>,
        took: Duration,
        now: Moment,
    ) -> Option<String> {
        let mut table = self.table();
        let key = renewal.token.expose();
        let known = table.get(key).is_some_and(|lease| lease.fence == renewal.fence);
        if !known {
            // Not granted through here, or before a restart: from now on it is known, if it is one.
            let mut lease = self.found(renewal, now)?;
            if !matches!(result, Ok(Renewed::Extended { .. })) {
                lease.id = 0;
                self.failed(&lease.about(), result);
                return None;
            }
            lease.id = self.recorder.next_id();
            self.recorder
                .tell(&lease.about(), What::Resumed { age: Duration::ZERO });
            if table.len() < LIMIT {
                table.insert(key.to_owned(), lease);
            }
        }
        let lease = table.get_mut(key)?;
        match result {
            Ok(Renewed::Extended { .. }) => {
                let left = lease.until.since(now).as_secs_f64() / renewal.kept().as_secs_f64();
                lease.until = lease.until.max(now + renewal.kept());
                let what = What::Renewed {
                    left: left.clamp(0.0, 1.0),
                    took,
                };
                self.recorder.tell(&lease.about(), what);
                lease.asked.clone()
            }
            Ok(Renewed::NotOwned) => {
                self.failed(&lease.about(), result);
                let what = What::Abandoned {
                    reason: Loss::NotOwned,
                    held: now.since(lease.since),
                };
                self.recorder.tell(&lease.about(), what);
                table.remove(key);
                None
            }
            Err(_) => {
                self.failed(&lease.about(), result);
                None
            }
        }
    }

    fn failed(&self, about: &About<'_>, result: &Result<Renewed, Failure>) {
        let what = match result {
            Err(failure) => What::RenewFailed {
                failures: 1,
                unknown: failure.unknown,
            },
            Ok(_) => What::NotOwned { op: Op::Renew },
        };
        self.recorder.tell(about, what);
    }

    fn found(&self, renewal: &Renewal, now: Moment) -> Option<Lease> {
        Some(Lease {
            id: 0,
            name: renewal.name.clone(),
            class: renewal.token.class().to_owned(),
            holder: holder(&renewal.token)?,
            fence: renewal.fence,
            since: now,
            until: now + renewal.kept(),
            asked: None,
        })
    }

    /// A release was answered. `undo` says that it may never have been granted.
    pub(crate) fn released(&self, name: &Name, token: &Token, given: Given, undo: bool, now: Moment) {
        let lease = self.table().remove(token.expose());
        match (lease, given) {
            (Some(lease), Given::Released) => {
                let held = now.since(lease.since);
                self.recorder
                    .tell(&lease.about(), What::Released { held, attempts: 1 });
            }
            (Some(lease), Given::NotOwned) => {
                let held = now.since(lease.since);
                let about = lease.about();
                self.recorder.tell(&about, What::NotOwned { op: Op::Release });
                self.recorder.tell(&about, What::AlreadyLost { held });
            }
            (None, Given::NotOwned) if !undo => {
                if let Some(holder) = holder(token) {
                    let about = About {
                        name,
                        class: token.class(),
                        holder: &holder,
                        fence: None,
                        hold: 0,
                    };
                    self.recorder.tell(&about, What::NotOwned { op: Op::Release });
                }
            }
            (None, _) => {}
        }
    }

    /// Leases that nobody has renewed in time.
    pub(crate) fn expire(&self, now: Moment) {
        let mut table = self.table();
        let over: Vec<_> = table
            .iter()
            .filter(|(_, lease)| lease.until <= now)
            .map(|(key, _)| key.clone())
            .collect();
        for key in over {
            let Some(lease) = table.remove(&key) else { continue };
            let what = What::Abandoned {
                reason: Loss::Deadline,
                held: now.since(lease.since),
            };
            self.recorder.tell(&lease.about(), what);
        }
    }

    /// Asks the holder of this grant to let go: it hears of it at its next renewal.
    pub(crate) fn ask_to_release(&self, name: &Name, fence: Fence, why: &str) {
        for lease in self.table().values_mut() {
            if lease.fence == fence && lease.name == *name {
                lease.asked = Some(why.to_owned());
            }
        }
    }

    /// An operator has ended this grant, and the stream has it.
    pub(crate) fn broken(&self, name: &Name, fence: Fence) {
        self.table()
            .retain(|_, lease| lease.fence != fence || lease.name != *name);
    }
}

fn holder(token: &Token) -> Option<Holder> {
    Holder::new(token.holder()).ok()
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The keys are secrets.
        f.debug_struct("Kept")
            .field("leases", &self.table().len())
            .finish()
    }
}
