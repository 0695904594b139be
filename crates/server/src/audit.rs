//! Who changed what: one line of JSON per change, each sealed to the one before it.
//!
//! `hash` is the SHA-256 of the line without it, and `prev` is the hash of the line before: a line that was changed, taken
//! out or put in breaks the chain there. What an administrator does is on the disk before it is answered; the rest follows
//! within a moment.

mod chain;
mod whole;

use std::fmt;
use std::fs::File;
use std::path::Path;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use chain::{Chain, mend};
pub use chain::{Verified, verify};
use jiff::Timestamp;
use leasehold::clock::SharedClock;
use leasehold::{Fence, Name};
use tokio::sync::oneshot;
use whole::Whole;

use crate::auth::Principal;
use crate::ledger::private;

/// How many lines may wait for the disk.
const QUEUE: usize = 65_536;
/// The audit log.
pub(crate) struct Audit {
    /// None: nothing is kept.
    lines: Option<SyncSender<(Act, Option<oneshot::Sender<()>>)>>,
}

/// One change.
#[derive(Debug, Clone)]
pub(crate) struct Act {
    action: &'static str,
    actor: String,
    name: Option<String>,
    fence: Option<Fence>,
    detail: Option<String>,
    forced: Option<bool>,
}

impl Act {
    pub(crate) fn new(action: &'static str, who: &Principal) -> Self {
        Self {
            action,
            actor: who.id().to_owned(),
            name: None,
            fence: None,
            detail: None,
            forced: None,
        }
    }

    pub(crate) fn name(mut self, name: &Name) -> Self {
        self.name = Some(name.to_string());
        self
    }

    pub(crate) fn fence(self, fence: Fence) -> Self {
        self.fence_of(Some(fence))
    }

    pub(crate) fn fence_of(mut self, fence: Option<Fence>) -> Self {
        self.fence = fence;
        self
    }

    pub(crate) fn detail(mut self, detail: &str) -> Self {
        self.detail = Some(detail.to_owned());
        self
    }

    /// Whether it was done to someone who may be at work.
    pub(crate) fn forced(mut self, forced: bool) -> Self {
        self.forced = Some(forced);
        self
    }
}

impl Audit {
    /// Goes on with the file in this folder; without one, nothing is kept. A last line that was cut off when the machine went
    /// down is taken out, and the next line says so.
    ///
    /// # Errors
    /// The file cannot be used, or its chain is broken.
    pub(crate) fn open(folder: Option<&Path>, clock: SharedClock) -> Result<Self, String> {
        let Some(folder) = folder else {
            return Ok(Self { lines: None });
        };
        let (lines, queue) = sync_channel::<(Act, Option<oneshot::Sender<()>>)>(QUEUE);
        let path = folder.join("audit.jsonl");
        let shown = path.display().to_string();
        private(&path).map_err(|why| format!("{shown}: {why}"))?;
        let cut = mend(&path).map_err(|error| format!("{shown}: {error}"))?;
        let last = verify(&path).map_err(|broken| format!("{shown}: {broken}"))?;
        let file = File::options().append(true).open(&path);
        let opened = file.and_then(|file| Ok((file.metadata()?.len(), file)));
        let (length, file) = opened.map_err(|error| format!("{shown}: {error}"))?;
        if cut > 0 {
            let detail = format!("the last line was cut off after {cut} bytes, and is taken out");
            let act = Act::new("mended", &Principal::new("daemon", [])).detail(&detail);
            let _ = lines.try_send((act, None));
        }
        let mut chain = Chain::new(last, Whole::new(file, length));
        thread::Builder::new()
            .name("audit".to_owned())
            .spawn(move || {
                while let Ok((act, told)) = queue.recv() {
                    let at = format!("{:.6}", Timestamp::try_from(clock.wall()).unwrap_or_default());
                    match chain.add(act, at, told.is_some()) {
                        // Dropped without a word if it is not on the disk.
                        Ok(()) => drop(told.map(|told| told.send(()))),
                        Err(error) => tracing::error!(%error, "the audit log could not be written"),
                    }
                }
            })
            .map_err(|error| error.to_string())?;
        Ok(Self { lines: Some(lines) })
    }

