//! Processes under a clock of their own leave nothing behind, however they end.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use leasehold_core::clock::{BootClock, Clock, ClockExt};
use leasehold_drill::fleet::{Skew, Stage, StoreKind, WORD};

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
