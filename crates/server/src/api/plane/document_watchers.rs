//! One poll per watched document, shared by all clients that wait for its next version.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold::clock::{ClockExt, SharedClock};
use leasehold_plane::PlaneError;
use tokio::sync::watch;

// The plane's store has no wake-ups, so the daemon polls it on behalf of the waiting clients.
const DOCUMENT_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The kind and the id of a document.
pub(crate) type DocumentName = (&'static str, String);

/// The versions of all documents that clients wait for.
#[derive(Debug, Clone, Default)]
pub(crate) struct DocumentWatchers(Arc<Mutex<HashMap<DocumentName, watch::Sender<u64>>>>);

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
        if let Some(sender) = watched.get(&name) {
            return sender.subscribe();
        }
        let (sender, receiver) = watch::channel(0);
        watched.insert(name.clone(), sender);
        let (watchers, clock) = (self.clone(), Arc::clone(clock));
        tokio::spawn(async move {
            loop {
                clock.sleep(DOCUMENT_POLL_INTERVAL).await;
                if watchers.forget_if_unwatched(&name) {
                    return;
                }
                // After an error each client reads for itself and returns the error.
                let version = read_version().await.unwrap_or(u64::MAX);
                if let Some(sender) = watchers.watched().get(&name) {
                    sender.send_if_modified(|seen| std::mem::replace(seen, version) != version);
                }
            }
        });
        receiver
    }

    /// Removes the entry if no client waits. Under the lock, so no subscriber can come in between.
    fn forget_if_unwatched(&self, name: &DocumentName) -> bool {
        let mut watched = self.watched();
        let unwatched = watched.get(name).is_none_or(|sender| sender.receiver_count() == 0);
        if unwatched {
            watched.remove(name);
        }
        unwatched
    }

    fn watched(&self) -> MutexGuard<'_, HashMap<DocumentName, watch::Sender<u64>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use leasehold::clock::RuntimeClock;

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
        assert!((1..=50).contains(&polls), "{polls} reads in 50 intervals");
        version.store(2, Ordering::Relaxed);
        for client in &mut waiting {
            client.wait_for(|version| *version == 2).await.unwrap();
        }
        // The poll ends with the last client.
        drop(waiting);
        clock.sleep(DOCUMENT_POLL_INTERVAL * 2).await;
        let polls = reads.load(Ordering::Relaxed);
        clock.sleep(Duration::from_secs(5)).await;
        assert_eq!(reads.load(Ordering::Relaxed), polls);
        assert!(watchers.watched().is_empty());
    }
}
