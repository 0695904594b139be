//! Known bugs that can be reintroduced. A simulation that does not find them is blind.
//!
//! They sit around the client (store, clock, target, calling code), because the client itself is the
//! real one. Bugs inside its machines are seeded bugs: `proof/bugs` puts them into the real code.

/// A known bug to reintroduce.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mistake {
    /// No bug: every promise must hold.
    #[default]
    Nothing,
    /// The target applies every write: the control that must fail.
    UnfencedTarget,
    /// The store ends a lease without comparing the owner.
    ReleaseWithoutComparing,
    /// The store extends a lease without comparing the owner.
    RenewWithoutComparing,
    /// The store's fence counter has no floor, neither the time nor the client's highest fence.
    CounterWithoutFloor,
    /// The store answers a returning owner with its earlier fence.
    FenceRepeated,
    /// The store keeps no tombstones, so a request that arrives after its undo is granted.
    NoTombstone,
    /// The store keeps leases for half the requested time and does not report it.
    ShortLease,
    /// The client treats a lost response as a refusal.
    SilenceIsANo,
    /// The holder's clock stops while its process is paused.
    ClockStopsWithProcess,
    /// The holder's clock can step back.
    SteppedClock,
    /// The work checks its hold once and never again.
    CachedValidity,
    /// The store hands a released lease to the first waiter, dead or alive.
    DeadWaiterKeepsLease,
    /// The latest waiter is served first.
    LastComeFirstServed,
    /// A detached task of the process panics when its write is refused.
    PanicsWhenRefused,
    /// The store treats an undo as a renewal, so the unwanted lease goes on.
    UndoRenews,
    /// The store keeps the queue entry of a waiter that has left.
    PlaceStays,
    /// The store extends an expired lease.
    RenewRevives,
    /// The store answers a release that it executed as *not owned*.
    ReleaseDenied,
    /// The client is given *not owned* as an error of the store.
    NotOwnedIsAnError,
    /// Clocks differ by more than a lease's margin allows.
    FastClocks,
}

impl Mistake {
    /// Every mistake that the simulation must find.
    pub const ALL: [Self; 20] = [
        Self::UnfencedTarget,
        Self::ReleaseWithoutComparing,
        Self::RenewWithoutComparing,
        Self::CounterWithoutFloor,
        Self::FenceRepeated,
        Self::NoTombstone,
        Self::ShortLease,
        Self::SilenceIsANo,
        Self::ClockStopsWithProcess,
        Self::SteppedClock,
        Self::CachedValidity,
        Self::DeadWaiterKeepsLease,
        Self::LastComeFirstServed,
        Self::PanicsWhenRefused,
        Self::UndoRenews,
        Self::PlaceStays,
        Self::RenewRevives,
        Self::ReleaseDenied,
        Self::NotOwnedIsAnError,
        Self::FastClocks,
    ];

    /// The name used on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nothing => "none",
            Self::UnfencedTarget => "unfenced-target",
            Self::ReleaseWithoutComparing => "release-without-comparing",
            Self::RenewWithoutComparing => "renew-without-comparing",
            Self::CounterWithoutFloor => "counter-without-floor",
            Self::FenceRepeated => "fence-repeated",
            Self::NoTombstone => "no-tombstone",
            Self::ShortLease => "short-lease",
            Self::SilenceIsANo => "silence-is-a-no",
            Self::ClockStopsWithProcess => "clock-stops-with-process",
            Self::SteppedClock => "stepped-clock",
            Self::CachedValidity => "cached-validity",
            Self::DeadWaiterKeepsLease => "dead-waiter-keeps-lease",
            Self::LastComeFirstServed => "last-come-first-served",
            Self::PanicsWhenRefused => "panics-when-refused",
            Self::UndoRenews => "undo-renews",
            Self::PlaceStays => "place-stays",
            Self::RenewRevives => "renew-revives",
            Self::ReleaseDenied => "release-denied",
            Self::NotOwnedIsAnError => "not-owned-is-an-error",
            Self::FastClocks => "fast-clocks",
        }
    }

    /// The mistake with this command-line name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().chain([Self::Nothing]).find(|mistake| mistake.name() == name)
    }

    /// The number of the promise that the mistake breaks.
    #[must_use]
    pub const fn broken_promise(self) -> &'static str {
        match self {
            Self::Nothing => "",
            Self::UnfencedTarget => "I3",
            Self::ReleaseWithoutComparing
            | Self::RenewWithoutComparing
            | Self::ShortLease
            | Self::ClockStopsWithProcess
            | Self::SteppedClock => "I1",
            Self::CounterWithoutFloor | Self::FenceRepeated => "I2",
            Self::NoTombstone | Self::SilenceIsANo => "I6",
            Self::RenewRevives => "I4",
            Self::CachedValidity | Self::NotOwnedIsAnError | Self::FastClocks => "I5",
            Self::ReleaseDenied => "I7",
            Self::PanicsWhenRefused | Self::UndoRenews | Self::PlaceStays => "L3",
            Self::DeadWaiterKeepsLease => "L5",
            Self::LastComeFirstServed => "L6",
        }
    }
}
