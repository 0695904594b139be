//! The reference semantics as a pure table: no lock, no clock, no task. Every store must answer like this one.

use std::collections::{BTreeMap, HashMap};

use crate::clock::Moment;
use crate::store::{
    Answer, Ask, Busy, CLAIM, Cause, Claim, Failure, Given, Giving, Grant, Lease, Listing, Mode, Renewal,
    Renewed,
};
use crate::word::{Fence, Name, Token};

/// How many fence counters there are. Names share them, so their number does not grow with the names; a shared
/// counter only makes fences grow faster.
const COUNTERS: usize = 256;

/// What is known of one name.
#[derive(Debug, Default, Clone)]
struct Row {
    lease: Option<Held>,
    /// In the order of arrival.
    queue: Vec<Waiter>,
}

#[derive(Debug, Clone)]
struct Held {
    token: Token,
    fence: Fence,
    since: Moment,
    expires: Moment,
    /// Handed over and not yet asked for: it lives for the claim, not for its owner's TTL.
    claim: bool,
}

#[derive(Debug, Clone)]
struct Waiter {
    token: Token,
    expires: Moment,
    /// As in its last ask: a lease handed over to it is a new grant too.
    floor: Option<Fence>,
}

/// A released lease's next owner, to be woken.
pub type Woken = Option<Token>;

/// All leases, waiters, tombstones and fence counters.
#[derive(Debug, Clone)]
pub struct Table {
    rows: BTreeMap<Name, Row>,
    /// Undone tokens and until when they are refused.
    voided: HashMap<Token, Moment>,
    counters: Vec<u64>,
}

impl Default for Table {
    fn default() -> Self {
        Self {
            rows: BTreeMap::new(),
            voided: HashMap::new(),
            counters: vec![0; COUNTERS],
        }
    }
}

impl Table {
    /// See [`Store::acquire`](crate::store::Store::acquire). `micros` is the store's own clock, as the fence's floor.
    ///
    /// # Errors
    /// A mode other than exclusive, or a fence that would no longer fit.
    pub fn acquire(&mut self, ask: &Ask, now: Moment, micros: u64) -> Result<Answer, Failure> {
        if ask.mode != Mode::Exclusive {
            return Err(Failure::not_done(
                Cause::Unsupported,
                "this store serves exclusive leases only",
            ));
        }
        self.sweep(now);
        if self.voided.get(&ask.token).is_some_and(|until| *until > now) {
            return Ok(Answer::Void);
        }
        let row = self.rows.entry(ask.name.clone()).or_default();
        if let Some(held) = row.lease.as_mut().filter(|held| held.expires > now) {
            if held.token == ask.token {
                let expires = now + ask.kept();
                // Never shorter: a late repetition, sent before the policy lengthened the TTL, must not cut the lease.
                held.expires = if held.claim {
                    expires
                } else {
                    held.expires.max(expires)
                };
                held.claim = false;
                row.queue.retain(|waiter| waiter.token != ask.token);
                return Ok(Answer::Granted(Grant {
                    fence: held.fence,
                    ttl: None,
                }));
            }
            if let Some(keep) = ask.queue {
                let expires = now + keep;
                // A registration that has run out has lost its place, whether or not it was swept meanwhile.
                row.queue.retain(|waiter| waiter.expires > now);
                match row.queue.iter_mut().find(|waiter| waiter.token == ask.token) {
                    Some(waiter) => {
                        waiter.expires = expires;
                        waiter.floor = ask.floor;
                    }
                    None => row.queue.push(Waiter {
                        token: ask.token.clone(),
                        expires,
                        floor: ask.floor,
                    }),
                }
            }
            return Ok(Answer::Busy(Busy {
                holder: held.token.holder().to_owned(),
                class: Some(held.token.class().to_owned()),
                fence: Some(held.fence),
                remaining: Some(held.expires.since(now)),
                queued: ask.queue.is_some(),
            }));
        }
        let fence = next_fence(&mut self.counters, &ask.name, micros, ask.floor)?;
        row.queue.retain(|waiter| waiter.token != ask.token);
        row.lease = Some(Held {
            token: ask.token.clone(),
            fence,
            since: now,
            expires: now + ask.kept(),
            claim: false,
        });
        Ok(Answer::Granted(Grant { fence, ttl: None }))
    }

    /// See [`Store::renew`](crate::store::Store::renew).
    pub fn renew(&mut self, renewal: &Renewal, now: Moment) -> Renewed {
        let held = self
            .rows
            .get_mut(&renewal.name)
            .and_then(|row| row.lease.as_mut());
        match held {
            Some(held)
                if held.token == renewal.token && held.fence == renewal.fence && held.expires > now =>
            {
                let was_left = Some(held.expires.since(now));
                // Never shorter, as above.
                held.expires = held.expires.max(now + renewal.kept());
                Renewed::Extended { was_left }
            }
            _ => Renewed::NotOwned,
        }
    }

