//! One history before it runs: who takes part, under which classes, and what will go wrong. Made from the seed; a shrunk
//! plan is one from which things were taken away.

use std::collections::BTreeSet;

use super::class::ClassPlan;
use super::dice::Dice;
use super::drift::{MS, Nanos, SEC};
use super::engine::Kind;
use super::mistake::Mistake;
use super::strike::{Strike, What};

/// What may happen to a single message, per mille.
#[derive(Debug, Clone, Copy, Default)]
pub struct Odds {
    /// It vanishes; nothing is heard.
    pub drop: u64,
    /// It is refused on the way: definitely not done.
    pub refuse: u64,
    /// The connection is cut before its answer: unknown, whether or not it arrives.
    pub reset: u64,
    /// Its answer vanishes.
    pub mute: u64,
    /// It is late, perhaps later than its sender waits.
    pub slow: u64,
    /// It arrives twice.
    pub repeat: u64,
    /// A hint to a waiter is lost.
    pub hint: u64,
    /// A caller drops its acquire.
    pub cancel: u64,
    /// A holder drops its hold instead of releasing it, or drops the release.
    pub careless: u64,
}

impl Odds {
    /// Every chance, to be taken away one by one.
    pub(super) fn each(&mut self) -> [&mut u64; 9] {
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

/// What takes part beside the clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum World {
    /// Only a store, which clients ask themselves.
    #[default]
    Clients,
    /// A daemon in front of the store.
    Daemon,
}

/// How a task takes its locks from a daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// With the library, to which the daemon is a store.
    Library,
    /// The daemon keeps its holds.
    Kept,
    /// It keeps its own leases, with nothing but HTTP.
    Plain,
}

/// The daemon of a history.
#[derive(Debug, Clone)]
pub struct DaemonPlan {
    /// What happens to single messages between clients and daemon.
    pub odds: Odds,
    /// Of each task.
    pub routes: Vec<Route>,
    /// How long the daemon waits for the client of a hold that it keeps, in milliseconds.
    pub heartbeat: u64,
}

/// One history before it runs.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Where it comes from.
    pub seed: u64,
    /// The store.
    pub kind: Kind,
    /// The store can hand over to waiters.
    pub queue: bool,
    /// Processes.
    pub clients: usize,
    /// Tasks of each that take locks, each under a class of its own.
    pub tasks: usize,
    /// Locks.
    pub names: usize,
    /// One for each task.
    pub classes: Vec<ClassPlan>,
    /// When faults end.
    pub horizon: u64,
    /// What happens to single messages.
    pub odds: Odds,
    /// Messages to which nothing happens all the same.
    pub spared: BTreeSet<u64>,
    /// What happens to processes and the store, and when.
    pub strikes: Vec<Strike>,
    /// What is wrong on purpose.
    pub mistake: Mistake,
    /// The daemon, if clients go through one.
    pub daemon: Option<DaemonPlan>,
}

impl Plan {
    /// The plan of a seed in such a world.
    #[must_use]
    pub fn of(world: World, seed: u64, mistake: Mistake) -> Self {
        match world {
            World::Clients => Self::new(seed, mistake),
            World::Daemon => Self::with_daemon(seed, mistake),
        }
    }

    /// The plan of a seed, with a daemon between clients and store: its host comes after those of the clients.
    #[must_use]
    pub fn with_daemon(seed: u64, mistake: Mistake) -> Self {
        let mut plan = Self::draw(seed, mistake);
        let dice = Dice::keyed(seed, [0xdae0, 0, 0]);
        let some = |most: u64| {
            if dice.chance(350) {
                dice.between(1, most)
            } else {
                0
            }
        };
        let odds = Odds {
            drop: some(150),
            refuse: some(250),
            reset: some(200),
            mute: some(150),
            slow: some(250),
            repeat: some(200),
            ..Odds::default()
        };
        // Daemon and store are neighbours: the way between them is often as it should be.
        if dice.chance(500) {
            plan.odds = Odds {
                hint: plan.odds.hint,
                cancel: plan.odds.cancel,
                careless: plan.odds.careless,
                ..Odds::default()
            };
        }
        plan.queue = true;
        plan.classes = (0..plan.tasks)
            .map(|task| ClassPlan::draw(task, &dice, 600))
            .collect();
        let longest = plan.classes.iter().map(|class| class.ttl).max().unwrap_or(0);
        plan.horizon = (longest * 3 * MS).clamp(5 * SEC, 30 * SEC);
        let routes = (0..plan.tasks).map(|_| match dice.below(100) {
            0..35 => Route::Kept,
            35..65 => Route::Plain,
            _ => Route::Library,
        });
        let routes = routes.collect();
        let hosts = plan.clients + 1;
        plan.strikes = (0..1 + dice.below(8))
            .map(|_| {
                let mut what = What::draw(&dice, plan.kind, hosts, plan.names, &plan.classes);
                // What strikes a process strikes the daemon as often as all clients together.
                if dice.chance(350) {
                    what.aim(|_| plan.clients);
                }
                Strike {
                    at: dice.between(plan.horizon / 50, plan.horizon - plan.horizon / 10),
                    what,
                }
            })
            .collect();
        // And it is often away for a moment only, so that what it kept is still there when it is back.
        // So is the way to it.
        let (daemon, horizon) = (plan.clients, plan.horizon);
        plan.strikes.extend((0..dice.below(6)).map(|_| {
            let lasts = dice.between(MS, 1_500 * MS);
            let (client, silent) = (dice.index(daemon), dice.chance(700));
            let what = match dice.below(10) {
                0..4 => What::Kill {
                    client: daemon,
                    lasts,
                },
                4..6 => What::Leave {
                    client: daemon,
                    lasts,
                },
                _ => What::Cut {
                    client,
                    silent,
                    lasts,
                },
            };
            let at = dice.between(horizon / 50, horizon - horizon / 10);
            Strike { at, what }
        }));
        plan.daemon = Some(DaemonPlan {
            odds,
            routes,
            heartbeat: dice.between(500, 4_000),
        });
        plan.strike_late(hosts);
        plan
    }

