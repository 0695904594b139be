//! Processes under a clock of their own leave nothing behind, however they end.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use leasehold_core::clock::{BootClock, Clock, ClockExt};
use leasehold_drill::fleet::{Crew, Orders, Skew, Stage, StoreKind, Tape, WORD};

use crate::program;

/// What libfaketime shares under this process's number.
fn shared(pid: u32) -> Vec<String> {
    let all = [format!("faketime_shm_{pid}"), format!("sem.faketime_sem_{pid}")];
    let is_there = |name: &String| Path::new("/dev/shm").join(name).exists();
    all.into_iter().filter(is_there).collect()
}

async fn server(stage: &Stage) -> u32 {
    let told = stage.command(&["INFO", "server"]).await.unwrap();
    let told: String = redis::from_redis_value(told).unwrap();
    let pid = told.lines().find_map(|line| line.strip_prefix("process_id:"));
    pid.unwrap().trim().parse().unwrap()
}

#[tokio::test]
async fn a_server_that_is_killed() {
    let mut stage = Stage::build(StoreKind::Redis, None, "", &program(), true)
        .await
        .unwrap();
    assert_eq!(shared(server(&stage).await), Vec::<String>::new());
    stage.restart().await.unwrap();
    assert_eq!(shared(server(&stage).await), Vec::<String>::new());
}

#[tokio::test]
async fn a_worker_that_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Skew::new(folder.path(), "clock").unwrap();
    let mut words = clock.words().into_iter();
    // It waits for its orders, and never gets any.
    let mut worker = Command::new(words.next().unwrap())
        .args(words)
        .args([env!("CARGO_BIN_EXE_leasehold-drill-worker"), WORD])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let proc = Path::new("/proc").join(worker.id().to_string());
    let read = |file: &str| std::fs::read_to_string(proc.join(file)).unwrap_or_default();
    // Under the clock, and asleep.
    let waits = || read("maps").contains("libfaketime") && read("stat").contains(") S ");
    let end = BootClock.now() + Duration::from_secs(20);
    while !(waits() && shared(worker.id()).is_empty()) {
        assert!(BootClock.now() < end, "{:?}", shared(worker.id()));
        BootClock.sleep(Duration::from_millis(5)).await;
    }
    worker.kill().unwrap();
    worker.wait().unwrap();
    assert_eq!(shared(worker.id()), Vec::<String>::new());
}

/// The processes that this one has started.
fn children() -> Vec<u32> {
    let us = std::process::id();
    let listed = std::fs::read_dir(format!("/proc/{us}/task")).unwrap().flatten();
    listed
        .filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok())
        .flat_map(|all| all.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        .filter_map(|pid| pid.parse().ok())
        .collect()
}

/// How often a moment that passes quickly is looked for.
const TRIES: u32 = 50;

/// Whoever interrupts a drill drops it at any moment: also while its server has not answered yet.
#[tokio::test]
async fn a_stage_that_nobody_waits_for_any_more() {
    for _ in 0..TRIES {
        let policies = "";
        let program = program();
        let building = Stage::build(StoreKind::Redis, None, policies, &program, true);
        let seen = async {
            loop {
                if let Some(pid) = children().into_iter().find(|pid| !shared(*pid).is_empty()) {
                    return pid;
                }
                BootClock.sleep(Duration::from_millis(1)).await;
            }
        };
        let pid = tokio::select! {
            biased;
            pid = seen => pid,
            // It was faster than we could look.
            _ = building => continue,
        };
        assert_eq!(shared(pid), Vec::<String>::new(), "of process {pid}");
        return;
    }
    panic!("what is shared was never seen");
}

#[tokio::test]
async fn a_crew_that_is_dropped_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Skew::new(folder.path(), "clock").unwrap();
    let at = |name: &str| folder.path().join(name);
    for number in 0..TRIES {
        let store = format!("sqlite:{}", at("locks.db").display());
        let mut crew = Crew::new(program(), &store, &at("policies"), &at("ledger"), Tape::default());
        let orders = Orders::new(&format!("w{number}"), "scheduler", "job:1");
        crew.start_under(&clock.words(), orders).await.unwrap();
        let pid = crew.pids()[0];
        let end = BootClock.now() + Duration::from_millis(300);
        while shared(pid).is_empty() && BootClock.now() < end {
            std::hint::spin_loop();
        }
        let seen = !shared(pid).is_empty();
        drop(crew);
        assert_eq!(shared(pid), Vec::<String>::new(), "of process {pid}");
        if seen {
            return;
        }
    }
    panic!("what is shared was never seen");
}
