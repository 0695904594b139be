//! The plan of a seed: number of clients, classes, faults, and the injected mistake.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use leasehold_core::clock::Moment;
use leasehold_core::policy::{Class, Enforcement, OnError, OnFailure, PolicyBook, ReleaseWhen, check};
use leasehold_core::types::Ttl;

use crate::clock::{Nanos, SEC};
use crate::random::SimRandom;

/// A known mistake of real lock libraries, injected on purpose: the oracle must catch each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mistake {
    /// No mistake: every promise must hold.
    Nothing,
    /// The deadline counts from the response.
    DeadlineFromReply,
    /// No margin for drifting clocks.
    NoMargin,
    /// A margin for the error of one clock only.
    HalfMargin,
    /// The store gives a token its earlier fence again, although that lease has expired.
    FenceRepeated,
    /// The store ends any lease of the name.
    ReleaseWithoutComparing,
    /// The store extends any lease of the name.
    RenewWithoutComparing,
    /// The store extends an expired lease.
    RenewRevives,
    /// Fences come from a counter that a data loss resets.
    PlainCounter,
    /// An acquire that timed out is reported as not acquired, without an undo.
    NoUndo,
    /// A hold that ends without a release does not undo its requests that still arrive.
    NoLateUndo,
    /// After an ambiguous release, *not owned* is reported as a fault.
    SecondNotOwnedIsAnError,
    /// Work checks a flag that the keeper sets, not the clock.
    CachedValidity,
    /// Only failures end a hold, not its deadline.
    FailuresOnly,
    /// *Not owned* counts as one failure among others.
    NotOwnedIsAFailure,
    /// The target accepts every write: the control, which shows that the target's check is what keeps I3.
    UnfencedTarget,
}

/// The probability of each fault, in thousandths; zero if this history does not have it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FaultRates {
    /// A request never arrives.
    pub(crate) drop: u64,
    /// A request is refused at once: definitely not executed.
    pub(crate) refuse: u64,
    /// The connection breaks: the outcome is unknown, and the request may still arrive.
    pub(crate) reset: u64,
    /// The response never arrives.
    pub(crate) mute: u64,
    /// A request takes about its whole timeout, or far longer.
    pub(crate) slow: u64,
    /// A request arrives a second time, later.
    pub(crate) repeat: u64,
    /// A wake-up hint is lost.
    pub(crate) hint: u64,
    /// A client pauses.
    pub(crate) pause: u64,
    /// A client crashes and restarts.
    pub(crate) crash: u64,
    /// The store is unreachable.
    pub(crate) outage: u64,
    /// The store loses everything.
    pub(crate) forget: u64,
    /// A class changes.
    pub(crate) policy: u64,
    /// A caller cancels its acquire.
    pub(crate) cancel: u64,
    /// A client ends all its holds.
    pub(crate) shutdown: u64,
}

impl FaultRates {
    /// All of them, by reference, for shrinking one at a time.
    pub(crate) fn each(&mut self) -> [&mut u64; 14] {
        [
            &mut self.drop,
            &mut self.refuse,
            &mut self.reset,
            &mut self.mute,
            &mut self.slow,
            &mut self.repeat,
            &mut self.hint,
            &mut self.pause,
            &mut self.crash,
            &mut self.outage,
            &mut self.forget,
            &mut self.policy,
            &mut self.cancel,
            &mut self.shutdown,
        ]
    }
}

/// One history before it runs.
#[derive(Debug, Clone)]
pub(crate) struct SimPlan {
    pub(crate) seed: u64,
    pub(crate) clients: usize,
    pub(crate) names: usize,
    pub(crate) classes: Vec<Arc<Class>>,
    /// Whether the store queues waiters.
    pub(crate) queue: bool,
    /// When faults end and healing begins.
    pub(crate) horizon: Nanos,
    pub(crate) faults: FaultRates,
    pub(crate) mistake: Mistake,
}

static BUILTIN_CLASSES: LazyLock<Vec<Arc<Class>>> = LazyLock::new(|| {
    let book = PolicyBook::builtin();
    let class = |name: &Arc<str>| book.class(name, Moment::ZERO).unwrap();
    book.classes().iter().map(class).collect()
});

pub(crate) fn built_in(name: &str) -> Arc<Class> {
    let found = BUILTIN_CLASSES.iter().find(|class| &*class.name == name);
    Arc::clone(found.unwrap())
}

