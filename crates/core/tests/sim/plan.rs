//! What a seed means: how many clients, which classes, which faults, and which known mistake is put back.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use leasehold_core::clock::Moment;
use leasehold_core::policy::{Class, Enforcement, OnError, OnFailure, PolicyBook, ReleaseWhen, check};
use leasehold_core::word::Ttl;

use crate::clock::{Nanos, SEC};
use crate::dice::Dice;

/// A mistake that real lock libraries make, put back on purpose: the net must catch each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mistake {
    /// None: everything must hold.
    Nothing,
    /// The deadline counts from the answer.
    DeadlineFromReply,
    /// Nothing is taken off for drifting clocks.
    NoMargin,
    /// Only one clock's error is taken off.
    HalfMargin,
    /// The store gives a token the fence it once had, although that lease has run out.
    FenceRepeated,
    /// The store ends whatever lease is there.
    ReleaseWithoutComparing,
    /// The store extends whatever lease is there.
    RenewWithoutComparing,
    /// The store extends a lease that has run out.
    RenewRevives,
    /// Fences come from a counter that a loss resets.
    PlainCounter,
    /// An acquire that timed out is reported as not acquired, and forgotten.
    NoUndo,
    /// A hold that ends without giving its lease back leaves it to itself what of its asks still arrives.
    NoForget,
    /// After an ambiguous release, *not owned* is reported as a fault.
    SecondNotOwnedIsAFault,
    /// Work asks a flag that the keeper sets, not the clock.
    CachedValidity,
    /// Only strikes end a hold, not its deadline.
    StrikesOnly,
    /// *Not owned* is one failure among others.
    NotOwnedIsAStrike,
    /// The target takes every write: the control that shows that the target's check is what keeps I3.
    UnfencedTarget,
}

/// How often each fault strikes, in a thousand; zero where this history is spared it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Faults {
    /// A request never arrives.
    pub(crate) drop: u64,
    /// A request is refused at once: definitely not done.
    pub(crate) refuse: u64,
    /// The connection breaks: unknown, and the request may still arrive.
    pub(crate) reset: u64,
    /// The answer never arrives.
    pub(crate) mute: u64,
    /// A request takes about its whole budget, or far more.
    pub(crate) slow: u64,
    /// A request arrives a second time, later.
    pub(crate) repeat: u64,
    /// A wake-up hint is lost.
    pub(crate) hint: u64,
    /// A client stands still.
    pub(crate) pause: u64,
    /// A client dies and comes back.
    pub(crate) crash: u64,
    /// The store is away.
    pub(crate) outage: u64,
    /// The store forgets everything.
    pub(crate) forget: u64,
    /// A class changes.
    pub(crate) policy: u64,
    /// A caller drops its acquire.
    pub(crate) cancel: u64,
    /// A client ends all its holds.
    pub(crate) shutdown: u64,
}

impl Faults {
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
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) clients: usize,
    pub(crate) names: usize,
    pub(crate) classes: Vec<Arc<Class>>,
    /// The store can hand over to waiters.
    pub(crate) queue: bool,
    /// When faults end and healing begins.
    pub(crate) horizon: Nanos,
    pub(crate) faults: Faults,
    pub(crate) mistake: Mistake,
}

static BUILT_IN: LazyLock<Vec<Arc<Class>>> = LazyLock::new(|| {
    let book = PolicyBook::builtin();
    let class = |name: &Arc<str>| book.class(name, Moment::ZERO).unwrap();
    book.classes().iter().map(class).collect()
});

/// A built-in class.
pub(crate) fn built_in(name: &str) -> Arc<Class> {
    let found = BUILT_IN.iter().find(|class| &*class.name == name);
    Arc::clone(found.unwrap())
}

fn any_built_in(dice: &Dice) -> Class {
    (*BUILT_IN[dice.index(BUILT_IN.len())]).clone()
}

impl Plan {
    /// The history of a seed.
    pub(crate) fn new(seed: u64, mistake: Mistake) -> Self {
        let dice = Dice::new(seed ^ 0x51_0b_ad_5e_ed);
        let classes: Vec<_> = (0..=dice.below(3))
            .map(|n| {
                let mut class = if dice.chance(300) {
                    any_built_in(&dice)
                } else {
                    tailored(&dice)
                };
                class.name = format!("c{n}").into();
                Arc::new(suit(class, mistake))
            })
            .collect();
        let longest = classes
            .iter()
            .map(|class| class.ttl.as_millis())
            .max()
            .unwrap_or(0);
        // Swarm: most histories see a few kinds of fault, each often, so that rare pairs meet.
        let some = |most: u64| {
            if dice.chance(400) {
                dice.between(1, most)
            } else {
                0
            }
        };
        let faults = Faults {
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
pub(crate) fn tailored(dice: &Dice) -> Class {
    let mut class = any_built_in(dice);
    let ttl = Duration::from_millis(dice.between(200, 4_000));
    class.ttl = Ttl::new(ttl).unwrap();
    class.drift = Class::default_drift(ttl);
    class.stop_grace = if dice.chance(250) {
        ttl / 10
    } else {
        Duration::ZERO
    };
    class.max_hold = dice.chance(250).then(|| ttl * 3);
    if dice.chance(150) {
        class.mode = Enforcement::Shadow;
    }
    let flip = |this: OnFailure, other: OnFailure| if dice.chance(500) { this } else { other };
    class.acquire.wait = if dice.chance(500) { ttl } else { Duration::ZERO };
    class.acquire.retry = Duration::from_millis(5);
    class.acquire.timeout = ttl / 2;
    class.acquire.on_error = if dice.chance(400) {
        OnError::FailOpen
    } else {
        OnError::FailClosed
    };
    class.acquire.on_heal_conflict = flip(OnFailure::Fence, OnFailure::Continue);
    class.renew.every = dice.chance(850).then(|| ttl / 3);
    class.renew.timeout = ttl / 8;
    class.renew.max_failures = 1 + u32::try_from(dice.below(4)).unwrap_or(0);
    class.renew.on_failure = flip(OnFailure::Fence, OnFailure::Continue);
    class.release.attempts = 1 + u32::try_from(dice.below(3)).unwrap_or(0);
    class.release.timeout = ttl / 4;
    class.release.lock_delay = if dice.chance(250) { ttl / 2 } else { Duration::ZERO };
    class.release.when = if dice.chance(150) {
        ReleaseWhen::Expired
    } else {
        ReleaseWhen::Finished
    };
    check(&class).expect("only legal classes are simulated");
    class
}

/// What a changed policy may look like. It keeps the class's name, so it reaches running holds.
pub(crate) fn changed(from: &Class, dice: &Dice, mistake: Mistake) -> Arc<Class> {
    let mut class = tailored(dice);
    class.name = Arc::clone(&from.name);
    Arc::new(suit(class, mistake))
}

/// The mistakes that are a matter of the class's numbers.
fn suit(mut class: Class, mistake: Mistake) -> Class {
    match mistake {
        Mistake::NoMargin => class.drift = Duration::ZERO,
        Mistake::HalfMargin => class.drift = class.ttl.get() / 200,
        _ => {}
    }
    class
}
