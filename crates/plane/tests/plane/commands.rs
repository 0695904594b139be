//! Commands of jobs: how they are stopped. The tests with a guardian process are the CLI's.

use std::path::Path;
use std::time::Duration;

use crate::fixture::Fixture;
use leasehold_core::clock::{BootClock, Clock, ClockExt};
use leasehold_plane::work::Executors;
use leasehold_plane::{JobSpec, JobState, Settings, Work};

const STOP_GRACE: Duration = Duration::from_millis(600);

fn settings() -> Settings {
    Settings { stop_grace: STOP_GRACE, ..Fixture::settings() }
}

fn shell_job(id: &str, script: &str, file: &Path) -> JobSpec {
    let argv = ["sh", "-c", script, "job", file.to_str().unwrap()];
    JobSpec { id: Some(id.to_owned()), ..JobSpec::new(Work::Exec(argv.map(str::to_owned).to_vec())) }
}

async fn until_line(file: &Path, line: &str) {
    let end = BootClock.now() + Duration::from_secs(20);
    while !std::fs::read_to_string(file).unwrap_or_default().contains(line) {
        assert!(BootClock.now() < end, "no {line} in {}", file.display());
        BootClock.sleep(Duration::from_millis(10)).await;
    }
}

fn is_running(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.starts_with(" Z"))
}

/// Runs a job, cancels it once it has written `up`, and returns how long its end took.
async fn cancel_running(script: &str, file: &Path) -> Duration {
    let fixture = Fixture::in_real_time();
    let parts = fixture.replica_parts_with("a", Executors::default(), settings());
    let job = parts.plane.submit(shell_job("a", script, file)).await.unwrap();
    let deliver = async { parts.deliver_due().await };
    let cancel = async {
        until_line(file, "up").await;
        parts.plane.cancel("a", "wrong one").await.unwrap();
        let cancelled_at = BootClock.now();
        assert!(parts.scheduler.cancel_local_work("a"));
        cancelled_at
    };
    let (_, cancelled_at) = tokio::join!(deliver, cancel);
    let took = BootClock.now().since(cancelled_at);
    assert_eq!(parts.plane.job("a").await.unwrap().state, JobState::Cancelled);
    drop(job);
    took
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_gets_term_and_the_grace_before_kill() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("said");
    let deaf = "trap 'echo term >> $1' TERM; echo up >> $1; while :; do sleep 0.02; done";
    let took = cancel_running(deaf, &file).await;
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "up\nterm\n");
    assert!(took >= STOP_GRACE * 8 / 10, "killed after {took:?}");

    let file = folder.path().join("obeyed");
    let obedient = "trap 'echo term >> $1; exit' TERM; echo up >> $1; while :; do sleep 0.02; done";
    let took = cancel_running(obedient, &file).await;
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "up\nterm\n");
    assert!(took < STOP_GRACE * 8 / 10, "not waited for: {took:?}");
}

/// A descendant in a session of its own, whose parents have all ended, is found by its run id.
#[tokio::test(flavor = "multi_thread")]
async fn a_descendant_that_left_the_group_dies_with_its_command() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    let script = "(setsid sh -c 'trap \"\" TERM; echo $$ > $1.new; mv $1.new $1; while :; do sleep 0.1; done' d $1 \
                  > /dev/null 2>&1 &); while [ ! -s $1 ]; do sleep 0.01; done; echo done";
    let fixture = Fixture::in_real_time();
    let parts = fixture.replica_parts_with("a", Executors::default(), settings());
    parts.plane.submit(shell_job("a", script, &file)).await.unwrap();
    assert_eq!(parts.deliver_due().await, 1);
    assert_eq!(parts.plane.job("a").await.unwrap().state, JobState::Succeeded);
    let pid = std::fs::read_to_string(&file).unwrap();
    assert!(!is_running(&pid), "{pid} outlives its job");
}

/// The deadline leaves room for the grace, so that KILL comes before the lease ends.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_whose_lease_is_lost_is_dead_before_the_lease_ends() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("beats");
    let script = "trap 'echo term >> $1' TERM; echo up >> $1; \
                  while :; do read up rest < /proc/uptime; echo $up >> $1; sleep 0.02; done";
    let fixture = Fixture::in_real_time();
    let parts = fixture.replica_parts_with("a", Executors::default(), settings());
    parts.plane.submit(shell_job("a", script, &file)).await.unwrap();
    let deliver = async { parts.deliver_due().await };
    let lose = async {
        until_line(&file, "up").await;
        parts.plane.locks().shutdown(Duration::ZERO).await;
        BootClock.now()
    };
    let (_, lost_at) = tokio::join!(deliver, lose);
    let took = BootClock.now().since(lost_at);
    let message = std::fs::read_to_string(&file).unwrap();
    assert_eq!(message.matches("term").count(), 1, "{message}");
    assert!(took >= STOP_GRACE * 8 / 10 && took < STOP_GRACE * 4, "{took:?}");
    assert_eq!(parts.plane.job("a").await.unwrap().state, JobState::Running);
}