    /// In some histories one thing more happens when the faults are all but over, so that what it leaves behind is still there
    /// when nothing is wrong any more.
    fn strike_late(&mut self, hosts: usize) {
        let dice = Dice::keyed(self.seed, [0x1a7e, 0, 0]);
        if dice.chance(250) {
            let before = dice.pick(&[5 * MS, 50 * MS, self.horizon / 10], MS);
            let mut what = What::draw(&dice, self.kind, hosts, self.names, &self.classes);
            if self.daemon.is_some() && dice.chance(500) {
                let (client, lasts) = (self.clients, dice.between(MS, 50 * MS));
                what = What::Kill { client, lasts };
            }
            let at = self.horizon - dice.between(MS, before);
            self.strikes.push(Strike { at, what });
        }
        self.strikes.sort_by_key(|strike| strike.at);
    }

    /// Every chance of every network, to be taken away one by one.
    pub(super) fn chances(&mut self) -> Vec<&mut u64> {
        let daemon = self.daemon.as_mut().map(|daemon| daemon.odds.each());
        let own = self.odds.each().into_iter();
        own.chain(daemon.into_iter().flatten()).collect()
    }

    /// The daemon's host.
    pub(super) fn daemon_slot(&self) -> Option<usize> {
        self.daemon.as_ref().map(|_| self.clients)
    }

    /// The plan of a seed.
    #[must_use]
    pub fn new(seed: u64, mistake: Mistake) -> Self {
        let mut plan = Self::draw(seed, mistake);
        plan.strike_late(plan.clients);
        plan
    }

    /// All of it but what strikes late.
    fn draw(seed: u64, mistake: Mistake) -> Self {
        let dice = Dice::keyed(seed, [0x91a7, 0, 0]);
        let kind = if dice.chance(600) {
            Kind::Redis
        } else {
            Kind::Sqlite
        };
        let tasks = 1 + dice.index(3);
        let classes: Vec<_> = (0..tasks).map(|task| ClassPlan::draw(task, &dice, 200)).collect();
        let longest = classes.iter().map(|class| class.ttl).max().unwrap_or(0);
        let horizon = (longest * 3 * MS).clamp(3 * SEC, 150 * SEC);
        // Swarm: most histories see a few kinds of fault, each often, so that rare pairs meet.
        let some = |most: u64| {
            if dice.chance(350) {
                dice.between(1, most)
            } else {
                0
            }
        };
        let odds = Odds {
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
        let clients = 2 + dice.index(3);
        let names = 1 + dice.index(2);
        let count = dice.below(9);
        let strikes = (0..count)
            .map(|_| Strike {
                at: dice.between(horizon / 50, horizon - horizon / 10),
                what: What::draw(&dice, kind, clients, names, &classes),
            })
            .collect();
        Self {
            seed,
            kind,
            queue: dice.chance(700),
            clients,
            tasks,
            names,
            classes,
            horizon,
            odds,
            spared: BTreeSet::new(),
            strikes,
            mistake,
            daemon: None,
        }
    }

    /// The longest that any lease of it is kept, with every override that a strike may bring.
    pub(super) fn longest(&self) -> Nanos {
        let own = self.classes.iter().map(ClassPlan::kept).max().unwrap_or(0);
        let overridden = self.strikes.iter().map(|strike| strike.what.lengthens()).max();
        // A daemon leaves a class that continues one more time to live, after its client was last heard of.
        let (twice, heartbeat) = match &self.daemon {
            Some(daemon) => (2, daemon.heartbeat + 100),
            None => (1, 0),
        };
        ((own + overridden.unwrap_or(0)) * twice + heartbeat).max(super::class::PROBE_TTL) * MS
    }

    /// In one line, for people.
    #[must_use]
    pub fn summary(&self) -> String {
        let strikes: Vec<_> = self
            .strikes
            .iter()
            .map(|strike| format!("{} at {:.3} s", strike.what, strike.at as f64 / 1e9))
            .collect();
        format!(
            "{}{} with {:?} semantics{}, {} clients of {} tasks, {} names, {:.1} s of faults; {:?}; {}",
            self.mistake.word(),
            self.daemon
                .as_ref()
                .map_or_else(String::new, |daemon| format!(", through a daemon ({daemon:?}),")),
            self.kind,
            if self.queue { "" } else { " without a queue" },
            self.clients,
            self.tasks,
            self.names,
            self.horizon as f64 / 1e9,
            self.odds,
            if strikes.is_empty() {
                "no strikes".to_owned()
            } else {
                strikes.join(", ")
            }
        )
    }
}
