//! The supervisor without a guardian. The CLI's tests cover the guardian and the gate.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use leasehold_core::clock::{BootClock, Clock, ClockExt};
use leasehold_core::memory::MemoryStore;
use leasehold_core::{Hold, Locks, Loss};
use leasehold_supervise::{
    CommandEnd, CommandSpec, Controls, HeldCommand, PrepareOutcome, RunningCommand, Streams,
};
use rustix::process::{Pid, Signal};
use tokio::io::AsyncReadExt;

const GRACE: Duration = Duration::from_millis(500);
/// Ignores INT and TERM, and says so.
const DEAF: &str = "trap 'echo int' INT; trap 'echo term' TERM; echo up; while :; do sleep 0.02; done";

fn new_locks() -> Locks {
    let store = MemoryStore::new(BootClock::shared());
    Locks::builder(std::sync::Arc::new(store)).build().unwrap()
}

async fn acquire(locks: &Locks, name: &str) -> Hold {
    let acquired = locks.class("scheduler").stop_grace(GRACE).acquire(name).await;
    acquired.unwrap().held().unwrap()
}

async fn start<'a>(script: &str, hold: &'a Hold, resources: &'a [Hold]) -> (RunningCommand<'a>, Controls) {
    let mut spec = CommandSpec::new(["sh", "-c", script].map(Into::into).to_vec(), GRACE);
    spec.streams = Streams::Captured;
    match HeldCommand::prepare(&spec, hold, resources).await.unwrap() {
        PrepareOutcome::Held(held) => held.start(),
        PrepareOutcome::Late(end) => panic!("{end:?}"),
    }
}

/// Waits for the first line, so that the command's traps are set.
async fn until_up(controls: &mut Controls) {
    let mut line = [0; 3];
    controls.stdout.as_mut().unwrap().read_exact(&mut line).await.unwrap();
    assert_eq!(&line, b"up\n");
}

async fn rest_of_output(controls: &mut Controls) -> String {
    let mut all = String::new();
    controls.stdout.take().unwrap().read_to_string(&mut all).await.unwrap();
    all
}

/// Whether a process of the group runs. A zombie that its parent has not collected does not count.
fn is_alive(group: Pid) -> bool {
    let stats = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let stat = std::fs::read_to_string(entry.ok()?.path().join("stat")).ok()?;
        Some(stat.rsplit_once(')')?.1.to_owned())
    });
    let group = group.as_raw_nonzero().to_string();
    stats.into_iter().any(|stat| {
        let fields: Vec<_> = stat.split_whitespace().collect();
        fields.get(2) == Some(&group.as_str()) && fields.first() != Some(&"Z")
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_sends_term_and_kills_after_the_grace() {
    let locks = new_locks();
    let hold = acquire(&locks, "a").await;
    let (supervised, mut controls) = start(DEAF, &hold, &[]).await;
    until_up(&mut controls).await;
    let from = BootClock.now();
    controls.stop();
    let end = supervised.wait().await.unwrap();
    let took = BootClock.now().since(from);
    assert!(matches!(end, CommandEnd::ByItself(status) if !status.success()));
    assert!(took >= GRACE * 8 / 10 && took < GRACE * 6, "{took:?}");
    assert_eq!(rest_of_output(&mut controls).await, "term\n");
    assert!(!is_alive(controls.group()));
}

#[tokio::test(flavor = "multi_thread")]
async fn signals_are_passed_on_and_the_second_interrupt_kills() {
    let locks = new_locks();
    let hold = acquire(&locks, "a").await;
    let (supervised, mut controls) = start(DEAF, &hold, &[]).await;
    until_up(&mut controls).await;
    let waiting = supervised.wait();
    let control = async {
        controls.pass_on(Signal::INT);
        BootClock.sleep(Duration::from_millis(100)).await;
        assert!(is_alive(controls.group()));
        controls.pass_on(Signal::INT);
    };
    let (end, ()) = tokio::join!(waiting, control);
    assert!(matches!(end.unwrap(), CommandEnd::ByItself(status) if !status.success()));
    assert_eq!(rest_of_output(&mut controls).await, "int\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_loss_of_any_hold_stops_the_command() {
    let (locks, others) = (new_locks(), new_locks());
    let hold = acquire(&locks, "job").await;
    let resources = [acquire(&others, "resource").await];
    let (supervised, mut controls) = start(DEAF, &hold, &resources).await;
    until_up(&mut controls).await;
    let (end, _) = tokio::join!(supervised.wait(), others.shutdown(Duration::ZERO));
    let CommandEnd::Stopped { reason, description } = end.unwrap() else {
        panic!("not stopped");
    };
    assert_eq!(reason, Loss::Shutdown);
    assert_eq!(description, "was stopped before anyone else could be granted the lock");
    assert_eq!(rest_of_output(&mut controls).await, "term\n");
    hold.check().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_supervision_leaves_no_process() {
    let locks = new_locks();
    let hold = acquire(&locks, "a").await;
    let (supervised, mut controls) = start(DEAF, &hold, &[]).await;
    until_up(&mut controls).await;
    drop(supervised);
    assert_eq!(rest_of_output(&mut controls).await, "", "no grace without a guardian");
}

/// Finding 16 of the security review: the ended leader stays a zombie while its group may get signals.
#[tokio::test]
async fn finding_16_the_leader_is_reaped_after_its_descendants() {
    let locks = new_locks();
    let hold = acquire(&locks, "a").await;
    let script = "sh -c 'trap \"\" TERM; echo up; while :; do sleep 0.02; done' & exit 3";
    let (supervised, mut controls) = start(script, &hold, &[]).await;
    until_up(&mut controls).await;
    let leader = std::path::PathBuf::from(format!("/proc/{}", controls.group().as_raw_nonzero()));
    let mut wait = std::pin::pin!(supervised.wait());
    let mut reaped_early = false;
    let end = loop {
        tokio::select! {
            biased;
            end = &mut wait => break end,
            () = BootClock.sleep(Duration::from_millis(5)) => reaped_early |= !leader.exists(),
        }
    };
    assert!(matches!(end.unwrap(), CommandEnd::ByItself(status) if status.code() == Some(3)));
    assert!(!reaped_early && !leader.exists());
}
