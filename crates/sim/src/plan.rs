//! One history before it runs: clients, classes and faults, all drawn from the seed.
//!
//! The shrinker produces smaller plans by removing parts.

use std::collections::BTreeSet;

use leasehold_core::testbed::{SimProfile, pick_by_share};

use super::class::ClassPlan;
use super::drift::{MS, Nanos, SEC};
use super::fault::{SimFault, SimScheduledFault};
use super::mistake::Mistake;
use super::random::SimRandom;

/// Probability of each fault of a single message, per mille.
#[derive(Debug, Clone, Copy, Default)]
pub struct FaultOdds {
    /// It is lost, and its sender gets no response.
    pub drop: u64,
    /// It is refused on the way: definitely not done.
    pub refuse: u64,
    /// The connection is reset before the response. The outcome is unknown to the sender.
    pub reset: u64,
    /// Its response is lost.
    pub mute: u64,
    /// It is late, perhaps later than its sender waits.
    pub slow: u64,
    /// It is delivered twice.
    pub repeat: u64,
    /// The wake-up of a waiter is lost.
    pub hint: u64,
    /// The caller cancels its acquire.
    pub cancel: u64,
    /// The holder drops its hold without a release, or drops the release.
    pub careless: u64,
}

impl FaultOdds {
    /// Every probability, so that the shrinker can zero them one by one.
    pub(super) fn all_mut(&mut self) -> [&mut u64; 9] {
        [
            &mut self.drop,
            &mut self.refuse,
            &mut self.reset,
            &mut self.mute,
            &mut self.slow,
            &mut self.repeat,
            &mut self.hint,
            &mut self.cancel,
            &mut self.careless,
        ]
    }
}

/// What the clients talk to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Topology {
    /// The store itself.
    #[default]
    Clients,
    /// A daemon in front of the store.
    Daemon,
    /// The store itself, in short histories with many faults: see [`SimPlan::for_machines`].
    Machines,
}

/// How a task takes its locks from a daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// With the library, which uses the daemon as a store.
    Library,
    /// The daemon keeps its holds.
    Kept,
    /// It keeps its own leases with plain HTTP.
    Plain,
}

/// The daemon's part of a plan.
#[derive(Debug, Clone)]
pub struct DaemonPlan {
    /// Faults of messages between clients and daemon.
    pub odds: FaultOdds,
    /// The route of each task, by task number.
    pub routes: Vec<Route>,
    /// How long the daemon waits for a heartbeat of a hold it keeps, in milliseconds.
    pub heartbeat: u64,
}

/// One history before it runs.
#[derive(Debug, Clone)]
pub struct SimPlan {
    /// Determines every later random choice.
    pub seed: u64,
    /// How the store behaves.
    pub profile: SimProfile,
    /// Whether the store keeps wait queues and hands leases over.
    pub queue: bool,
    /// Number of client processes.
    pub clients: usize,
    /// Number of tasks per process that take locks, each under its own class.
    pub tasks: usize,
    /// Number of lock names.
    pub names: usize,
    /// One class per task.
    pub classes: Vec<ClassPlan>,
    /// When the faults end, in nanoseconds since the start.
    pub horizon: u64,
    /// Faults of messages between processes and store.
    pub odds: FaultOdds,
    /// Numbers of messages that no fault may hit; filled by the shrinker.
    pub spared_messages: BTreeSet<u64>,
    /// Faults of processes and the store, sorted by time.
    pub faults: Vec<SimScheduledFault>,
    /// The bug to reintroduce.
    pub mistake: Mistake,
    /// Present if clients go through a daemon.
    pub daemon: Option<DaemonPlan>,
}

impl SimPlan {
    /// The plan of a seed with or without a daemon.
    #[must_use]
    pub fn for_topology(topology: Topology, seed: u64, mistake: Mistake) -> Self {
        match topology {
            Topology::Clients => Self::new(seed, mistake),
            Topology::Daemon => Self::with_daemon(seed, mistake),
            Topology::Machines => Self::for_machines(seed, mistake),
        }
    }

