//! A selection of the drills for every change: worker processes on a SQLite file and a Redis
//! server, and the control run that tests the checker. `cargo test -p leasehold-drill --test drills
//! -- --ignored` runs all of them. Also the measures, reports and faults of drills, without processes.

// clippy's exception for tests covers test functions only, not their helpers.
#![allow(clippy::unwrap_used)]

mod clocks;
mod counters;
mod external_store;
mod fault_list;
mod measures;
mod reports;

use leasehold_drill::fleet::{DrillStore, DrillTestbed, WorkerProgram};
use leasehold_drill::scenario::{ALL, DrillOptions, Outcome, Verdict, find, run};

async fn drill(name: &str, store: &str) -> Verdict {
    drill_with_options(name, store, DrillOptions::default()).await
}

fn throwaway(name: &str) -> DrillStore {
    let mut stores = DrillStore::all_throwaway().into_iter();
    stores.find(|store| store.info().name == name).unwrap_or_else(|| panic!("{name} has no testbed"))
}

/// Sends a command to the server of a testbed, bypassing its proxy.
async fn send_command<T: redis::FromRedisValue>(testbed: &DrillTestbed, words: &[&str]) -> T {
    let client = redis::Client::open(testbed.server().url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let mut command = redis::Cmd::new();
    for word in words {
        command.arg(*word);
    }
    command.query_async(&mut connection).await.unwrap()
}

fn program() -> WorkerProgram {
    WorkerProgram::standalone(env!("CARGO_BIN_EXE_leasehold-drill-worker"))
}

async fn drill_with_options(name: &str, store: &str, options: DrillOptions) -> Verdict {
    let scenario = find(name).unwrap_or_else(|| panic!("there is no drill {name}"));
    let verdict = run(scenario, &throwaway(store), &program(), options, |again| {
        println!("{name} on {store} is run again: {again}");
    })
    .await;
    verdict.unwrap_or_else(|error| panic!("{name} on {store} could not be run: {error}"))
}

fn assert_clean(verdict: &Verdict) {
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
    let verdict = drill("forced-kill", "sqlite").await;
    assert_clean(&verdict);
    assert!(verdict.measures.takeover_s.is_some(), "{:?}", verdict.measures);
}

#[tokio::test]
async fn a_late_write_is_refused_on_sqlite() {
    let verdict = drill("pause-and-delay", "sqlite").await;
    assert_clean(&verdict);
    assert!(verdict.measures.grants >= 2, "{:?}", verdict.measures);
}

#[tokio::test]
async fn a_release_that_fails_is_collected_on_redis() {
    let verdict = drill("release-fails", "redis").await;
    assert_clean(&verdict);
    assert!(verdict.measures.debts > 0, "{:?}", verdict.measures);
}

/// The server is lost with a lease that was not replicated.
#[tokio::test]
async fn a_failover_that_loses_the_lease_still_grows_the_fence() {
    assert_clean(&drill("failover", "redis").await);
}

/// A small storm; `leasehold drill run contention-storm` runs 500 clients.
#[tokio::test]
async fn a_storm_on_sqlite_keeps_the_queue_without_a_herd() {
    let options = DrillOptions { waiters: 60, ..DrillOptions::default() };
    assert_clean(&drill_with_options("contention-storm", "sqlite", options).await);
}

/// Workers ignore the state of their holds and writes are not fenced. The checker must find
/// violations.
#[tokio::test]
async fn the_unfenced_control_run_shows_violations() {
    let verdict = drill("unfenced-control", "sqlite").await;
    assert_clean(&verdict);
    let judged = &verdict.judgement;
    assert!(judged.breaks("I3"), "stale writes: {:#?}", judged.findings);
    assert!(judged.breaks("I5"), "work past the deadline: {:#?}", judged.findings);
}

#[tokio::test]
#[ignore = "takes minutes: every drill on every store it concerns"]
async fn every_drill_on_every_store() {
    let wanted = std::env::var("DRILL").unwrap_or_default();
    for scenario in ALL.iter().filter(|scenario| scenario.name.contains(&wanted)) {
        let stores = DrillStore::all_throwaway().into_iter().map(|store| store.info());
        for store in stores.filter(|store| scenario.runs_on(store)) {
            let verdict = drill(scenario.name, store.name).await;
            println!(
                "{} on {}: {} in {:.1?} {:?} {:?}",
                verdict.drill,
                verdict.store,
                verdict.outcome.as_str(),
                verdict.took,
                verdict.promises,
                verdict.measures
            );
            assert_clean(&verdict);
        }
    }
}
