//! The replicas as processes, and what is done to them.

use std::ffi::OsString;
use std::fs::File;
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use leasehold::clock::{BootClock, Clock, ClockExt, until};
use leasehold::leasehold_core::rng::{OsRandom, RandomExt};
use leasehold_drill::fleet::Program;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use super::load::Load;
use super::lock::{Kept, Watch};
use super::stage::{Stage, now};
use super::{Fault, ProofArgs};

/// How long a replica that was told to end may take.
const FAREWELL: Duration = Duration::from_secs(20);

/// What was done, to whom, and when.
#[derive(Debug, Clone)]
pub(super) struct Done {
    pub(super) fault: Fault,
    /// As the replica called itself in the stores.
    pub(super) who: String,
    /// Milliseconds since 1970.
    pub(super) at: u64,
    /// For how long it could do nothing but hold what it had.
    pub(super) lasted: Duration,
    /// The file that it was seen to keep locked for all that time.
    pub(super) kept: Option<Kept>,
}

pub(super) struct Crew {
    members: tokio::sync::Mutex<Vec<Member>>,
    faults: Mutex<Vec<Done>>,
    /// What makes a replica die with this process.
    binding: Vec<OsString>,
    words: Vec<String>,
    folder: std::path::PathBuf,
}

struct Member {
    id: String,
    child: Child,
    pid: Pid,
}

impl Member {
    fn who(&self) -> String {
        format!("{}:{}", self.id, self.pid.as_raw_nonzero())
    }

    fn signal(&self, signal: Signal) {
        // Who is gone already has got what was wanted.
        let _ = kill_process(self.pid, signal);
    }
}

impl Crew {
    pub(super) fn start(args: &ProofArgs, stage: &Stage) -> anyhow::Result<Self> {
        let text = |duration: Duration| format!("{}ms", duration.as_millis());
        let mut words: Vec<String> = Vec::new();
        let policies = stage.policies().display().to_string();
        for (word, value) in [("--store", &stage.locks), ("--policies", &policies)] {
            words.extend([word.to_owned(), value.clone()]);
        }
        words.extend(["plane".to_owned(), "replica".to_owned(), "--notes".to_owned()]);
        for (word, value) in [
            ("--plane-store", stage.plane.clone()),
            ("--poll", text(args.poll)),
            ("--visible", text(args.ttl)),
            ("--replay-age", "10s".to_owned()),
            ("--run-age", "5s".to_owned()),
            ("--drain", "10s".to_owned()),
            ("--slots", "8".to_owned()),
            // A machine that is busy with everything at once must not end jobs that only wait.
            ("--scheduled-timeout", "10m".to_owned()),
            ("--dispatched-timeout", "10m".to_owned()),
        ] {
            words.extend([word.to_owned(), value]);
        }
        let crew = Self {
            members: tokio::sync::Mutex::default(),
            faults: Mutex::default(),
            binding: Program::this()?.binding(),
            words,
            folder: stage.folder().to_path_buf(),
        };
        let members: anyhow::Result<Vec<_>> = (0..args.replicas)
            .map(|number| crew.spawn(&format!("r{number}")))
            .collect();
        *crew.members.try_lock().context("just made")? = members?;
        Ok(crew)
    }

    fn spawn(&self, id: &str) -> anyhow::Result<Member> {
        let log = |end: &str| -> anyhow::Result<File> {
            let path = self.folder.join(format!("{id}.{end}"));
            Ok(File::options().create(true).append(true).open(path)?)
        };
        let mut bound = self.binding.iter();
        let child = Command::new(bound.next().context("there is no program")?)
            .args(bound)
            .arg("/proc/self/exe")
            .args(&self.words)
            .args(["--id", id])
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
        Ok(Member {
            id: id.to_owned(),
            pid: pid.context("a replica ended at once")?,
            child,
        })
    }

    /// What was done so far.
    pub(super) fn faults(&self) -> Vec<Done> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn record(&self, fault: Fault, member: &Member) {
        let done = Done {
            fault,
            who: member.who(),
            at: now(),
            lasted: Duration::ZERO,
            kept: None,
        };
        self.faults
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(done);
    }

    /// The fault recorded last is over.
    fn lasted(&self, kept: Option<Kept>) {
        let mut faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = faults.last_mut() {
            last.lasted = Duration::from_millis(now().saturating_sub(last.at));
            last.kept = kept;
        }
    }

    /// Breaks one replica after the other, in turn, for as long as there is work.
    pub(super) async fn break_things(
        &self,
        args: &ProofArgs,
        load: &Load<'_>,
        watch: &Watch,
    ) -> anyhow::Result<Vec<Done>> {
        let faults: Vec<_> = args
            .faults
            .iter()
            .filter(|fault| **fault != Fault::None)
            .collect();
        load.under_way().await;
        for turn in 0.. {
            if load.done() || faults.is_empty() {
                break;
            }
            let mut members = self.members.lock().await;
            let count = members.len();
            // Each replica gets each fault: the turns of the one are no divisor of the turns of the other.
            let fault = *faults
                .get((turn + turn / count) % faults.len())
                .map_or(&Fault::None, |fault| fault);
            let Some(member) = members.get_mut(turn % count) else {
                break;
            };
            self.record(fault, member);
            match fault {
                Fault::Kill => {
                    member.signal(Signal::KILL);
                    member.child.wait().await?;
                    BootClock.sleep(OsRandom.jitter(Duration::from_millis(300))).await;
                    *member = self.spawn(&member.id)?;
                }
                Fault::Stop => {
                    member.signal(Signal::STOP);
                    watch.stopped(member.pid).await;
                    // Longer than its leases live, so that it wakes up to find its work in other hands.
                    BootClock.sleep(args.ttl + OsRandom.jitter(args.ttl)).await;
                    let kept = watch.goes_on();
                    member.signal(Signal::CONT);
                    self.lasted(kept);
                }
                Fault::Term => {
                    member.signal(Signal::TERM);
                    let ended = until(&BootClock, BootClock.now() + FAREWELL, member.child.wait()).await;
                    ended.context("a replica did not end when it was told to")??;
                    *member = self.spawn(&member.id)?;
                }
                Fault::None => {}
            }
            drop(members);
            // The promise is about one fault: the next one comes when this one's work has been taken over.
            BootClock.sleep(args.bound() + OsRandom.jitter(args.poll)).await;
        }
        Ok(self.faults())
    }

    /// Ends all of them.
    pub(super) async fn end(&self) {
        for member in self.members.lock().await.iter_mut() {
            member.signal(Signal::CONT);
            member.signal(Signal::TERM);
            if until(&BootClock, BootClock.now() + FAREWELL, member.child.wait())
                .await
                .is_none()
            {
                let _ = member.child.kill().await;
            }
        }
    }
}

/// Kills and reaps whoever is left: a drill that is broken off leaves nobody.
impl Drop for Crew {
    fn drop(&mut self) {
        for member in self.members.get_mut() {
            let _ = member.child.start_kill();
            while let Ok(None) = member.child.try_wait() {
                std::thread::yield_now();
            }
        }
    }
}