fn any_built_in(dice: &SimRandom) -> Class {
    (*BUILTIN_CLASSES[dice.index(BUILTIN_CLASSES.len())]).clone()
}

impl SimPlan {
    /// Derives the plan from a seed.
    pub(crate) fn new(seed: u64, mistake: Mistake) -> Self {
        let dice = SimRandom::new(seed ^ 0x51_0b_ad_5e_ed);
        let classes: Vec<_> = (0..=dice.below(3))
            .map(|n| {
                let mut class = if dice.chance(300) { any_built_in(&dice) } else { random_class(&dice) };
                class.name = format!("c{n}").into();
                Arc::new(apply_number_mistake(class, mistake))
            })
            .collect();
        let longest = classes.iter().map(|class| class.ttl.as_millis()).max().unwrap_or(0);
        // Swarm: most histories see a few kinds of fault, each often, so that rare pairs meet.
        let some = |most: u64| {
            if dice.chance(400) { dice.between(1, most) } else { 0 }
        };
        let faults = FaultRates {
            drop: some(300),
            refuse: some(300),
            reset: some(300),
            mute: some(300),
            slow: some(300),
            repeat: some(300),
            hint: some(1_000),
            pause: some(300),
            crash: some(150),
            outage: some(300),
            forget: some(150),
            policy: some(300),
            cancel: some(400),
            shutdown: some(150),
        };
        Self {
            seed,
            clients: 2 + dice.index(3),
            names: 1 + dice.index(2),
            queue: dice.chance(700),
            horizon: (longest * 3 * 1_000_000).clamp(3 * SEC, 150 * SEC),
            classes,
            faults,
            mistake,
        }
    }
}

/// A class of any legal shape, mostly with a short TTL: short leases meet faults more often.
pub(crate) fn random_class(dice: &SimRandom) -> Class {
    let mut class = any_built_in(dice);
    let ttl = Duration::from_millis(dice.between(200, 4_000));
    class.ttl = Ttl::new(ttl).unwrap();
    class.drift = Class::default_drift(ttl);
    class.stop_grace = if dice.chance(250) { ttl / 10 } else { Duration::ZERO };
    class.max_hold = dice.chance(250).then(|| ttl * 3);
    if dice.chance(150) {
        class.mode = Enforcement::Shadow;
    }
    let flip = |this: OnFailure, other: OnFailure| if dice.chance(500) { this } else { other };
    class.acquire.wait = if dice.chance(500) { ttl } else { Duration::ZERO };
    class.acquire.retry = Duration::from_millis(5);
    class.acquire.timeout = ttl / 2;
    class.acquire.on_error = if dice.chance(400) { OnError::FailOpen } else { OnError::FailClosed };
    class.acquire.on_heal_conflict = flip(OnFailure::Fence, OnFailure::Continue);
    class.renew.every = dice.chance(850).then(|| ttl / 3);
    class.renew.timeout = ttl / 8;
    class.renew.max_failures = 1 + u32::try_from(dice.below(4)).unwrap_or(0);
    class.renew.on_failure = flip(OnFailure::Fence, OnFailure::Continue);
    class.release.attempts = 1 + u32::try_from(dice.below(3)).unwrap_or(0);
    class.release.timeout = ttl / 4;
    class.release.lock_delay = if dice.chance(250) { ttl / 2 } else { Duration::ZERO };
    class.release.when = if dice.chance(150) { ReleaseWhen::Expired } else { ReleaseWhen::Finished };
    check(&class).expect("only legal classes are simulated");
    class
}

/// A random changed version of a class. It keeps the class's name, so it reaches running holds.
pub(crate) fn changed_class(from: &Class, dice: &SimRandom, mistake: Mistake) -> Arc<Class> {
    let mut class = random_class(dice);
    class.name = Arc::clone(&from.name);
    Arc::new(apply_number_mistake(class, mistake))
}

/// Applies the mistakes that only change the class's numbers.
fn apply_number_mistake(mut class: Class, mistake: Mistake) -> Class {
    match mistake {
        Mistake::NoMargin => class.drift = Duration::ZERO,
        Mistake::HalfMargin => class.drift = class.ttl.get() / 200,
        _ => {}
    }
    class
}
