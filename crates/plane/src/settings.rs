//! The plane's numbers, with the articles' defaults.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_core::Invalid;

use crate::job::Job;
use crate::state::JobState;

/// How long a job may stay in a state before the reconciler ends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// In SCHEDULED.
    pub scheduled: Duration,
    /// In DISPATCHED.
    pub dispatched: Duration,
    /// In RUNNING, unless the job itself says.
    pub running: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            scheduled: Duration::from_secs(60),
            dispatched: Duration::from_secs(5 * 60),
            running: Duration::from_secs(15 * 60),
        }
    }
}

/// The plane's numbers.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How often each loop ticks. A crashed replica's work is taken over within the lock's TTL and one poll.
    pub poll: Duration,
    /// How often mail is looked for when none came.
    pub mail_poll: Duration,
    /// How many jobs one replica works on at once.
    pub slots: usize,
    /// When busy mail comes again, jittered.
    pub busy_again: Duration,
    /// When mail comes again after an error, jittered.
    pub error_again: Duration,
    /// When taken mail comes again by itself if nobody settles it.
    pub visible: Duration,
    /// How long jobs may stay where they are.
    pub timeouts: Timeouts,
    /// The same for topics that differ.
    pub topics: BTreeMap<String, Timeouts>,
    /// A PENDING job older than this is submitted again. Shorter than the time-outs, or it would time out first.
    pub replay_age: Duration,
    /// A run that has not moved for this long is looked at.
    pub run_age: Duration,
    /// How long a pull worker may be silent.
    pub heartbeat: Duration,
    /// How long a job that was begun without a fence is left alone by the reconciler.
    pub unfenced_grace: Duration,
    /// How long ended jobs and runs are kept.
    pub keep: Duration,
    /// From TERM to KILL when a command must end early.
    pub stop_grace: Duration,
    /// How many runs one organisation may have under way; none is no limit.
    pub admission: Option<u64>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            poll: Duration::from_secs(5),
            mail_poll: Duration::from_millis(200),
            slots: 16,
            busy_again: Duration::from_millis(500),
            error_again: Duration::from_secs(1),
            visible: Duration::from_secs(30),
            timeouts: Timeouts::default(),
            topics: BTreeMap::new(),
            replay_age: Duration::from_secs(30),
            run_age: Duration::from_secs(30),
            heartbeat: Duration::from_secs(30),
            unfenced_grace: Duration::from_secs(30),
            keep: Duration::from_secs(7 * 24 * 3600),
            stop_grace: Duration::ZERO,
            admission: None,
        }
    }
}

impl Settings {
    /// Names what cannot work.
    ///
    /// # Errors
    /// The first such number, with the arithmetic.
    pub fn check(&self) -> Result<(), Invalid> {
        let least = |timeouts: &Timeouts| timeouts.scheduled.min(timeouts.dispatched).min(timeouts.running);
        let all = self.topics.values().chain([&self.timeouts]);
        for timeouts in all {
            if self.replay_age >= least(timeouts) {
                return Err(Invalid::new(
                    "replay_age",
                    format!("{:?}", self.replay_age),
                    format!(
                        "must be shorter than every time-out, the least being {:?}: a job would time out before it is replayed",
                        least(timeouts)
                    ),
                ));
            }
        }
        if self.poll < Duration::from_millis(50) {
            let why = "must be at least 50ms: a loop's lease lives two polls, and no lease less than 100ms";
            return Err(Invalid::new("poll", format!("{:?}", self.poll), why));
        }
        if self.slots == 0 {
            return Err(Invalid::new("slots", "0", "must be at least 1"));
        }
        Ok(())
    }

    /// How long a job may stay in its state; none if it may for ever.
    #[must_use]
    pub fn limit(&self, job: &Job) -> Option<Duration> {
        let timeouts = self.topics.get(&job.spec.topic).unwrap_or(&self.timeouts);
        match job.state {
            // Not too long yet, but worth submitting again.
            JobState::Pending => Some(self.replay_age),
            JobState::Scheduled => Some(timeouts.scheduled),
            JobState::Dispatched => Some(timeouts.dispatched),
            JobState::Running => Some(job.spec.timeout.map_or(timeouts.running, |timeout| timeout.0)),
            _ => None,
        }
    }

    /// When somebody should look at a job that has just come into its state: when it was said (a heartbeat), or when its
    /// state's time is over, but no later than its deadline.
    #[must_use]
    pub fn look(&self, job: &Job, said: Option<Duration>) -> Option<Duration> {
        // A new job has not been read yet: its deadline counts from now.
        let now = job.now.max(job.created);
        let left = |deadline: u64| Duration::from_millis(deadline.saturating_sub(now));
        let late = job.deadline().filter(|_| !job.state.ended()).map(left);
        [said.or_else(|| self.limit(job)), late]
            .into_iter()
            .flatten()
            .min()
    }
}