    /// See [`Store::release`](crate::store::Store::release). `alive` tells whether a waiter can still be woken.
    pub fn release(
        &mut self,
        giving: &Giving,
        now: Moment,
        micros: u64,
        mut alive: impl FnMut(&Token) -> bool,
    ) -> (Given, Woken) {
        if let (Claim::Owner(token), Some(keep)) = (&giving.claim, giving.tombstone) {
            self.voided.insert(token.clone(), now + keep);
        }
        let Some(row) = self.rows.get_mut(&giving.name) else {
            return (Given::NotOwned, None);
        };
        if let Claim::Owner(token) | Claim::Place(token) = &giving.claim {
            row.queue.retain(|waiter| waiter.token != *token);
        }
        let live = row.lease.as_ref().filter(|held| held.expires > now);
        let ours = live.is_some_and(|held| match &giving.claim {
            Claim::Owner(token) => held.token == *token,
            Claim::Seen(fence) => held.fence == *fence,
            Claim::Place(_) => false,
        });
        if !ours {
            return (Given::NotOwned, None);
        }
        row.lease = None;
        let mut woken = None;
        while woken.is_none() && !row.queue.is_empty() {
            let waiter = row.queue.remove(0);
            if waiter.expires <= now || !alive(&waiter.token) {
                continue;
            }
            // A counter at its end leaves the name free; the waiter then hears of it when it asks.
            let Ok(fence) = next_fence(&mut self.counters, &giving.name, micros, waiter.floor) else {
                break;
            };
            row.lease = Some(Held {
                token: waiter.token.clone(),
                fence,
                since: now,
                expires: now + CLAIM,
                claim: true,
            });
            woken = Some(waiter.token);
        }
        if row.lease.is_none() && row.queue.is_empty() {
            self.rows.remove(&giving.name);
        }
        (Given::Released, woken)
    }

    /// See [`Store::inspect`](crate::store::Store::inspect).
    #[must_use]
    pub fn inspect(&self, name: &Name, now: Moment) -> Option<Lease> {
        self.rows.get(name).and_then(|row| show(name, row, now))
    }

    /// See [`Store::list`](crate::store::Store::list).
    #[must_use]
    pub fn list(&self, prefix: &str, limit: usize, now: Moment) -> Listing {
        let mut found = self
            .rows
            .iter()
            .filter(|(name, _)| name.as_str().starts_with(prefix))
            .filter_map(|(name, row)| show(name, row, now));
        let leases: Vec<_> = found.by_ref().take(limit).collect();
        Listing {
            leases,
            truncated: found.next().is_some(),
        }
    }

    /// Forgets everything but nothing else happens: what a flush, or a fail-over to an empty replica, does.
    pub fn lose_everything(&mut self) {
        *self = Self::default();
    }

    /// Rows, waiters and tombstones that are kept: what must return to the baseline (L3).
    #[must_use]
    pub fn footprint(&self) -> (usize, usize, usize) {
        (
            self.rows.len(),
            self.rows.values().map(|row| row.queue.len()).sum(),
            self.voided.len(),
        )
    }

    /// Drops what has run out, a bounded amount each time the table has grown, so that memory stays bounded
    /// without a background task.
    fn sweep(&mut self, now: Moment) {
        if self.voided.len() >= 1024 {
            self.voided.retain(|_, until| *until > now);
        } else {
            let gone: Vec<_> = self
                .voided
                .iter()
                .take(8)
                .filter(|(_, until)| **until <= now)
                .map(|(token, _)| token.clone())
                .collect();
            gone.iter().for_each(|token| {
                self.voided.remove(token);
            });
        }
        let gone: Vec<_> = self
            .rows
            .iter()
            .take(8)
            .filter(|(_, row)| stale(row, now))
            .map(|(name, _)| name.clone())
            .collect();
        gone.iter().for_each(|name| {
            self.rows.remove(name);
        });
    }
}

fn stale(row: &Row, now: Moment) -> bool {
    row.lease.as_ref().is_none_or(|held| held.expires <= now)
        && row.queue.iter().all(|waiter| waiter.expires <= now)
}

fn show(name: &Name, row: &Row, now: Moment) -> Option<Lease> {
    let held = row.lease.as_ref().filter(|held| held.expires > now)?;
    Some(Lease {
        name: name.clone(),
        holder: held.token.holder().to_owned(),
        class: Some(held.token.class().to_owned()),
        fence: Some(held.fence),
        remaining: Some(held.expires.since(now)),
        age: Some(now.since(held.since)),
        waiters: u64::try_from(row.queue.iter().filter(|waiter| waiter.expires > now).count()).ok(),
    })
}

/// `max(last + 1, the store's time in microseconds, floor)`, so that a store that lost its counter does not go
/// back as long as its clock did not.
fn next_fence(
    counters: &mut [u64],
    name: &Name,
    micros: u64,
    floor: Option<Fence>,
) -> Result<Fence, Failure> {
    let slot = slot(name, counters.len());
    let last = counters.get(slot).copied().unwrap_or(0);
    let next = (last + 1)
        .max(micros)
        .max(floor.map_or(0, |floor| floor.get().saturating_add(1)));
    let fence = Fence::new(next).ok_or_else(|| {
        Failure::not_done(
            Cause::Corrupt,
            format!("the fence counter stands at {last} and cannot grow"),
        )
    })?;
    if let Some(counter) = counters.get_mut(slot) {
        *counter = next;
    }
    Ok(fence)
}

/// FNV-1a: stable, and good enough to spread names.
fn slot(name: &Name, slots: usize) -> usize {
    let hash = name
        .as_str()
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
    usize::try_from(hash % u64::try_from(slots.max(1)).unwrap_or(1)).unwrap_or(0)
}
