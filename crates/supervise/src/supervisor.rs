//! Supervises a command: waits for its end, a lost hold, stop requests and the guardian's replies.

use std::process::ExitStatus;
use std::time::Duration;

use futures_util::future::select_all;
use leasehold_core::clock::{BootClock, Clock, ClockExt, Moment};
use leasehold_core::{Hold, Loss};
use rustix::process::Signal;
use tokio::process::Child;
use tokio::signal::unix::{SignalKind, signal};

use crate::child::{has_exited, reap_orphans};
use crate::controls::{ControlChannels, Controls, StopRequest};
use crate::deadline_forwarder::{DeadlineForwarder, Deadlines};
use crate::error::SuperviseError;
use crate::guardian_client::{GuardianClient, GuardianReport, GuardianSpec};
use crate::held_command::HeldCommand;
use crate::process_tree::ProcessTree;

/// Between two checks for leftover or killed processes.
const LEFTOVER_POLL_INTERVAL: Duration = Duration::from_millis(10);
// After about two seconds of KILLs the user is told that a process cannot be killed.
const KILLS_BEFORE_WARNING: u32 = 200;
// A guardian that dies more often than this is killed on purpose, and is not replaced again.
const MAX_GUARDIAN_RESTARTS: u32 = 3;

/// How a command ended.
#[derive(Debug)]
pub enum CommandEnd {
    /// It ended by itself, or because the caller stopped it.
    ByItself(ExitStatus),
    /// It was ended because a hold was lost.
    Stopped {
        /// Why the hold was lost.
        reason: Loss,
        /// What happened to the command, as the rest of a sentence after "the command".
        description: &'static str,
    },
}

/// A running command. Dropping it ends the command: by the guardian with TERM, grace and KILL, or by KILL if
/// there is no guardian.
#[derive(Debug)]
pub struct RunningCommand<'a> {
    holds: Vec<&'a Hold>,
    deadlines: Deadlines,
    grace: Duration,
    guardian_spec: Option<GuardianSpec>,
    restarts: u32,
    forwarder: Option<DeadlineForwarder>,
    /// The command itself has ended; its descendants may still run. It is reaped after them.
    exited: bool,
    /// Why a hold was lost, once it is.
    lost: Option<Loss>,
    /// The loss was noticed after the kill deadline: this process was suspended together with the command.
    noticed_late: bool,
    /// The command had ended before the loss; only its descendants were left.
    ended_before_loss: bool,
    /// When KILL is sent: after a loss or a stop request, or to leftover processes.
    kill_at: Moment,
    /// Rounds of KILL so far.
    kills: u32,
    guardian_acted: bool,
    channels: ControlChannels,
    processes: OwnedProcesses,
    /// After `processes`, whose drop signals the group: dropping the child may reap the group's leader.
    child: Child,
}

/// The processes that must not outlive the supervision.
#[derive(Debug)]
pub(crate) struct OwnedProcesses {
    pub(crate) tree: ProcessTree,
    pub(crate) guardian: Option<GuardianClient>,
    /// Processes may be left: dropping this ends them.
    pub(crate) armed: bool,
}

impl Drop for OwnedProcesses {
    fn drop(&mut self) {
        match &self.guardian {
            _ if !self.armed => {}
            Some(guardian) => guardian.pipe().send_stop(),
            None => self.tree.signal(Signal::KILL),
        }
    }
}

impl<'a> RunningCommand<'a> {
    pub(crate) fn start(held: HeldCommand<'a>) -> (Self, Controls) {
        let mut child = held.child.open();
        let (controls, channels) = Controls::new(held.processes.tree.group, &mut child);
        let supervised = Self {
            holds: held.holds,
            deadlines: held.deadlines,
            grace: held.grace,
            guardian_spec: held.guardian_spec,
            restarts: 0,
            forwarder: held.forwarder,
            exited: false,
            lost: None,
            noticed_late: false,
            ended_before_loss: false,
            kill_at: Moment::FAR,
            kills: 0,
            guardian_acted: false,
            channels,
            processes: held.processes,
            child,
        };
        (supervised, controls)
    }