    /// The plan of a seed with a daemon. The daemon's host comes after the clients' hosts.
    #[must_use]
    pub fn with_daemon(seed: u64, mistake: Mistake) -> Self {
        let mut plan = Self::draw(seed, mistake);
        let random = SimRandom::keyed(seed, [0xdae0, 0, 0]);
        let some = |most: u64| {
            if random.chance(350) { random.between(1, most) } else { 0 }
        };
        let odds = FaultOdds {
            drop: some(150),
            refuse: some(250),
            reset: some(200),
            mute: some(150),
            slow: some(250),
            repeat: some(200),
            ..FaultOdds::default()
        };
        // Daemon and store run close together, so half of the plans have no message faults between them.
        if random.chance(500) {
            plan.odds = FaultOdds {
                hint: plan.odds.hint,
                cancel: plan.odds.cancel,
                careless: plan.odds.careless,
                ..FaultOdds::default()
            };
        }
        plan.queue = true;
        plan.classes = (0..plan.tasks).map(|task| ClassPlan::draw(task, &random, 600)).collect();
        let longest = plan.classes.iter().map(|class| class.ttl).max().unwrap_or(0);
        plan.horizon = (longest * 3 * MS).clamp(5 * SEC, 30 * SEC);
        let routes = (0..plan.tasks).map(|_| match random.below(100) {
            0..35 => Route::Kept,
            35..65 => Route::Plain,
            _ => Route::Library,
        });
        let routes = routes.collect();
        let hosts = plan.clients + 1;
        plan.faults = (0..1 + random.below(8))
            .map(|_| {
                let mut what = SimFault::draw(&random, &plan.profile, hosts, plan.names, &plan.classes);
                // The daemon alone gets about as many process faults as all clients together.
                if random.chance(350) {
                    what.retarget(|_| plan.clients);
                }
                SimScheduledFault {
                    at: random.between(plan.horizon / 50, plan.horizon - plan.horizon / 10),
                    fault: what,
                }
            })
            .collect();
        // Short daemon restarts and partitions as well, so that holds and connections of before still
        // exist afterwards.
        let (daemon, horizon) = (plan.clients, plan.horizon);
        plan.faults.extend((0..random.below(6)).map(|_| {
            let lasts = random.between(MS, 1_500 * MS);
            let (client, silent) = (random.index(daemon), random.chance(700));
            let what = match random.below(10) {
                0..4 => SimFault::Kill { client: daemon, lasts },
                4..6 => SimFault::ShutDown { client: daemon, lasts },
                _ => SimFault::Partition { client, silent, lasts },
            };
            let at = random.between(horizon / 50, horizon - horizon / 10);
            SimScheduledFault { at, fault: what }
        }));
        plan.daemon = Some(DaemonPlan { odds, routes, heartbeat: random.between(500, 4_000) });
        plan.add_late_fault(hosts);
        plan
    }

    /// Adds a fault shortly before the faults end, in a quarter of the plans.
    pub(super) fn add_late_fault(&mut self, hosts: usize) {
        // Otherwise the effects of a fault have mostly gone by the time the recovery is checked.
        let random = SimRandom::keyed(self.seed, [0x1a7e, 0, 0]);
        if random.chance(250) {
            let before = random.pick(&[5 * MS, 50 * MS, self.horizon / 10], MS);
            let mut what = SimFault::draw(&random, &self.profile, hosts, self.names, &self.classes);
            if self.daemon.is_some() && random.chance(500) {
                let (client, lasts) = (self.clients, random.between(MS, 50 * MS));
                what = SimFault::Kill { client, lasts };
            }
            let at = self.horizon - random.between(MS, before);
            self.faults.push(SimScheduledFault { at, fault: what });
        }
        self.faults.sort_by_key(|strike| strike.at);
    }

    /// Every probability of every network, so that the shrinker can zero them one by one.
    pub(super) fn all_odds_mut(&mut self) -> Vec<&mut u64> {
        let daemon = self.daemon.as_mut().map(|daemon| daemon.odds.all_mut());
        let own = self.odds.all_mut().into_iter();
        own.chain(daemon.into_iter().flatten()).collect()
    }

