//! The command under its hold: select over child, loss, signals and guardian until nobody of it is left.

use std::ffi::OsString;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use leasehold::clock::{BootClock, Clock, ClockExt, Moment};
use leasehold::{Hold, Loss, Outcome, StoreUrl};
use rustix::process::{Pid, Signal, getpid, kill_process, kill_process_group, set_child_subreaper};
use tokio::process::Child;
use tokio::sync::watch;

use super::child::{Gated, collect_orphans, stopped};
use super::follow::Follower;
use super::guard::{Dismissed, Duty, Guard};
use super::signals::{Signals, forwarded};
use super::talk::Talk;
use super::terminal::Terminal;
use crate::family::Family;
use crate::say::say;

/// How often those who were left behind, or killed, are looked for.
const LOOK: Duration = Duration::from_millis(10);
/// Who is alive after so many KILLs cannot be killed by us.
const HOPELESS: u32 = 200;
/// Whoever kills guardians faster than this does it on purpose.
const RESTARTS: u32 = 3;

/// What to run.
#[derive(Debug)]
pub(crate) struct Run {
    /// The command and its arguments.
    pub(crate) argv: Vec<OsString>,
    /// For its environment.
    pub(crate) store: StoreUrl,
    /// For its environment.
    pub(crate) holder: String,
    /// What the deadline leaves for stopping it.
    pub(crate) grace: Duration,
}

/// How the command ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// Without our doing.
    ByItself(ExitStatus),
    /// Because the lease was lost.
    Stopped {
        /// Why it was lost.
        reason: Loss,
        /// What happened to the command, to follow "the command".
        did: &'static str,
    },
}

/// Runs the command and gives the lease back when nobody of it is left.
pub(crate) async fn supervise(
    run: &Run,
    hold: Hold,
    signals: &mut Signals,
    talk: &mut Talk,
    news: watch::Receiver<u64>,
) -> (anyhow::Result<Ended>, Outcome) {
    let hold = Arc::new(hold);
    let ended = watch_over(run, &hold, signals, talk, news).await;
    let outcome = match Arc::try_unwrap(hold) {
        Ok(hold) => hold.release().await,
        // Dropping it releases it too; only how that went is not known.
        Err(_) => Outcome::Skipped,
    };
    (ended, outcome)
}

async fn watch_over(
    run: &Run,
    hold: &Arc<Hold>,
    signals: &mut Signals,
    talk: &mut Talk,
    news: watch::Receiver<u64>,
) -> anyhow::Result<Ended> {
    // Orphans come to us instead of to init, so that they can be found.
    let _ = set_child_subreaper(Some(getpid()));
    let duty = Duty {
        // KILL needs a moment to land, on a busy machine above all: the last tenth of the grace is for that.
        grace: run.grace * 9 / 10,
        mark: format!("{}-{}", std::process::id(), BootClock.now().as_nanos()),
        name: hold.name().to_string(),
    };
    let mut guard = Guard::start(&duty).await?;
    let gated = Gated::spawn(&run.argv, hold, &run.store, &run.holder, &duty.mark)?;
    let group = gated.group;
    guard.watch(group).await?;
    let follower = Follower::start(hold, guard.line(), duty.grace, news);
    if let Err(lost) = hold.check() {
        // Starting took longer than the lease: the gate stays shut.
        drop(gated);
        follower.stop().await;
        guard.dismiss().await;
        return Ok(Ended::Stopped {
            reason: lost.reason,
            did: "was not started: the lease ran out first",
        });
    }
    let terminal = Terminal::ours();
    if let Some(terminal) = &terminal {
        terminal.lend(group);
    }
    let mut watch = Supervision {
        hold,
        family: Family {
            group,
            root: Some(getpid()),
            spare: guard.pid(),
            mark: None,
        },
        duty,
        guard: Some(guard),
        restarts: 0,
        follower,
        terminal,
        child: gated.open(),
        status: None,
        lost: None,
        late: false,
        ended_before: false,
        kill_at: Moment::FAR,
        kills: 0,
        guardian_acted: false,
        interrupts: 0,
    };
    let status = watch.until_all_are_gone(signals, talk).await?;
    Ok(watch.conclude(status).await)
}