    /// Waits until the command and all its descendants have ended, and stops them if a hold is lost.
    ///
    /// # Errors
    /// The command's exit status could not be read.
    pub async fn wait(mut self) -> Result<CommandEnd, SuperviseError> {
        let status = self.wait_until_all_ended().await?;
        Ok(self.into_end(status).await)
    }

    async fn wait_until_all_ended(&mut self) -> Result<ExitStatus, SuperviseError> {
        let mut child_signals = signal(SignalKind::child()).map_err(SuperviseError::Wait)?;
        loop {
            self.exited = self.exited || has_exited(self.processes.tree.group);
            if self.exited && self.leftovers_ended() {
                // Reaped only now: until then the zombie keeps the group's number from being reused.
                return self.child.wait().await.map_err(SuperviseError::Wait);
            }
            let (holds, kill_at) = (self.holds.clone(), self.kill_at);
            tokio::select! {
                biased;
                Some(()) = child_signals.recv() => self.reap_orphans(),
                reason = first_lost(&holds), if self.lost.is_none() => {
                    // The order matters after a suspension: an exit that has already happened counts first.
                    if self.exited || !has_exited(self.processes.tree.group) {
                        self.stop_after_loss(reason);
                    }
                }
                () = BootClock.sleep_until(kill_at), if kill_at < Moment::FAR => self.kill_all(),
                word = next_guardian_reply(&mut self.processes.guardian) => self.on_guardian_reply(word).await,
                Some(request) = self.channels.stop_requests.recv() => self.on_stop_request(request),
                // There is no event for the end of a process that is not our child.
                () = BootClock.sleep(LEFTOVER_POLL_INTERVAL), if self.exited => {}
            }
        }
    }

    /// Called after the command's end. Ends its leftover processes; true when none is left.
    fn leftovers_ended(&mut self) -> bool {
        self.reap_orphans();
        if !self.processes.tree.any_alive() {
            return true;
        }
        if self.kill_at == Moment::FAR {
            self.terminate_by(BootClock.now() + self.grace);
        }
        false
    }

    /// Ends the command after a lost hold, before another holder can be granted the lock.
    fn stop_after_loss(&mut self, reason: Loss) {
        let now = BootClock.now();
        let last = self.deadlines.stop_at() + self.grace;
        self.lost = Some(reason);
        self.noticed_late = now > last;
        self.ended_before_loss = self.exited;
        match reason {
            // Another holder may already work, so there is no time for a grace period.
            Loss::NotOwned | Loss::Broken | Loss::HealConflict => self.kill_all(),
            _ if last <= now => self.kill_all(),
            _ => self.terminate_by(last.min(now + self.grace)),
        }
    }

    fn on_stop_request(&mut self, request: StopRequest) {
        match request {
            StopRequest::Terminate if !self.grace.is_zero() => {
                self.terminate_by(BootClock.now() + self.grace);
            }
            StopRequest::Terminate | StopRequest::Kill => self.kill_all(),
        }
    }

    /// Sends TERM, unless that has been done. A KILL that is due earlier stays due.
    fn terminate_by(&mut self, kill_at: Moment) {
        // Many programs take a second TERM as a request to end without cleaning up.
        if self.kill_at == Moment::FAR {
            self.processes.tree.terminate();
        }
        self.kill_at = self.kill_at.min(kill_at);
    }

    fn kill_all(&mut self) {
        self.processes.tree.signal(Signal::KILL);
        self.kills += 1;
        if self.kills == KILLS_BEFORE_WARNING {
            self.notify(
                "the command cannot be killed: it runs as another user, or hangs in the kernel; still trying"
                    .to_owned(),
            );
        }
        // Repeat, for processes that were forked while KILL was sent.
        self.kill_at = BootClock.now() + LEFTOVER_POLL_INTERVAL;
    }

