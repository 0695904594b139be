/// A fault that only this kind of store has. Faults of workers, clocks and networks are the
/// drill's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreFault {
    /// Its name in reports.
    pub name: &'static str,
    /// A short description for the history.
    pub description: &'static str,
    /// Whether the store loses leases that it has granted.
    pub loses_leases: bool,
}

impl StoreFault {
    /// A fault that loses no lease.
    #[must_use]
    pub const fn new(name: &'static str, description: &'static str) -> Self {
        Self { name, description, loses_leases: false }
    }

    /// A fault that loses leases.
    #[must_use]
    pub const fn losing_leases(name: &'static str, description: &'static str) -> Self {
        Self { name, description, loses_leases: true }
    }
}

/// What a throw-away store can be made to do, beyond its own faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TestbedAbility {
    /// Is reached over a network, so that a fault proxy can be put in front of it.
    Network,
    /// The fault proxy understands its commands, so that single ones can be lost and repeated.
    Commands,
    /// Is a server that can be stopped, and started again at the same address.
    Restart,
    /// Times leases by the wall clock of its server, which a wrapper can fake.
    ServerClock,
    /// Can evict leases when its memory is full.
    Evict,
    /// Can have a replica that takes over.
    FailOver,
    /// Can list its fence counters.
    FenceCounters,
}

/// What drills and help texts need to know about the testbeds of a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct TestbedInfo {
    /// Its name on the command line and in reports.
    pub name: &'static str,
    /// What a throw-away store is, in one line.
    pub summary: &'static str,
    /// Its own faults, in the order that seeds refer to.
    pub faults: &'static [StoreFault],
    /// What else it can do.
    pub abilities: &'static [TestbedAbility],
    /// Its share of the seeds of random drills, relative to other stores. 0: only on request.
    pub seed_share: u64,
}

impl TestbedInfo {
    /// A testbed without faults or abilities of its own, which random drills use on request only.
    #[must_use]
    pub const fn new(name: &'static str, summary: &'static str) -> Self {
        Self { name, summary, faults: &[], abilities: &[], seed_share: 0 }
    }

    /// Sets its own faults.
    #[must_use]
    pub const fn with_faults(mut self, faults: &'static [StoreFault]) -> Self {
        self.faults = faults;
        self
    }

    /// Sets its abilities.
    #[must_use]
    pub const fn with_abilities(mut self, abilities: &'static [TestbedAbility]) -> Self {
        self.abilities = abilities;
        self
    }

    /// Sets its share of the seeds of random drills. A change changes what seeds mean.
    #[must_use]
    pub const fn with_seed_share(mut self, share: u64) -> Self {
        self.seed_share = share;
        self
    }

    /// Whether it has this ability.
    #[must_use]
    pub fn can(&self, ability: TestbedAbility) -> bool {
        self.abilities.contains(&ability)
    }
}
