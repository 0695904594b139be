//! One poll per watched document, shared by all clients that wait for its next version.
//!
//! The plane's store has no wake-ups, so the daemon polls it for the waiting clients: ever more rarely
//! while nothing changes, and at once when this daemon itself has changed a job.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold::clock::{SharedClock, run_until};
use leasehold_plane::PlaneError;
use tokio::sync::{Notify, watch};

// How soon a change is seen while documents change. The interval doubles at each read without one.
const MIN_DOCUMENT_POLL_INTERVAL: Duration = Duration::from_millis(100);
// How late a change by another process is seen at most.
const MAX_DOCUMENT_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The kind and the id of a document.
pub(crate) type DocumentName = (&'static str, String);

/// The versions of all documents that clients wait for.
#[derive(Debug, Clone, Default)]
pub(crate) struct DocumentWatchers(Arc<WatcherTable>);

#[derive(Debug, Default)]
struct WatcherTable {
    watched: Mutex<HashMap<DocumentName, WatchedDocument>>,
    /// Counts the changes of jobs in this daemon.
    job_changes: AtomicU64,
}

#[derive(Debug)]
struct WatchedDocument {
    version: watch::Sender<u64>,
    /// Notified when this daemon has changed the document.
    changed: Arc<Notify>,
}

impl DocumentWatchers {
    /// Receives each new version of the document. The first subscriber starts the poll with `read_version`;
    /// the poll ends after the last one is gone.
    pub(crate) fn subscribe<F>(
        &self,
        clock: &SharedClock,
        name: DocumentName,
        read_version: impl Fn() -> F + Send + 'static,
    ) -> watch::Receiver<u64>
    where
        F: Future<Output = Result<u64, PlaneError>> + Send,
    {
        let mut watched = self.watched();
        if let Some(document) = watched.get(&name) {
            return document.version.subscribe();
        }
        let (version, receiver) = watch::channel(0);
        let changed = Arc::new(Notify::new());
        watched.insert(name.clone(), WatchedDocument { version, changed: Arc::clone(&changed) });
        let (watchers, clock) = (self.clone(), Arc::clone(clock));
        tokio::spawn(async move {
            let mut interval = MIN_DOCUMENT_POLL_INTERVAL;
            let mut seen_changes = watchers.job_changes();
            loop {
                // A run changes soon after one of its jobs, and no event names it.
                let changes = watchers.job_changes();
                if name.0 == "run" && std::mem::replace(&mut seen_changes, changes) != changes {
                    interval = MIN_DOCUMENT_POLL_INTERVAL;
                }
                let is_woken = run_until(&*clock, clock.now() + interval, changed.notified()).await.is_some();
                if watchers.forget_if_unwatched(&name) {
                    return;
                }
                // After an error each client reads for itself and returns the error.
                let version = read_version().await.unwrap_or(u64::MAX);
                let is_new = watchers.watched().get(&name).is_some_and(|document| {
                    document.version.send_if_modified(|seen| std::mem::replace(seen, version) != version)
                });
                interval = if is_new || is_woken {
                    MIN_DOCUMENT_POLL_INTERVAL
                } else {
                    (interval * 2).min(MAX_DOCUMENT_POLL_INTERVAL)
                };
            }
        });
        receiver
    }

    /// This daemon has changed the job.
    pub(crate) fn job_changed(&self, id: &str) {
        self.0.job_changes.fetch_add(1, Ordering::Relaxed);
        let watched = self.watched();
        // Most jobs change unwatched, and then the id need not be copied.
        if watched.is_empty() {
            return;
        }
        if let Some(document) = watched.get(&("job", id.to_owned())) {
            document.changed.notify_one();
        }
    }

    fn job_changes(&self) -> u64 {
        self.0.job_changes.load(Ordering::Relaxed)
    }

    /// Removes the entry if no client waits. Under the lock, so no subscriber can come in between.
    fn forget_if_unwatched(&self, name: &DocumentName) -> bool {
        let mut watched = self.watched();
        let unwatched = watched.get(name).is_none_or(|document| document.version.receiver_count() == 0);
        if unwatched {
            watched.remove(name);
        }
        unwatched
    }

    fn watched(&self) -> MutexGuard<'_, HashMap<DocumentName, WatchedDocument>> {
        self.0.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use leasehold::clock::{ClockExt, RuntimeClock};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn finding_24_many_waiting_clients_share_one_poll() {
        let (watchers, clock) = (DocumentWatchers::default(), RuntimeClock::shared());
        let (reads, version) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(1)));
        let subscribe = || {
            let (reads, version) = (Arc::clone(&reads), Arc::clone(&version));
            watchers.subscribe(&clock, ("job", "j".to_owned()), move || {
                reads.fetch_add(1, Ordering::Relaxed);
                let version = version.load(Ordering::Relaxed);
                async move { Ok(version) }
            })
        };
        let mut waiting: Vec<_> = (0..3000).map(|_| subscribe()).collect();
        clock.sleep(Duration::from_secs(5)).await;
        let polls = reads.load(Ordering::Relaxed);
        // At 0.1, 0.3, 0.7, 1.5 s and then each second.
        assert!((1..=8).contains(&polls), "{polls} reads in 5 s without a change");
        // A change by another process is seen within a second, one by this daemon at once.
        let changed = clock.now();
        version.store(2, Ordering::Relaxed);
        for client in &mut waiting {
            client.wait_for(|version| *version == 2).await.unwrap();
        }
        assert!(clock.now().since(changed) <= MAX_DOCUMENT_POLL_INTERVAL);
        clock.sleep(Duration::from_secs(5)).await;
        let changed = clock.now();
        version.store(3, Ordering::Relaxed);
        watchers.job_changed("j");
        waiting[0].wait_for(|version| *version == 3).await.unwrap();
        assert_eq!(clock.now(), changed);
        // The poll ends with the last client.
        drop(waiting);
        clock.sleep(MAX_DOCUMENT_POLL_INTERVAL * 2).await;
        let polls = reads.load(Ordering::Relaxed);
        clock.sleep(Duration::from_secs(5)).await;
        assert_eq!(reads.load(Ordering::Relaxed), polls);
        assert!(watchers.watched().is_empty());
    }
}
