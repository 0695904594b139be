//! A bounded slice of the drills for every change: real processes on a real SQLite file and a real Redis, and the control
//! run that proves the checker's eyes. `cargo test -p leasehold-drill --test drills -- --ignored` runs all of them.

// clippy's leave for tests covers test functions only, not what they share.
#![allow(clippy::unwrap_used)]

mod clocks;
mod counters;
mod given;

use leasehold_drill::fleet::{Program, StoreKind};
use leasehold_drill::scenario::{ALL, Options, Outcome, Verdict, find, run};

async fn drill(name: &str, store: StoreKind) -> Verdict {
    sized(name, store, Options::default()).await
}

fn program() -> Program {
    Program::bare(env!("CARGO_BIN_EXE_leasehold-drill-worker"))
}

async fn sized(name: &str, store: StoreKind, options: Options) -> Verdict {
    let scenario = find(name).unwrap_or_else(|| panic!("there is no drill {name}"));
    let verdict = run(scenario, store, None, &program(), options, |again| {
        println!("{name} on {store:?} is run again: {again}");
    })
    .await;
    verdict.unwrap_or_else(|error| panic!("{name} on {store:?} could not be run: {error}"))
}

fn clean(verdict: &Verdict) {
    let broken: Vec<_> = verdict.promises.iter().filter(|promise| !promise.kept).collect();
    assert_eq!(
        verdict.outcome,
        Outcome::Clean,
        "{} on {}: broken promises {broken:#?}, findings {:#?}, damage {:?}",
        verdict.drill,
        verdict.store,
        verdict.judgement.findings,
        verdict.history.damage,
    );
}

#[tokio::test]
async fn a_killed_holder_is_taken_over_on_sqlite() {
    let verdict = drill("forced-kill", StoreKind::Sqlite).await;
    clean(&verdict);
    assert!(verdict.measures.takeover_s.is_some(), "{:?}", verdict.measures);
}

#[tokio::test]
async fn a_late_write_is_refused_on_sqlite() {
    let verdict = drill("pause-and-delay", StoreKind::Sqlite).await;
    clean(&verdict);
    assert!(verdict.measures.grants >= 2, "{:?}", verdict.measures);
}

#[tokio::test]
async fn a_release_that_fails_is_collected_on_redis() {
    let verdict = drill("release-fails", StoreKind::Redis).await;
    clean(&verdict);
    assert!(verdict.measures.debts > 0, "{:?}", verdict.measures);
}

/// The server is lost with a lease that its replica never heard of.
#[tokio::test]
async fn a_failover_that_loses_the_lease_still_grows_the_fence() {
    clean(&drill("failover", StoreKind::Redis).await);
}

/// A small storm; `leasehold drill run contention-storm` makes the one of 500.
#[tokio::test]
async fn a_storm_on_sqlite_is_a_line_and_not_a_herd() {
    let options = Options {
        waiters: 60,
        ..Options::default()
    };
    clean(&sized("contention-storm", StoreKind::Sqlite, options).await);
}

/// Nothing looks and nothing is fenced: if the checker calls this clean, it is blind.
#[tokio::test]
async fn the_unfenced_control_run_shows_violations() {
    let verdict = drill("unfenced-control", StoreKind::Sqlite).await;
    clean(&verdict);
    let judged = &verdict.judgement;
    assert!(judged.breaks("I3"), "stale writes: {:#?}", judged.findings);
    assert!(
        judged.breaks("I5"),
        "work past the deadline: {:#?}",
        judged.findings
    );
}

#[tokio::test]
#[ignore = "takes minutes: every drill on every store it concerns"]
async fn every_drill_on_every_store() {
    let wanted = std::env::var("DRILL").unwrap_or_default();
    for scenario in ALL.iter().filter(|scenario| scenario.name.contains(&wanted)) {
        for store in scenario.stores {
            let verdict = drill(scenario.name, *store).await;
            println!(
                "{} on {}: {} in {:.1?} {:?} {:?}",
                verdict.drill,
                verdict.store,
                verdict.outcome.word(),
                verdict.took,
                verdict.promises,
                verdict.measures
            );
            clean(&verdict);
        }
    }
}
