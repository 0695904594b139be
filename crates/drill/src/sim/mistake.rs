//! Known mistakes, put back on purpose: a simulation that does not catch them is blind.
//!
//! They sit around the client, in its store, its clock, its target and the code that uses it, because the client itself is
//! the real one; mistakes inside its machines are put back by the core's own simulation and by the seeded bugs.

/// A mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mistake {
    /// None: every promise must hold.
    #[default]
    Nothing,
    /// The target takes every write: the control that must fail.
    UnfencedTarget,
    /// The store ends a lease whoever asks.
    ReleaseWithoutComparing,
    /// The store extends a lease whoever asks.
    RenewWithoutComparing,
    /// The store's fence counter has neither the time nor the client's highest fence as its floor.
    CounterWithoutFloor,
    /// The store answers a repeated owner with the fence it had before.
    FenceRepeated,
    /// The store keeps no tombstones: an ask that arrives after its undo is granted.
    NoTombstone,
    /// The store keeps leases for half of what was asked and does not say so.
    ShortLease,
    /// The client's library takes silence for a no.
    SilenceIsANo,
    /// The holder's clock stands still while its process does.
    ClockStopsWithProcess,
    /// The holder's clock can be stepped back.
    SteppedClock,
    /// The work looks at its hold once and believes it for ever.
    CachedValidity,
    /// The store hands a released lease to the first waiter for ever, dead or alive.
    DeadWaiterKeepsLease,
    /// Whoever waited last is served first.
    LastComeFirstServed,
    /// A task of the process panics when its write is refused, and nobody waits for that task.
    PanicsWhenRefused,
    /// The store takes an undo for a renewal: the lease that nobody wants goes on.
    UndoRenews,
    /// The store keeps the place of a waiter that has left.
    PlaceStays,
}

impl Mistake {
    /// Every mistake that must be caught.
    pub const ALL: [Self; 16] = [
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
    ];

    /// As people type it.
    #[must_use]
    pub const fn word(self) -> &'static str {
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
        }
    }

    /// The mistake of this name.
    #[must_use]
    pub fn find(word: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .chain([Self::Nothing])
            .find(|mistake| mistake.word() == word)
    }

    /// The promise that it breaks.
    #[must_use]
    pub const fn breaks(self) -> &'static str {
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
            Self::CachedValidity => "I5",
            Self::PanicsWhenRefused | Self::UndoRenews | Self::PlaceStays => "L3",
            Self::DeadWaiterKeepsLease => "L5",
            Self::LastComeFirstServed => "L6",
        }
    }
}
