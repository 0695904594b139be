//! Many histories, all of which must keep every promise.

use leasehold_drill::sim::{Campaign, Mistake, Plan, Progress, World, campaign, live};

use crate::faults::happened;

/// A slice: the long runs are in the ledger.
const SEEDS: u64 = 200;

#[test]
fn the_promises_hold() {
    let what = Campaign {
        from: 0,
        seeds: SEEDS,
        threads: 2,
        mistake: Mistake::Nothing,
        world: World::Clients,
    };
    let progress = Progress::default();
    if let Some(failure) = campaign(what, &progress) {
        let run = failure.run.unwrap();
        panic!(
            "seed {} broke {:#?}\nrepeat: leasehold drill simulate --from {} --seeds 1",
            failure.seed, run.judgement.findings, failure.seed
        );
    }
    happened(&progress, &[]);
}

/// In these a message that arrived twice has taken a lease, or a place in line, for nobody: that breaks no promise.
#[test]
fn what_a_repeated_message_takes_is_nobodys_fault() {
    for seed in [41, 176, 338, 472] {
        let run = live(&Plan::new(seed, Mistake::Nothing)).unwrap();
        assert!(
            run.judgement.clean(),
            "seed {seed}: {:#?}",
            run.judgement.findings
        );
    }
}

/// A history in which nothing is at stake proves nothing: over some seeds everything that can be promised must come up.
#[test]
fn the_histories_are_worth_judging() {
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..60 {
        let run = live(&Plan::new(seed, Mistake::Nothing)).unwrap();
        assert!(
            run.judgement.grants > 0 && run.judgement.applied > 0,
            "seed {seed}"
        );
        for record in &run.history.records {
            if let leasehold_drill::history::Entry::Event(event) = &record.what {
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

/// What a fault leaves behind is there when nothing is wrong any more only if the fault is among the last things that happen.
#[test]
fn in_some_histories_something_strikes_at_the_very_end() {
    for world in [World::Clients, World::Daemon] {
        let late = |seed: &u64| {
            let plan = Plan::of(world, *seed, Mistake::Nothing);
            let last = plan.strikes.last();
            last.is_some_and(|strike| strike.at < plan.horizon && plan.horizon - strike.at <= 50_000_000)
        };
        let count = (0..400).filter(late).count();
        assert!((40..120).contains(&count), "{world:?}: {count} of 400");
    }
}
