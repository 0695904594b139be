//! Many histories, all of which must keep every promise, and the same history twice.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::plan::{Mistake, Plan};
use crate::world::World;

/// Histories in a plain test run: a few seconds without optimisation.
const RUNS: u64 = 4_000;

/// What a history came to.
pub(crate) struct Report {
    pub(crate) violations: BTreeMap<&'static str, String>,
    hash: u64,
    events: u64,
    lines: Vec<String>,
}

/// Lives one history. `to_the_end` goes on after a violation, to see what else it breaks.
pub(crate) fn live(plan: &Plan, to_the_end: bool, keep_lines: bool) -> Report {
    let mut world = World::new(plan.clone(), keep_lines);
    world.live(to_the_end);
    Report {
        hash: world.history.hash(),
        events: world.happened(),
        lines: std::mem::take(&mut world.history.lines),
        violations: world.court.violations,
    }
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{variable}={text} is not a number")),
    )
}

/// Takes away whatever the failure does not need: faults, clients, names, time.
fn shrink(plan: &Plan, broken: &str) -> Plan {
    let fails = |plan: &Plan| live(plan, false, false).violations.contains_key(broken);
    let mut best = plan.clone();
    for fault in 0..best.faults.each().len() {
        let mut less = best.clone();
        *less.faults.each()[fault] = 0;
        if fails(&less) {
            best = less;
        }
    }
    for _ in 0..6 {
        let mut less = best.clone();
        less.horizon = less.horizon * 2 / 3;
        if fails(&less) {
            best = less;
        }
    }
    let mut less = best.clone();
    less.names = 1;
    if fails(&less) {
        best = less;
    }
    while best.clients > 1 {
        let mut less = best.clone();
        less.clients -= 1;
        if !fails(&less) {
            break;
        }
        best = less;
    }
    best
}

/// Everything a reader needs to see the failure again.
fn explain(plan: &Plan, report: &Report) -> String {
    let mut said = format!("\nseed {} broke {:#?}\n", plan.seed, report.violations);
    let commit = std::process::Command::new("git")
        .args(["log", "-1", "--format=%h"])
        .output();
    let commit = commit.map_or_else(
        |_| "unknown".into(),
        |said| String::from_utf8_lossy(&said.stdout).into_owned(),
    );
    let _ = writeln!(said, "commit {}", commit.trim());
    let _ = writeln!(
        said,
        "repeat: LEASEHOLD_SIM_SEED={} cargo test -p leasehold-core --test sim the_promises_hold\n",
        plan.seed
    );
    let broken = report.violations.keys().next().copied().unwrap_or("L5");
    let small = shrink(plan, broken);
    let again = live(&small, false, true);
    let _ = writeln!(said, "shrunk to {small:#?}\n");
    let from = again.lines.len().saturating_sub(400);
    for line in &again.lines[from..] {
        let _ = writeln!(said, "{line}");
    }
    let _ = writeln!(said, "{:#?}", again.violations);
    said
}

#[test]
fn the_promises_hold() {
    let (first, runs) = match number("LEASEHOLD_SIM_SEED") {
        Some(seed) => (seed, 1),
        None => (
            number("LEASEHOLD_SIM_FROM").unwrap_or(0),
            number("LEASEHOLD_SIM_RUNS").unwrap_or(RUNS),
        ),
    };
    // Two threads: the histories are independent, and more would only take turns on a small machine.
    let events: u64 = std::thread::scope(|scope| {
        let half = |part: u64| {
            scope.spawn(move || {
                let mut events = 0;
                for seed in (first..first + runs).filter(|seed| seed % 2 == part) {
                    let plan = Plan::new(seed, Mistake::Nothing);
                    let report = live(&plan, false, false);
                    assert!(report.violations.is_empty(), "{}", explain(&plan, &report));
                    events += report.events;
                }
                events
            })
        };
        [half(0), half(1)].map(|half| half.join().unwrap()).iter().sum()
    });
    println!("{runs} histories, {events} events");
}

/// Seeds that once broke a promise, each with the mistake that they showed.
const MENDED: &[u64] = &[
    // I6: an ask that came late extended the lease of a hold that was over.
    21_688, 42_975,
    // I7: *kept* was said while a renewal was on its way, which then prolonged the lease.
    1_005_294, 1_273_722,
    // I5: a hold lived by the class that was in force when its acquire began.
    6_281,
];

#[test]
fn what_was_mended_stays_mended() {
    for seed in MENDED {
        let plan = Plan::new(*seed, Mistake::Nothing);
        let report = live(&plan, false, false);
        assert!(report.violations.is_empty(), "{}", explain(&plan, &report));
    }
}

#[test]
fn the_seed_is_the_history() {
    let first = number("LEASEHOLD_SIM_FROM").unwrap_or(0);
    let runs = number("LEASEHOLD_SIM_RUNS").unwrap_or(200);
    let mut events = 0;
    for seed in first..first + runs {
        let plan = Plan::new(seed, Mistake::Nothing);
        let (first, second) = (live(&plan, true, false), live(&plan, true, true));
        assert_eq!(
            (first.hash, first.events),
            (second.hash, second.events),
            "seed {seed} ran differently the second time"
        );
        events += first.events;
    }
    println!("{runs} histories lived twice, {events} events, all the same");
}

/// A failure is handed back as something that can be read.
#[test]
fn a_mistake_is_shrunk_to_a_short_history() {
    let broken = "I4";
    let plan = (0..)
        .map(|seed| Plan::new(seed, Mistake::ReleaseWithoutComparing))
        .find(|plan| live(plan, false, false).violations.contains_key(broken))
        .unwrap();
    let small = shrink(&plan, broken);
    let after = live(&small, false, true);
    assert!(after.violations.contains_key(broken));
    assert!(small.clients <= 2 && small.names == 1, "{small:#?}");
    let kinds = |mut plan: Plan| plan.faults.each().iter().filter(|odds| ***odds > 0).count();
    assert!(kinds(small.clone()) < kinds(plan.clone()), "{small:#?}");
    assert!(after.lines.len() <= 60, "{} lines are left", after.lines.len());
}
