//! A command before its start: its process waits until the guardian watches it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold_core::Hold;
use leasehold_core::clock::{BootClock, Clock};
use rustix::process::{Pid, getpid, set_child_subreaper};

use crate::child::HeldChild;
use crate::command::CommandSpec;
use crate::controls::Controls;
use crate::deadline_forwarder::{DeadlineForwarder, Deadlines};
use crate::error::SuperviseError;
use crate::guardian_client::{GuardianClient, GuardianSpec};
use crate::process_tree::{ProcessTree, start_time};
use crate::supervisor::{CommandEnd, OwnedProcesses, RunningCommand};

// Two commands may start in the same nanosecond.
static RUN_COUNT: AtomicU64 = AtomicU64::new(0);

/// A command whose process exists but has not been let go.
#[derive(Debug)]
pub struct HeldCommand<'a> {
    pub(crate) child: HeldChild,
    pub(crate) guardian_spec: Option<GuardianSpec>,
    pub(crate) forwarder: Option<DeadlineForwarder>,
    pub(crate) deadlines: Deadlines,
    pub(crate) holds: Vec<&'a Hold>,
    pub(crate) grace: Duration,
    pub(crate) processes: OwnedProcesses,
}

/// The result of [`HeldCommand::prepare`].
#[derive(Debug)]
pub enum PrepareOutcome<'a> {
    /// The command can start.
    Held(Box<HeldCommand<'a>>),
    /// A hold was lost meanwhile. The command was not started.
    Late(CommandEnd),
}

impl<'a> HeldCommand<'a> {
    /// Makes the command's process and its guardian. The command gets the name and the fence of `hold`; it
    /// must stop when `hold` or one of `resources` is lost. Their client must count by the boot clock, as it
    /// does by default: the guardian reads no other.
    ///
    /// # Errors
    /// A process could not be started, or the guardian does not work.
    pub async fn prepare(
        spec: &CommandSpec,
        hold: &'a Hold,
        resources: impl IntoIterator<Item = &'a Hold>,
    ) -> Result<PrepareOutcome<'a>, SuperviseError> {
        let holds: Vec<_> = std::iter::once(hold).chain(resources).collect();
        // KILL takes time to take effect on a busy machine; the last tenth of the grace is for that.
        let grace = spec.grace * 9 / 10;
        let run_id = format!(
            "{}-{}-{}",
            std::process::id(),
            BootClock.now().as_nanos(),
            RUN_COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let sole_root = spec.sole.then(getpid);
        if let Some(me) = sole_root {
            // As a subreaper, this process becomes the parent of orphans, so that they can be found.
            let _ = set_child_subreaper(Some(me));
        }
        let guardian_spec = spec.helper.clone().map(|program| GuardianSpec {
            program,
            sole: spec.sole,
            grace,
            run_id: run_id.clone(),
            name: hold.name().to_string(),
        });
        let guardian = guardian_spec.as_ref().map(GuardianClient::start).transpose()?;
        let child = HeldChild::spawn(spec, hold, &run_id)?;
        // From here on an early return ends what was started.
        let mut processes = OwnedProcesses {
            tree: ProcessTree {
                group: child.group,
                // The child is not reaped before the supervision ends, so this is its own start.
                leader_start: start_time(child.group),
                root: sole_root,
                exclude: guardian.as_ref().and_then(GuardianClient::pid),
                run_id: sole_root.is_none().then_some(run_id),
            },
            guardian,
            armed: true,
        };
        let deadlines = Deadlines::of(&holds);
        let mut forwarder = None;
        if let Some(guardian) = &mut processes.guardian {
            // The guardian must know the group before the gate opens.
            guardian.watch_group(&processes.tree).await?;
            forwarder = Some(DeadlineForwarder::start(&deadlines, guardian.pipe(), grace));
        }
        let mut held = Self { child, guardian_spec, forwarder, deadlines, holds, grace, processes };
        if let Some(lost) = held.holds.iter().find_map(|hold| hold.check().err()) {
            // Starting took longer than the lease. Dropping the gate's pipe ends the child unstarted.
            if let Some(guardian) = held.processes.guardian.take() {
                drop((held.child, held.forwarder));
                held.processes.armed = false;
                guardian.dismiss().await;
            }
            return Ok(PrepareOutcome::Late(CommandEnd::Stopped {
                reason: lost.reason,
                description: "was not started: the lease ran out first",
            }));
        }
        Ok(PrepareOutcome::Held(Box::new(held)))
    }

    /// The process group that the command will lead.
    #[must_use]
    pub fn group(&self) -> Pid {
        self.processes.tree.group
    }

    /// Lets the command start.
    #[must_use]
    pub fn start(self) -> (RunningCommand<'a>, Controls) {
        RunningCommand::start(self)
    }
}