    /// The daemon's host, if there is a daemon.
    pub(super) fn daemon_slot(&self) -> Option<usize> {
        self.daemon.as_ref().map(|_| self.clients)
    }

    /// The plan of a seed without a daemon.
    #[must_use]
    pub fn new(seed: u64, mistake: Mistake) -> Self {
        let mut plan = Self::draw(seed, mistake);
        plan.add_late_fault(plan.clients);
        plan
    }

    /// The whole plan except the late fault.
    pub(super) fn draw(seed: u64, mistake: Mistake) -> Self {
        let random = SimRandom::keyed(seed, [0x91a7, 0, 0]);
        let profile = draw_profile(&random);
        let tasks = 1 + random.index(3);
        let classes: Vec<_> = (0..tasks).map(|task| ClassPlan::draw(task, &random, 200)).collect();
        let longest = classes.iter().map(|class| class.ttl).max().unwrap_or(0);
        let horizon = (longest * 3 * MS).clamp(3 * SEC, 150 * SEC);
        // Swarm testing: most histories have few kinds of fault, each often, so that rare pairs meet.
        let some = |most: u64| {
            if random.chance(350) { random.between(1, most) } else { 0 }
        };
        let odds = FaultOdds {
            drop: some(250),
            refuse: some(250),
            reset: some(250),
            mute: some(250),
            slow: some(300),
            repeat: some(250),
            hint: some(1_000),
            cancel: some(400),
            careless: some(400),
        };
        let clients = 2 + random.index(3);
        let names = 1 + random.index(2);
        let count = random.below(9);
        let strikes = (0..count)
            .map(|_| SimScheduledFault {
                at: random.between(horizon / 50, horizon - horizon / 10),
                fault: SimFault::draw(&random, &profile, clients, names, &classes),
            })
            .collect();
        Self {
            seed,
            profile,
            queue: random.chance(700),
            clients,
            tasks,
            names,
            classes,
            horizon,
            odds,
            spared_messages: BTreeSet::new(),
            faults: strikes,
            mistake,
            daemon: None,
        }
    }

    /// The longest time that the store keeps any lease, overrides included.
    pub(super) fn longest_lease(&self) -> Nanos {
        let own = self.classes.iter().map(ClassPlan::lease_ms).max().unwrap_or(0);
        let overridden = self.faults.iter().map(|strike| strike.fault.lengthens_lease_by_ms()).max();
        // A daemon gives a class that continues one more TTL after the client's last heartbeat.
        let (twice, heartbeat) = match &self.daemon {
            Some(daemon) => (2, daemon.heartbeat + 100),
            None => (1, 0),
        };
        ((own + overridden.unwrap_or(0)) * twice + heartbeat).max(super::class::PROBE_TTL_MS) * MS
    }

    /// One line for people.
    #[must_use]
    pub fn summary(&self) -> String {
        let strikes: Vec<_> = self
            .faults
            .iter()
            .map(|strike| format!("{} at {:.3} s", strike.fault, strike.at as f64 / 1e9))
            .collect();
        format!(
            "{}{} on a store like {}{}, {} clients of {} tasks, {} names, {:.1} s of faults; {:?}; {}",
            self.mistake.name(),
            self.daemon
                .as_ref()
                .map_or_else(String::new, |daemon| format!(", through a daemon ({daemon:?}),")),
            self.profile.name,
            if self.queue { "" } else { " without a queue" },
            self.clients,
            self.tasks,
            self.names,
            self.horizon as f64 / 1e9,
            self.odds,
            if strikes.is_empty() { "no strikes".to_owned() } else { strikes.join(", ") }
        )
    }
}

/// Draws a registered store by its share of the seeds, largest share first: seeds refer to this order.
fn draw_profile(random: &SimRandom) -> SimProfile {
    let mut profiles = leasehold::sim_profiles();
    profiles.sort_by_key(|profile| std::cmp::Reverse(profile.seed_share));
    let drawn = pick_by_share(profiles, |profile| profile.seed_share, |bound| random.below(bound));
    // With no store registered that has a share, the draw finds none.
    drawn.unwrap_or(SimProfile::new("none"))
}
