//! The replicas as processes, and the faults injected into them.

use std::ffi::OsString;
use std::fs::File;
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use leasehold_core::clock::{BootClock, Clock, ClockExt, run_until};
use leasehold_core::rng::{OsRandom, RandomExt};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use super::file_lock::{LockWatch, LockedFile};
use super::testbed::{PlaneTestbed, wall_millis};
use super::workload::Workload;
use super::{PlaneDrillOptions, PlaneFault};
use crate::fleet::WorkerProgram;

/// The limit for a replica to exit after TERM.
const REPLICA_EXIT_TIMEOUT: Duration = Duration::from_secs(20);

/// A fault that was injected into a replica.
#[derive(Debug, Clone)]
pub(super) struct ReplicaFault {
    pub(super) fault: PlaneFault,
    /// The replica's holder name in the stores.
    pub(super) holder: String,
    pub(super) at: u64,
    /// How long the replica was stopped; zero for other faults.
    pub(super) stopped_for: Duration,
    /// The SQLite file that the stopped replica kept locked for all that time.
    pub(super) locked_file: Option<LockedFile>,
}

pub(super) struct ReplicaFleet {
    members: tokio::sync::Mutex<Vec<ReplicaProcess>>,
    faults: Mutex<Vec<ReplicaFault>>,
    /// A wrapper command that kills a replica when this process dies.
    binding: Vec<OsString>,
    args: Vec<String>,
    folder: std::path::PathBuf,
}

struct ReplicaProcess {
    id: String,
    child: Child,
    pid: Pid,
}

impl ReplicaProcess {
    fn holder(&self) -> String {
        format!("{}:{}", self.id, self.pid.as_raw_nonzero())
    }

    fn signal(&self, signal: Signal) {
        // ESRCH: already dead.
        let _ = kill_process(self.pid, signal);
    }
}

impl ReplicaFleet {
    pub(super) fn start(
        options: &PlaneDrillOptions,
        program: &WorkerProgram,
        testbed: &PlaneTestbed,
    ) -> anyhow::Result<Self> {
        let text = |duration: Duration| format!("{}ms", duration.as_millis());
        let mut words: Vec<String> = Vec::new();
        let policies = testbed.policies().display().to_string();
        for (word, value) in [("--store", &testbed.lock_url()), ("--policies", &policies)] {
            words.extend([word.to_owned(), value.clone()]);
        }
        words.extend(["plane".to_owned(), "replica".to_owned(), "--notes".to_owned()]);
        for (word, value) in [
            ("--plane-store", testbed.plane_url()),
            ("--poll", text(options.poll)),
            ("--visible", text(options.ttl)),
            ("--replay-age", "10s".to_owned()),
            ("--run-age", "5s".to_owned()),
            ("--drain", "10s".to_owned()),
            ("--slots", "8".to_owned()),
            // An overloaded test machine must not time out jobs that only wait.
            ("--scheduled-timeout", "10m".to_owned()),
            ("--dispatched-timeout", "10m".to_owned()),
        ] {
            words.extend([word.to_owned(), value]);
        }
        let workers = Self {
            members: tokio::sync::Mutex::default(),
            faults: Mutex::default(),
            binding: program.binding_prefix(),
            args: words,
            folder: testbed.folder().to_path_buf(),
        };
        let members: anyhow::Result<Vec<_>> =
            (0..options.replicas).map(|number| workers.spawn(&format!("r{number}"))).collect();
        *workers.members.try_lock().context("just made")? = members?;
        Ok(workers)
    }

