//! The plane's timeouts, intervals and limits, with the specification's defaults.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_core::InvalidInput;

use crate::job::Job;
use crate::state::JobState;

/// How long a job may stay in each state before the reconciler ends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateTimeouts {
    /// Limit for SCHEDULED.
    pub scheduled: Duration,
    /// Limit for DISPATCHED.
    pub dispatched: Duration,
    /// Limit for RUNNING, unless the job sets its own `timeout`.
    pub running: Duration,
}

impl Default for StateTimeouts {
    fn default() -> Self {
        Self {
            scheduled: Duration::from_secs(60),
            dispatched: Duration::from_secs(5 * 60),
            running: Duration::from_secs(15 * 60),
        }
    }
}

/// Settings of one plane. All replicas on a store should use the same.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How often each loop ticks. A crashed replica's work is taken over within the lock's TTL plus one poll.
    pub poll: Duration,
    /// How often an idle replica polls its queues for messages.
    pub message_poll: Duration,
    /// How many jobs one replica works on at once.
    pub slots: usize,
    /// Redelivery delay, jittered, if the lock or a resource was busy.
    pub busy_redelivery_delay: Duration,
    /// Redelivery delay, jittered, after an error.
    pub error_redelivery_delay: Duration,
    /// Visibility timeout: after this time the store redelivers a message that was not settled.
    pub visibility_timeout: Duration,
    /// The limits for topics without their own.
    pub timeouts: StateTimeouts,
    /// The limits of single topics, by topic name.
    pub topic_timeouts: BTreeMap<String, StateTimeouts>,
    /// A PENDING job older than this gets its message again. Must be shorter than the time-outs.
    pub replay_age: Duration,
    /// A run without a change for this long is checked by the run reconciler.
    pub run_age: Duration,
    /// How long a pull worker may stay without a heartbeat before it loses its claim.
    pub heartbeat_timeout: Duration,
    /// How long the reconciler leaves a job alone that began without a fence, so that its hold can heal.
    pub unfenced_grace: Duration,
    /// How long ended jobs and runs are retained.
    pub retention: Duration,
    /// The time between TERM and KILL when a command must end early. Zero: the class's own, or the smaller
    /// of 5 s and a sixth of the TTL.
    pub stop_grace: Duration,
    /// How many unfinished runs one organisation may have; `None` means no limit.
    pub max_runs_per_org: Option<u64>,
    /// How many jobs of its topic one claim looks at; the next claim goes on from there.
    pub claim_candidates: usize,
    /// A principal may decide about jobs that it submitted itself.
    pub allow_self_approval: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            poll: Duration::from_secs(5),
            message_poll: Duration::from_millis(200),
            slots: 16,
            busy_redelivery_delay: Duration::from_millis(500),
            error_redelivery_delay: Duration::from_secs(1),
            visibility_timeout: Duration::from_secs(30),
            timeouts: StateTimeouts::default(),
            topic_timeouts: BTreeMap::new(),
            replay_age: Duration::from_secs(30),
            run_age: Duration::from_secs(30),
            heartbeat_timeout: Duration::from_secs(30),
            unfenced_grace: Duration::from_secs(30),
            retention: Duration::from_secs(7 * 24 * 3600),
            stop_grace: Duration::ZERO,
            max_runs_per_org: None,
            claim_candidates: 1024,
            allow_self_approval: false,
        }
    }
}

impl Settings {
    /// Checks that the settings can work together.
    ///
    /// # Errors
    /// The first setting that cannot work, with the reason.
    pub fn check(&self) -> Result<(), InvalidInput> {
        // Replay must come before every time-out: otherwise the reconciler ends a job whose message was
        // merely lost.
        let least =
            |timeouts: &StateTimeouts| timeouts.scheduled.min(timeouts.dispatched).min(timeouts.running);
        let all = self.topic_timeouts.values().chain([&self.timeouts]);
        for timeouts in all {
            if self.replay_age >= least(timeouts) {
                return Err(InvalidInput::new(
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
            return Err(InvalidInput::new("poll", format!("{:?}", self.poll), why));
        }
        if self.slots == 0 {
            return Err(InvalidInput::new("slots", "0", "must be at least 1"));
        }
        if self.claim_candidates == 0 {
            return Err(InvalidInput::new("claim_candidates", "0", "must be at least 1"));
        }
        Ok(())
    }

    /// How long a job may stay in its state; `None` if there is no limit.
    #[must_use]
    pub fn state_limit(&self, job: &Job) -> Option<Duration> {
        let timeouts = self.topic_timeouts.get(&job.spec.topic).unwrap_or(&self.timeouts);
        match job.state {
            // Not a time-out: at this age the replayer sends the job's message again.
            JobState::Pending => Some(self.replay_age),
            JobState::Scheduled => Some(timeouts.scheduled),
            JobState::Dispatched => Some(timeouts.dispatched),
            JobState::Running => Some(job.spec.timeout.map_or(timeouts.running, |timeout| timeout.0)),
            _ => None,
        }
    }

    /// The due time of a job that has just entered its state: the given delay (such as a heartbeat), or
    /// the limit of its state, but never later than its deadline.
    #[must_use]
    pub fn due_in(&self, job: &Job, message: Option<Duration>) -> Option<Duration> {
        // A job that is not yet stored has `now` and `created` of zero: its deadline counts from its creation.
        let now = job.now.max(job.created);
        let left = |deadline: u64| Duration::from_millis(deadline.saturating_sub(now));
        let late = job.deadline().filter(|_| !job.state.is_terminal()).map(left);
        [message.or_else(|| self.state_limit(job)), late].into_iter().flatten().min()
    }
}
