//! Many processes on one file: none starves. Killed at any moment, they leave an intact file,
//! and no fence is issued twice.

use std::collections::{HashMap, HashSet};

use leasehold_sqlite::{SqliteOptions, SqliteStore};

use crate::fixture::{TestClient, await_event};
use crate::process::Process;

#[tokio::test]
async fn trap_14_killed_processes_leave_a_whole_file_and_no_fence_twice() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("locks.db");
    let mut granted = Vec::new();
    let mut workers: Vec<_> = (0..3).map(|_| Process::start("churn", &path)).collect();
    for kill in 0..40 {
        let victim = workers.remove(0);
        // Kill each child at another point of its life. Its first message
        // proves that it was running.
        let mut told: Vec<_> = (0..=kill % 6).map(|_| victim.next_message().unwrap()).collect();
        told.extend(victim.kill());
        granted.push(told);
        workers.push(Process::start("churn", &path));
    }
    for process in workers {
        granted.push(process.kill());
    }

    let mut seen = HashSet::new();
    for told in &granted {
        let mut last: HashMap<&str, u64> = HashMap::new();
        for line in told {
            // The last line of a killed process may be cut off.
            let Some((name, fence)) = line.split_once(' ') else {
                continue;
            };
            assert!(seen.insert(line.clone()), "issued twice: {line}");
            let fence: u64 = fence.parse().unwrap();
            let before = last.insert(name, fence);
            assert!(before < Some(fence), "{name}: {fence} after {before:?}");
        }
    }
    assert!(seen.len() > 100, "only {} grants were seen", seen.len());

    let whole: String = rusqlite::Connection::open(&path)
        .unwrap()
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(whole, "ok");
    // The dead processes' leases expire, and the store keeps working.
    let store = SqliteStore::open(SqliteOptions::new(&path)).unwrap();
    for number in 0..3 {
        let who = TestClient::new("heir", &format!("job:{number}"));
        await_event("the end of the dead's lease", async {
            while who.inspect(&store).await.is_some() {
                tokio::task::yield_now().await;
            }
        })
        .await;
        who.expect_granted(&store).await;
    }
}

#[test]
fn sixteen_processes_share_a_file_and_none_starves() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("locks.db");
    let workers: Vec<_> = (0..16).map(|_| Process::start("churn", &path)).collect();
    // A child whose step fails, for example by a timeout, panics and ends.
    for process in &workers {
        for _ in 0..20 {
            process.next_message().expect("every process goes on being served");
        }
    }
    // The other processes got more grants meanwhile, but not many times as many.
    let more: Vec<_> = workers.into_iter().map(|process| process.kill().len()).collect();
    assert!(more.iter().all(|more| *more < 200), "some were starved: {more:?}");
}