    /// Notes a change that has happened.
    pub(crate) fn act(&self, act: Act) {
        let lines = self.lines.as_ref();
        if lines.is_some_and(|lines| lines.try_send((act, None)).is_err()) {
            tracing::error!("the audit log cannot keep up: a line is lost");
        }
    }

    /// Notes a change before it happens; false if that is not on the disk, and then it must not happen.
    pub(crate) async fn before(&self, act: Act) -> bool {
        let Some(lines) = &self.lines else { return true };
        let (told, written) = oneshot::channel();
        lines.try_send((act, Some(told))).is_ok() && written.await.is_ok()
    }
}

impl fmt::Debug for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Audit")
    }
}

#[cfg(test)]
mod tests {
    use leasehold::clock::BootClock;

    use super::*;

    async fn written(folder: &Path) -> String {
        let audit = Audit::open(Some(folder), BootClock::shared()).unwrap();
        let who = Principal::new("ci", []);
        for number in 0..5 {
            assert!(
                audit
                    .before(Act::new("break", &who).detail(&format!("reason {number}")))
                    .await
            );
        }
        std::fs::read_to_string(folder.join("audit.jsonl")).unwrap()
    }

    #[tokio::test]
    async fn a_chain_that_was_touched_is_broken_where_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let text = written(folder.path()).await;
        let path = folder.path().join("audit.jsonl");
        assert_eq!(verify(&path).unwrap().lines, 5);
        let lines: Vec<_> = text.lines().collect();
        let without = |gone: usize| {
            let kept = lines.iter().enumerate().filter(|(at, _)| *at != gone);
            kept.map(|(_, line)| format!("{line}\n")).collect::<String>()
        };
        let swapped = [lines[0], lines[2], lines[1], lines[3], lines[4], ""].join("\n");
        for (bad, at) in [
            (text.replace("reason 2", "reason 9"), "line 3"),
            (without(1), "line 2"),
            (without(0), "line 1"),
            (swapped, "line 2"),
            (text.replacen("\"actor\":\"ci\"", "\"actor\":\"me\"", 1), "line 1"),
            (format!("{text}{{}}\n"), "line 6"),
        ] {
            std::fs::write(&path, bad).unwrap();
            let said = verify(&path).unwrap_err();
            assert!(said.starts_with(at), "{at}: {said}");
            // And the daemon does not go on with it.
            assert!(Audit::open(Some(folder.path()), BootClock::shared()).is_err());
        }
    }

    /// The machine went down while a line was written: the daemon starts again, and the log says what happened to it.
    #[tokio::test]
    async fn a_line_that_was_cut_off_is_taken_out_and_told() {
        for cut in [1, 20, 100] {
            let folder = tempfile::tempdir().unwrap();
            let text = written(folder.path()).await;
            let path = folder.path().join("audit.jsonl");
            std::fs::write(&path, &text[..text.len() - cut]).unwrap();
            let after = written(folder.path()).await;
            let lines: Vec<_> = after.lines().collect();
            assert_eq!(lines.len(), 4 + 1 + 5, "{after}");
            assert!(
                lines[4].contains("\"action\":\"mended\"") && lines[4].contains("cut off"),
                "{}",
                lines[4]
            );
            assert_eq!(verify(&path).unwrap().lines, 10);
        }
    }

    #[tokio::test]
    async fn a_restart_goes_on_with_the_chain() {
        let folder = tempfile::tempdir().unwrap();
        written(folder.path()).await;
        let text = written(folder.path()).await;
        assert_eq!(text.lines().count(), 10);
        assert_eq!(verify(&folder.path().join("audit.jsonl")).unwrap().lines, 10);
    }
}
