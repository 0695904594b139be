//! Many histories, all of which must keep every promise.

use leasehold_sim::{Campaign, Mistake, Progress, SimPlan, Topology, run_campaign, run_plan};

use crate::faults::assert_faults_happened;

// A sample for every test run; longer runs use `cargo xtask simulate`.
const SEED_COUNT: u64 = 200;

#[test]
fn the_promises_hold() {
    let what = Campaign {
        first_seed: 0,
        seed_count: SEED_COUNT,
        threads: 2,
        mistake: Mistake::Nothing,
        topology: Topology::Clients,
    };
    let progress = Progress::default();
    if let Some(failure) = run_campaign(what, &progress) {
        let run = failure.run.unwrap();
        panic!(
            "seed {} broke {:#?}\nrepeat: cargo xtask simulate --from {} --seeds 1",
            failure.seed, run.judgement.findings, failure.seed
        );
    }
    assert_faults_happened(&progress, &[]);
}

/// In these seeds a repeated message takes a lease or a queue entry that no client wants. That breaks
/// no promise.
#[test]
fn a_lease_taken_by_a_repeated_message_breaks_no_promise() {
    for seed in [41, 176, 338, 472] {
        let run = run_plan(&SimPlan::new(seed, Mistake::Nothing)).unwrap();
        assert!(run.judgement.clean(), "seed {seed}: {:#?}", run.judgement.findings);
    }
}

/// Over some seeds every event must occur: a history in which nothing happens proves nothing.
#[test]
fn the_histories_contain_every_event() {
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..60 {
        let run = run_plan(&SimPlan::new(seed, Mistake::Nothing)).unwrap();
        assert!(run.judgement.grants > 0 && run.judgement.applied > 0, "seed {seed}");
        for record in &run.history.records {
            if let leasehold_drill::history::HistoryEntry::Event(event) = &record.what {
                seen.insert(event.event.clone());
            }
        }
    }
    for event in [
        "acquired",
        "busy",
        "unavailable",
        "cancelled",
        "fell_back",
        "healed",
        "renewed",
        "renew_failed",
        "not_owned",
        "abandoned",
        "unproven",
        "proven_again",
        "overlap_confirmed",
        "released",
        "kept",
        "already_lost",
        "release_failed",
        "debt",
        "debt_cleared",
        "undone",
        "broken",
        "policy_changed",
        "fence_refused",
        "clock_jump",
        "would_stop",
        "would_refuse",
    ] {
        assert!(seen.contains(event), "no history had {event}: {seen:?}");
    }
}

/// The effects of a fault are visible in the recovery only if the fault is among the last events.
#[test]
fn some_plans_have_a_fault_at_the_very_end() {
    for world in [Topology::Clients, Topology::Daemon] {
        let late = |seed: &u64| {
            let plan = SimPlan::for_topology(world, *seed, Mistake::Nothing);
            let last = plan.faults.last();
            last.is_some_and(|strike| strike.at < plan.horizon && plan.horizon - strike.at <= 50_000_000)
        };
        let count = (0..400).filter(late).count();
        assert!((40..120).contains(&count), "{world:?}: {count} of 400");
    }
}
