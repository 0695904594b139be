//! Processes under a fake wall clock leave no shared memory behind, however they end.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use leasehold_core::clock::{BootClock, Clock, ClockExt};
use leasehold_drill::fleet::{DrillTestbed, FakeWallClock, HistoryBuffer, WORKER_ARG, WorkerSpec, Workers};

use crate::{program, send_command, throwaway};

/// The shared memory files of libfaketime for this process.
fn shared_memory_of(pid: u32) -> Vec<String> {
    let all = [format!("faketime_shm_{pid}"), format!("sem.faketime_sem_{pid}")];
    let is_there = |name: &String| Path::new("/dev/shm").join(name).exists();
    all.into_iter().filter(is_there).collect()
}

async fn server_pid(testbed: &DrillTestbed) -> u32 {
    let told: String = send_command(testbed, &["INFO", "server"]).await;
    let pid = told.lines().find_map(|line| line.strip_prefix("process_id:"));
    pid.unwrap().trim().parse().unwrap()
}

#[tokio::test]
async fn a_killed_server_leaves_no_shared_memory() {
    let testbed = DrillTestbed::build(&throwaway("redis"), "", &program(), true).await.unwrap();
    assert_eq!(shared_memory_of(server_pid(&testbed).await), Vec::<String>::new());
    testbed.server().restart().await.unwrap();
    assert_eq!(shared_memory_of(server_pid(&testbed).await), Vec::<String>::new());
}

#[tokio::test]
async fn a_killed_worker_leaves_no_shared_memory() {
    let folder = tempfile::tempdir().unwrap();
    let clock = FakeWallClock::new(folder.path(), "clock").unwrap();
    let mut words = clock.command_prefix().into_iter();
    // It waits for its spec, which is never sent.
    let mut worker = Command::new(words.next().unwrap())
        .args(words)
        .args([env!("CARGO_BIN_EXE_leasehold-drill-worker"), WORKER_ARG])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let proc = Path::new("/proc").join(worker.id().to_string());
    let read = |file: &str| std::fs::read_to_string(proc.join(file)).unwrap_or_default();
    // Runs under the fake clock and sleeps.
    let waits = || read("maps").contains("libfaketime") && read("stat").contains(") S ");
    let end = BootClock.now() + Duration::from_secs(20);
    while !(waits() && shared_memory_of(worker.id()).is_empty()) {
        assert!(BootClock.now() < end, "{:?}", shared_memory_of(worker.id()));
        BootClock.sleep(Duration::from_millis(5)).await;
    }
    worker.kill().unwrap();
    worker.wait().unwrap();
    assert_eq!(shared_memory_of(worker.id()), Vec::<String>::new());
}

/// The child processes of this test.
fn children() -> Vec<u32> {
    let us = std::process::id();
    let listed = std::fs::read_dir(format!("/proc/{us}/task")).unwrap().flatten();
    listed
        .filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok())
        .flat_map(|all| all.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        .filter_map(|pid| pid.parse().ok())
        .collect()
}

// The state that these tests look for lasts a moment only, so they need several tries to see it.
const MAX_TRIES: u32 = 50;

/// Ctrl-C drops a drill at any point, also while its server is starting.
#[tokio::test]
async fn a_testbed_dropped_while_building_leaves_no_shared_memory() {
    for _ in 0..MAX_TRIES {
        let policies = "";
        let (program, store) = (program(), throwaway("redis"));
        let building = DrillTestbed::build(&store, policies, &program, true);
        let seen = async {
            loop {
                if let Some(pid) = children().into_iter().find(|pid| !shared_memory_of(*pid).is_empty()) {
                    return pid;
                }
                BootClock.sleep(Duration::from_millis(1)).await;
            }
        };
        let pid = tokio::select! {
            biased;
            pid = seen => pid,
            // The server was ready before the test saw its shared memory.
            _ = building => continue,
        };
        assert_eq!(shared_memory_of(pid), Vec::<String>::new(), "of process {pid}");
        return;
    }
    panic!("what is shared was never seen");
}

#[tokio::test]
async fn workers_dropped_at_once_leave_no_shared_memory() {
    let folder = tempfile::tempdir().unwrap();
    let clock = FakeWallClock::new(folder.path(), "clock").unwrap();
    let at = |name: &str| folder.path().join(name);
    for number in 0..MAX_TRIES {
        let store = format!("sqlite:{}", at("locks.db").display());
        let mut workers =
            Workers::new(program(), &store, &at("policies"), &at("ledger"), HistoryBuffer::default());
        let orders = WorkerSpec::new(&format!("w{number}"), "scheduler", "job:1");
        workers.start_with_prefix(&clock.command_prefix(), orders).await.unwrap();
        let pid = workers.pids()[0];
        let end = BootClock.now() + Duration::from_millis(300);
        while shared_memory_of(pid).is_empty() && BootClock.now() < end {
            std::hint::spin_loop();
        }
        let seen = !shared_memory_of(pid).is_empty();
        drop(workers);
        assert_eq!(shared_memory_of(pid), Vec::<String>::new(), "of process {pid}");
        if seen {
            return;
        }
    }
    panic!("what is shared was never seen");
}