    fn spawn(&self, id: &str) -> anyhow::Result<ReplicaProcess> {
        let log = |end: &str| -> anyhow::Result<File> {
            let path = self.folder.join(format!("{id}.{end}"));
            Ok(File::options().create(true).append(true).open(path)?)
        };
        let mut bound = self.binding.iter();
        let child = Command::new(bound.next().context("there is no program")?)
            .args(bound)
            .arg("/proc/self/exe")
            .args(&self.args)
            .args(["--id", id])
            // The user's environment must not lead the replicas to a real store.
            .env_remove("LEASEHOLD_STORE")
            .env_remove("LEASEHOLD_PLANE_STORE")
            .env_remove("LEASEHOLD_POLICIES")
            .stdin(Stdio::null())
            .stdout(log("notes")?)
            .stderr(log("log")?)
            .kill_on_drop(true)
            .spawn()
            .context("cannot start a replica")?;
        let pid = child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?));
        Ok(ReplicaProcess { id: id.to_owned(), pid: pid.context("a replica ended at once")?, child })
    }

    pub(super) fn faults(&self) -> Vec<ReplicaFault> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn record(&self, fault: PlaneFault, member: &ReplicaProcess) {
        let done = ReplicaFault {
            fault,
            holder: member.holder(),
            at: wall_millis(),
            stopped_for: Duration::ZERO,
            locked_file: None,
        };
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).push(done);
    }

    /// Completes the record of the last fault.
    fn finish_last_fault(&self, kept: Option<LockedFile>) {
        let mut faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = faults.last_mut() {
            last.stopped_for = Duration::from_millis(wall_millis().saturating_sub(last.at));
            last.locked_file = kept;
        }
    }

    /// Injects faults into one replica after the other, for as long as there is work.
    pub(super) async fn inject_faults(
        &self,
        options: &PlaneDrillOptions,
        load: &Workload<'_>,
        watch: &LockWatch,
    ) -> anyhow::Result<Vec<ReplicaFault>> {
        let faults = &options.faults;
        load.wait_until_started().await;
        for turn in 0.. {
            if load.done() || faults.is_empty() {
                break;
            }
            let mut members = self.members.lock().await;
            let count = members.len();
            // The offset `turn / count` gives each replica each fault, even if the counts share a divisor.
            let fault = faults.get((turn + turn / count) % faults.len()).copied();
            let (Some(fault), Some(member)) = (fault, members.get_mut(turn % count)) else {
                break;
            };
            self.record(fault, member);
            match fault {
                PlaneFault::Kill => {
                    member.signal(Signal::KILL);
                    member.child.wait().await?;
                    BootClock.sleep(OsRandom.jitter(Duration::from_millis(300))).await;
                    *member = self.spawn(&member.id)?;
                }
                PlaneFault::Stop => {
                    member.signal(Signal::STOP);
                    watch.begin_stop(member.pid).await;
                    // Longer than the TTL, so that others have taken over its work when it continues.
                    BootClock.sleep(options.ttl + OsRandom.jitter(options.ttl)).await;
                    let kept = watch.end_stop();
                    member.signal(Signal::CONT);
                    self.finish_last_fault(kept);
                }
                PlaneFault::Term => {
                    member.signal(Signal::TERM);
                    let ended =
                        run_until(&BootClock, BootClock.now() + REPLICA_EXIT_TIMEOUT, member.child.wait())
                            .await;
                    ended.context("a replica did not end when it was asked to")??;
                    *member = self.spawn(&member.id)?;
                }
            }
            drop(members);
            // The promise is about a single fault: wait until this one's work was taken over.
            BootClock.sleep(options.takeover_bound() + OsRandom.jitter(options.poll)).await;
        }
        Ok(self.faults())
    }

    /// Stops all replicas.
    pub(super) async fn stop_all(&self) {
        for member in self.members.lock().await.iter_mut() {
            member.signal(Signal::CONT);
            member.signal(Signal::TERM);
            if run_until(&BootClock, BootClock.now() + REPLICA_EXIT_TIMEOUT, member.child.wait())
                .await
                .is_none()
            {
                let _ = member.child.kill().await;
            }
        }
    }
}

/// Kills and reaps the remaining replicas when a drill is interrupted.
impl Drop for ReplicaFleet {
    fn drop(&mut self) {
        for member in self.members.get_mut() {
            let _ = member.child.start_kill();
            while let Ok(None) = member.child.try_wait() {
                std::thread::yield_now();
            }
        }
    }
}
