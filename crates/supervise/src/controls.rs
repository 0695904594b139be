//! What the caller can do with a running command while it waits for its end.

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, ChildStderr, ChildStdout};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// A request of the caller to end the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StopRequest {
    /// TERM, the grace period, KILL.
    Terminate,
    Kill,
}

/// The supervisor's end of the [`Controls`].
#[derive(Debug)]
pub(crate) struct ControlChannels {
    pub(crate) stop_requests: UnboundedReceiver<StopRequest>,
    pub(crate) notices: UnboundedSender<String>,
}

/// What the caller can do with a running command while it waits for its end.
#[derive(Debug)]
pub struct Controls {
    group: Pid,
    stop_sender: UnboundedSender<StopRequest>,
    interrupts: u32,
    notices: UnboundedReceiver<String>,
    /// The command's output, if its streams are captured.
    pub stdout: Option<ChildStdout>,
    /// The command's errors, if its streams are captured.
    pub stderr: Option<ChildStderr>,
}

impl Controls {
    pub(crate) fn new(group: Pid, child: &mut Child) -> (Self, ControlChannels) {
        let (stop_sender, stop_requests) = unbounded_channel();
        let (notice_sender, notices) = unbounded_channel();
        let controls = Self {
            group,
            stop_sender,
            interrupts: 0,
            notices,
            stdout: child.stdout.take(),
            stderr: child.stderr.take(),
        };
        let channels = ControlChannels { stop_requests, notices: notice_sender };
        (controls, channels)
    }

    /// The command's process group.
    #[must_use]
    pub fn group(&self) -> Pid {
        self.group
    }

    /// Passes a signal on to the command's group. A second INT or TERM kills the command.
    pub fn pass_on(&mut self, signal: Signal) {
        if matches!(signal, Signal::INT | Signal::TERM) {
            self.interrupts += 1;
            if self.interrupts > 1 {
                let _ = self.stop_sender.send(StopRequest::Kill);
                return;
            }
        }
        // ESRCH: already dead.
        let _ = kill_process_group(self.group, signal);
    }

    /// Ends the command with all its descendants: TERM, the grace period, KILL.
    pub fn stop(&self) {
        let _ = self.stop_sender.send(StopRequest::Terminate);
    }

    /// The next message for people about the supervision itself.
    pub async fn next_notice(&mut self) -> String {
        match self.notices.recv().await {
            Some(notice) => notice,
            None => std::future::pending().await,
        }
    }

    /// A message that has not been read yet.
    pub fn take_notice(&mut self) -> Option<String> {
        self.notices.try_recv().ok()
    }
}
