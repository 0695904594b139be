//! The audit log: one JSON line per change, chained by hashes.
//!
//! `hash` is the SHA-256 of the line without that field; `prev` is the hash of the previous line. A
//! line that is changed, removed or inserted breaks the chain there. An admin action is on the disk
//! before it takes effect. Other lines are written asynchronously.

mod chain;
mod line_file;

use std::fmt;
use std::fs::File;
use std::path::Path;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use chain::{Chain, truncate_partial_line};
pub use chain::{ChainHead, verify};
use jiff::Timestamp;
use leasehold::clock::SharedClock;
use leasehold::{Fence, Name};
use line_file::LineFile;
use tokio::sync::oneshot;

use crate::auth::Principal;
use crate::state::state_db::create_private_file;

// Bounds memory when the disk stalls; a line beyond it is dropped and logged as lost.
const MAX_QUEUED_LINES: usize = 65_536;
/// The audit log: a queue to the thread that writes the file.
pub(crate) struct Audit {
    /// `None` without a state directory: nothing is recorded.
    lines: Option<SyncSender<(AuditEntry, Option<oneshot::Sender<()>>)>>,
}

/// One audited change.
#[derive(Debug, Clone)]
pub(crate) struct AuditEntry {
    action: &'static str,
    actor: String,
    name: Option<String>,
    fence: Option<Fence>,
    detail: Option<String>,
    forced: Option<bool>,
}

impl AuditEntry {
    pub(crate) fn new(action: &'static str, who: &Principal) -> Self {
        Self { action, actor: who.id().to_owned(), name: None, fence: None, detail: None, forced: None }
    }

    pub(crate) fn name(mut self, name: &Name) -> Self {
        self.name = Some(name.to_string());
        self
    }

    pub(crate) fn fence(self, fence: Fence) -> Self {
        self.fence_if_any(Some(fence))
    }

    pub(crate) fn fence_if_any(mut self, fence: Option<Fence>) -> Self {
        self.fence = fence;
        self
    }

    pub(crate) fn detail(mut self, detail: &str) -> Self {
        self.detail = Some(detail.to_owned());
        self
    }

    /// Whether the change was forced on a holder that may be working.
    pub(crate) fn forced(mut self, forced: bool) -> Self {
        self.forced = Some(forced);
        self
    }
}

impl Audit {
    /// Continues the log in this directory; without one, nothing is recorded. A last line that a
    /// power loss cut short is removed, and the next line says so.
    ///
    /// # Errors
    /// The file cannot be used, or its chain is broken.
    pub(crate) fn open(folder: Option<&Path>, clock: SharedClock) -> Result<Self, String> {
        let Some(folder) = folder else {
            return Ok(Self { lines: None });
        };
        let (lines, queue) = sync_channel::<(AuditEntry, Option<oneshot::Sender<()>>)>(MAX_QUEUED_LINES);
        let path = folder.join("audit.jsonl");
        let shown = path.display().to_string();
        create_private_file(&path).map_err(|why| format!("{shown}: {why}"))?;
        let cut = truncate_partial_line(&path).map_err(|error| format!("{shown}: {error}"))?;
        // Never append to a broken chain: the new lines would seem to confirm it.
        let last = verify(&path).map_err(|broken| format!("{shown}: {broken}"))?;
        let file = File::options().append(true).open(&path);
        let opened = file.and_then(|file| Ok((file.metadata()?.len(), file)));
        let (length, file) = opened.map_err(|error| format!("{shown}: {error}"))?;
        if cut > 0 {
            let detail = format!("the last line was cut off after {cut} bytes, and is taken out");
            let act = AuditEntry::new("mended", &Principal::new("daemon", [])).detail(&detail);
            let _ = lines.try_send((act, None));
        }
        let mut chain = Chain::new(last, LineFile::new(file, length));
        thread::Builder::new()
            .name("audit".to_owned())
            .spawn(move || {
                while let Ok((act, told)) = queue.recv() {
                    let at = format!("{:.6}", Timestamp::try_from(clock.wall()).unwrap_or_default());
                    match chain.append(act, at, told.is_some()) {
                        // On an error the sender is dropped, which tells the caller that the line
                        // is not on the disk.
                        Ok(()) => drop(told.map(|told| told.send(()))),
                        Err(error) => tracing::error!(%error, "the audit log could not be written"),
                    }
                }
            })
            .map_err(|error| error.to_string())?;
        Ok(Self { lines: Some(lines) })
    }

    /// Records a change that has happened, without waiting.
    pub(crate) fn record(&self, act: AuditEntry) {
        let lines = self.lines.as_ref();
        if lines.is_some_and(|lines| lines.try_send((act, None)).is_err()) {
            tracing::error!("the audit log cannot keep up: a line is lost");
        }
    }

    /// Records a change before it happens. False if the line is not on the disk; the change must
    /// then not happen.
    pub(crate) async fn record_before(&self, act: AuditEntry) -> bool {
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

    async fn write_five_entries(folder: &Path) -> String {
        let audit = Audit::open(Some(folder), BootClock::shared()).unwrap();
        let who = Principal::new("ci", []);
        for number in 0..5 {
            assert!(
                audit.record_before(AuditEntry::new("break", &who).detail(&format!("reason {number}"))).await
            );
        }
        std::fs::read_to_string(folder.join("audit.jsonl")).unwrap()
    }

    #[tokio::test]
    async fn verification_names_the_first_tampered_line() {
        let folder = tempfile::tempdir().unwrap();
        let text = write_five_entries(folder.path()).await;
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
            let message = verify(&path).unwrap_err();
            assert!(message.starts_with(at), "{at}: {message}");
            // The daemon refuses to continue a broken chain.
            assert!(Audit::open(Some(folder.path()), BootClock::shared()).is_err());
        }
    }

    /// A power loss cut a line short: the log opens again and records what happened.
    #[tokio::test]
    async fn a_truncated_last_line_is_removed_and_recorded() {
        for cut in [1, 20, 100] {
            let folder = tempfile::tempdir().unwrap();
            let text = write_five_entries(folder.path()).await;
            let path = folder.path().join("audit.jsonl");
            std::fs::write(&path, &text[..text.len() - cut]).unwrap();
            let after = write_five_entries(folder.path()).await;
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
    async fn a_restart_continues_the_chain() {
        let folder = tempfile::tempdir().unwrap();
        write_five_entries(folder.path()).await;
        let text = write_five_entries(folder.path()).await;
        assert_eq!(text.lines().count(), 10);
        assert_eq!(verify(&folder.path().join("audit.jsonl")).unwrap().lines, 10);
    }
}