/// Everything about a command that runs.
struct Supervision<'a> {
    hold: &'a Arc<Hold>,
    family: Family,
    duty: Duty,
    guard: Option<Guard>,
    restarts: u32,
    follower: Follower,
    terminal: Option<Terminal>,
    child: Child,
    /// How the command itself ended; others of its family may go on.
    status: Option<ExitStatus>,
    /// The lease was lost.
    lost: Option<Loss>,
    /// It was noticed only after everyone had to be gone: we were stopped together with the command.
    late: bool,
    /// Only those it had left behind were still there then.
    ended_before: bool,
    /// When everyone is killed: after the loss, or for those who were left behind.
    kill_at: Moment,
    /// How often everyone was killed.
    kills: u32,
    guardian_acted: bool,
    interrupts: u32,
}

impl Supervision<'_> {
    async fn until_all_are_gone(
        &mut self,
        signals: &mut Signals,
        talk: &mut Talk,
    ) -> anyhow::Result<ExitStatus> {
        loop {
            if let Some(status) = self.status
                && self.leftovers_are_gone()
            {
                return Ok(status);
            }
            let (hold, kill_at) = (Arc::clone(self.hold), self.kill_at);
            // The order matters after a pause: an end that is already there, then the loss, then what woke us.
            tokio::select! {
                biased;
                status = self.child.wait(), if self.status.is_none() => self.status = Some(status?),
                lost = hold.lost(), if self.lost.is_none() => self.stop(lost.reason),
                () = BootClock.sleep_until(kill_at), if kill_at < Moment::FAR => self.kill(),
                word = hear(&mut self.guard) => self.guardian_said(word).await,
                signal = signals.next() => self.received(signal),
                () = talk.next() => {}
                // Nobody tells us when those who were left behind are gone.
                () = BootClock.sleep(LOOK), if self.status.is_some() => {}
            }
        }
    }

    /// The command has ended. The lock is given back only when nobody whom it started is left.
    fn leftovers_are_gone(&mut self) -> bool {
        collect_orphans(&self.own());
        if !self.family.alive() {
            return true;
        }
        if self.kill_at == Moment::FAR {
            self.family.ask_to_end();
            self.kill_at = BootClock.now() + self.duty.grace;
        }
        false
    }

    /// The lease is lost: everyone has to be gone before someone else can be granted it.
    fn stop(&mut self, reason: Loss) {
        let now = BootClock.now();
        self.lost = Some(reason);
        self.late = now > self.follower.last_deadline() + self.duty.grace;
        self.ended_before = self.status.is_some();
        self.kill_at = match reason {
            // Someone else may be at work already: there is no time left to ask.
            Loss::NotOwned | Loss::Broken | Loss::HealConflict => now,
            _ => (now + self.duty.grace).min(self.follower.last_deadline() + self.duty.grace),
        };
        if self.kill_at <= now {
            self.kill();
        } else {
            self.family.ask_to_end();
        }
    }

    fn kill(&mut self) {
        self.family.signal(Signal::KILL);
        self.kills += 1;
        if self.kills == HOPELESS {
            say(
                "the command cannot be killed: it runs as another user, or hangs in the kernel; still trying",
            );
        }
        // Again, for those who were forked while it was sent.
        self.kill_at = BootClock.now() + LOOK;
    }

    fn received(&mut self, signal: Signal) {
        match signal {
            Signal::CHILD => {
                collect_orphans(&self.own());
                if let Some(terminal) = &self.terminal
                    && self.status.is_none()
                    && stopped(self.family.group)
                {
                    // The shell that started us waits for us to stop, and wants its terminal back.
                    terminal.take_back();
                    let _ = kill_process(getpid(), Signal::STOP);
                }
            }
            Signal::TSTP => {
                self.pass_on(Signal::TSTP);
                let _ = kill_process(getpid(), Signal::STOP);
            }
            // Not past the deadline: nothing may run then, not even to the next statement.
            Signal::CONT if self.hold.check().is_ok() => {
                // `fg` has put us forward; after `bg` there is nothing to lend.
                if let Some(terminal) = Terminal::ours() {
                    terminal.lend(self.family.group);
                    self.terminal = Some(terminal);
                }
                self.pass_on(Signal::CONT);
            }
            Signal::INT | Signal::TERM => {
                self.interrupts += 1;
                if self.interrupts > 1 {
                    self.kill();
                } else {
                    self.pass_on(signal);
                }
            }
            signal if forwarded(signal) => self.pass_on(signal),
            _ => {}
        }
    }

    fn pass_on(&self, signal: Signal) {
        let _ = kill_process_group(self.family.group, signal);
    }

    async fn guardian_said(&mut self, word: Option<String>) {
        match word.as_deref() {
            Some("acted") => self.guardian_acted = true,
            Some(_) => {}
            // It ends by itself after acting.
            None if self.guardian_acted => self.guard = None,
            None => self.replace_guardian().await,
        }
    }

    /// A guardian is replaced, not done without: it is what ends the command if we cannot.
    async fn replace_guardian(&mut self) {
        self.restarts += 1;
        let replaced = match &mut self.guard {
            Some(guard) if self.restarts <= RESTARTS => guard.restart(&self.duty, self.family.group).await,
            _ => Err(anyhow::anyhow!("it has died {RESTARTS} times before")),
        };
        match replaced {
            Ok(()) => {
                self.family.spare = self.guard.as_ref().and_then(Guard::pid);
                self.follower.tell();
                say("the guardian process died and was replaced");
            }
            Err(error) => {
                self.guard = None;
                self.family.spare = None;
                say(&format!(
                    "the guardian process died and could not be replaced: {error:#}\n\
                     if leasehold itself is killed now, the command will outlive it"
                ));
            }
        }
    }

    async fn conclude(self, status: ExitStatus) -> Ended {
        if let Some(terminal) = &self.terminal {
            terminal.take_back();
        }
        self.follower.stop().await;
        let dismissed = match self.guard {
            Some(guard) => guard.dismiss().await,
            None => Dismissed::Gone,
        };
        let reason = self.hold.check().err().map(|lost| lost.reason);
        if self.ended_before {
            // What it did, it did under the lease: its result is its own (invariant I9).
            return Ended::ByItself(status);
        }
        if let Some(reason) = self.lost {
            return Ended::Stopped {
                reason,
                did: match reason {
                    Loss::NotOwned | Loss::Broken | Loss::HealConflict => "was killed at once",
                    _ if self.late => {
                        "was suspended past its deadline together with leasehold, and was killed before it could go on"
                    }
                    _ => "was stopped before anyone else could be granted the lock",
                },
            };
        }
        // Past the deadline, only a guardian that did not have to act can say that the command ended before it.
        match (
            self.guardian_acted || dismissed == Dismissed::Acted,
            dismissed,
            reason,
        ) {
            (true, _, reason) => Ended::Stopped {
                reason: reason.unwrap_or(Loss::Deadline),
                did: "was stopped by its guardian before anyone else could be granted the lock",
            },
            (false, Dismissed::Gone, Some(reason)) => Ended::Stopped {
                reason,
                did: "has ended, but nobody can say that it ended in time",
            },
            _ => Ended::ByItself(status),
        }
    }

    /// Children that someone else waits for.
    fn own(&self) -> [Option<Pid>; 2] {
        [Some(self.family.group), self.family.spare]
    }
}

async fn hear(guard: &mut Option<Guard>) -> Option<String> {
    match guard {
        Some(guard) => guard.hear().await,
        None => std::future::pending().await,
    }
}
