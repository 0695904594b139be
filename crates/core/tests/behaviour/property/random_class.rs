//! Classes of any legal shape, drawn from a seed.

use std::time::Duration;

use leasehold_core::clock::Moment;
use leasehold_core::policy::{Class, Enforcement, OnError, OnFailure, PolicyBook, ReleaseWhen, check};
use leasehold_core::rng::{RandomExt, SeededRandom};
use leasehold_core::types::Ttl;

/// A class of any legal shape, mostly with a short TTL.
pub(super) fn random_class(random: &SeededRandom) -> Class {
    let chance = |per_mille: u64| random.below(1_000) < per_mille;
    let book = PolicyBook::builtin();
    let names = book.classes();
    let name = &names[usize::try_from(random.below(names.len() as u64)).unwrap()];
    let mut class = (*book.class(name, Moment::ZERO).unwrap()).clone();
    let ttl = Duration::from_millis(200 + random.below(3_801));
    class.ttl = Ttl::new(ttl).unwrap();
    class.drift = Class::default_drift(ttl);
    class.stop_grace = if chance(250) { ttl / 10 } else { Duration::ZERO };
    class.max_hold = chance(250).then(|| ttl * 3);
    if chance(150) {
        class.mode = Enforcement::Shadow;
    }
    let flip = |this: OnFailure, other: OnFailure| if chance(500) { this } else { other };
    class.acquire.wait = if chance(500) { ttl } else { Duration::ZERO };
    class.acquire.retry = Duration::from_millis(5);
    class.acquire.timeout = ttl / 2;
    class.acquire.on_error = if chance(400) { OnError::FailOpen } else { OnError::FailClosed };
    class.acquire.on_heal_conflict = flip(OnFailure::Fence, OnFailure::Continue);
    class.renew.every = chance(850).then(|| ttl / 3);
    class.renew.timeout = ttl / 8;
    class.renew.max_failures = 1 + u32::try_from(random.below(4)).unwrap_or(0);
    class.renew.on_failure = flip(OnFailure::Fence, OnFailure::Continue);
    class.release.attempts = 1 + u32::try_from(random.below(3)).unwrap_or(0);
    class.release.timeout = ttl / 4;
    class.release.lock_delay = if chance(250) { ttl / 2 } else { Duration::ZERO };
    class.release.when = if chance(150) { ReleaseWhen::Expired } else { ReleaseWhen::Finished };
    check(&class).expect("only legal classes are simulated");
    class
}