    async fn on_guardian_reply(&mut self, word: Option<String>) {
        match word.as_deref() {
            Some("acted") => self.guardian_acted = true,
            Some(_) => {}
            // A guardian exits by itself after it has acted.
            None if self.guardian_acted => self.processes.guardian = None,
            None => self.replace_guardian().await,
        }
    }

    /// Replaces a dead guardian: it is what ends the command if this process cannot.
    async fn replace_guardian(&mut self) {
        self.restarts += 1;
        let replaced = match (&mut self.processes.guardian, &self.guardian_spec) {
            (Some(guardian), Some(spec)) if self.restarts <= MAX_GUARDIAN_RESTARTS => {
                guardian.restart(spec, &self.processes.tree).await
            }
            _ => Err(SuperviseError::GuardianRestarts(MAX_GUARDIAN_RESTARTS)),
        };
        match replaced {
            Ok(()) => {
                if let Some(guardian) = &self.processes.guardian {
                    self.processes.tree.exclude = guardian.pid();
                    self.deadlines.send_to(guardian.pipe(), self.grace);
                }
                self.notify("the guardian process died and was replaced".to_owned());
            }
            Err(error) => {
                self.processes.guardian = None;
                self.processes.tree.exclude = None;
                self.notify(format!(
                    "the guardian process died and could not be replaced: {error}\n\
                     if leasehold itself is killed now, the command will outlive it"
                ));
            }
        }
    }

    fn notify(&self, text: String) {
        // The caller may not listen; then nothing depends on it.
        let _ = self.channels.notices.send(text);
    }

    async fn into_end(mut self, status: ExitStatus) -> CommandEnd {
        self.processes.armed = false;
        self.forwarder = None;
        let dismissed = match self.processes.guardian.take() {
            Some(guardian) => guardian.dismiss().await,
            // Without a guardian only this process could have been too late.
            None if self.guardian_spec.is_none() => GuardianReport::Quiet,
            None => GuardianReport::Gone,
        };
        let reason = self.holds.iter().find_map(|hold| hold.check().err()).map(|lost| lost.reason);
        if self.ended_before_loss {
            // The command finished under the lease, so its exit code stands (invariant I9).
            return CommandEnd::ByItself(status);
        }
        if let Some(reason) = self.lost {
            return CommandEnd::Stopped {
                reason,
                description: match reason {
                    Loss::NotOwned | Loss::Broken | Loss::HealConflict => "was killed at once",
                    _ if self.noticed_late => {
                        "was suspended past its deadline together with leasehold, and was killed before it could go on"
                    }
                    _ => "was stopped before anyone else could be granted the lock",
                },
            };
        }
        // After the deadline, only a guardian that did not act proves that the command ended in time.
        match (self.guardian_acted || dismissed == GuardianReport::Acted, dismissed, reason) {
            (true, _, reason) => CommandEnd::Stopped {
                reason: reason.unwrap_or(Loss::Deadline),
                description: "was stopped by its guardian before anyone else could be granted the lock",
            },
            (false, GuardianReport::Gone, Some(reason)) => CommandEnd::Stopped {
                reason,
                description: "has ended, but it is unknown whether it ended in time",
            },
            _ => CommandEnd::ByItself(status),
        }
    }

    /// Reaps adopted orphans, but not the children that tokio or the guardian client waits for.
    fn reap_orphans(&self) {
        let tree = &self.processes.tree;
        if tree.root.is_some() {
            reap_orphans(&[Some(tree.group), tree.exclude]);
        }
    }
}

async fn first_lost(holds: &[&Hold]) -> Loss {
    let (lost, ..) = select_all(holds.iter().map(|hold| Box::pin(hold.lost()))).await;
    lost.reason
}

async fn next_guardian_reply(guardian: &mut Option<GuardianClient>) -> Option<String> {
    match guardian {
        Some(guardian) => guardian.next_reply().await,
        None => std::future::pending().await,
    }
}
