//! The subscription that wakes waiters.
//!
//! A release that hands over publishes to the channel of the next waiter's client. Each store
//! value has one subscriber connection, opened for the first waiter. It is separate from the
//! command connections, so that abandoning one of those does not cost the subscription.
//! A change of a document publishes its name to one channel, to which a store value subscribes on
//! the same connection once it follows a document.
//! Messages are hints: they may be lost while the subscription is down (hazard R15), so all
//! listeners are woken when it is up again.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold_core::clock::ClockExt;
use leasehold_core::rng::RandomExt;
use leasehold_core::store::{WakeListener, WakeRegistry};
use leasehold_core::types::{Name, Token};
use redis::aio::{MultiplexedConnection, SendError};
use redis::{PushInfo, PushKind};
use sha2::{Digest, Sha256};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use crate::connection::{CallDeadline, Connector, as_text};
use crate::keys::RESERVED_PREFIX;

/// Time limit of one attempt to subscribe.
const SUBSCRIBE_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause after the first failed attempt; it doubles up to the maximum.
const FIRST_RETRY_PAUSE: Duration = Duration::from_millis(50);
const MAX_RETRY_PAUSE: Duration = Duration::from_secs(2);

/// Prefix of every client's channel; the client's id follows.
pub(crate) fn channel_prefix() -> String {
    format!("{RESERVED_PREFIX}wake:")
}

/// State of the subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SubscriptionState {
    /// First attempt, or reconnecting after a loss: worth a short wait.
    Connecting,
    /// Messages reach this client.
    Subscribed,
    /// The last attempt failed: acquires do not wait for the next one.
    Failing,
}

/// Who gets the messages.
#[derive(Debug, Default)]
struct Listeners {
    /// Waiters, by wake key.
    wakers: Arc<WakeRegistry>,
    /// Followers of documents, in a group for each name.
    followers: Arc<WakeRegistry>,
    /// A follower was added: the channel of documents is needed.
    follower_added: Notify,
}

/// The wake-up subscription of one store value.
pub(crate) struct WakeSubscription {
    connector: Arc<Connector>,
    /// Id of this store value's channel.
    client: String,
    listeners: Arc<Listeners>,
    state: watch::Sender<SubscriptionState>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl WakeSubscription {
    pub(crate) fn new(connector: &Arc<Connector>) -> Self {
        Self {
            connector: Arc::clone(connector),
            client: format!("{:016x}", connector.options.random.bits()),
            listeners: Arc::new(Listeners::default()),
            state: watch::Sender::new(SubscriptionState::Connecting),
            task: Mutex::new(None),
        }
    }

    /// A listener for this token; starts the subscription on first use.
    pub(crate) fn listen(&self, token: &Token) -> WakeListener {
        self.start();
        self.listeners.wakers.listen(wake_key(token))
    }

    /// A listener for changes of this document; starts the subscription on first use.
    pub(crate) fn follow(&self, name: &Name) -> WakeListener {
        self.start();
        let listener = self.listeners.followers.listen_in_group(name.as_str());
        self.listeners.follower_added.notify_one();
        listener
    }

    /// Where to wake a waiter: this client's id and the waiter's wake key.
    pub(crate) fn wake_address(&self, token: &Token) -> String {
        format!("{}|{}", self.client, wake_key(token))
    }

    /// Whether messages reach this client now. A waiter that queues before
    /// that looks dead to a release.
    pub(crate) fn is_subscribed(&self) -> bool {
        *self.state.borrow() == SubscriptionState::Subscribed
    }

    /// Waits until the subscription is up or an attempt has failed, at most until the deadline.
    pub(crate) async fn wait_subscribed(&self, limit: &CallDeadline<'_>) -> bool {
        self.start();
        let mut state = self.state.subscribe();
        let settled = state.wait_for(|state| *state != SubscriptionState::Connecting);
        let settled = limit.run(settled).await;
        matches!(settled, Some(Ok(state)) if *state == SubscriptionState::Subscribed)
    }

    /// Starts the subscriber task once. Without a runtime it cannot start, and waiters poll.
    fn start(&self) {
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        // If its runtime has ended, the task ended with it: start another one.
        if task.as_ref().is_some_and(|running| !running.is_finished()) {
            return;
        }
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            self.state.send_replace(SubscriptionState::Connecting);
            *task = Some(runtime.spawn(run_subscription(
                Arc::clone(&self.connector),
                format!("{}{}", channel_prefix(), self.client),
                Arc::clone(&self.listeners),
                self.state.clone(),
            )));
        }
    }
}

impl Drop for WakeSubscription {
    fn drop(&mut self) {
        if let Some(task) = self.task.lock().unwrap_or_else(PoisonError::into_inner).take() {
            task.abort();
        }
    }
}

impl fmt::Debug for WakeSubscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WakeSubscription")
            .field("state", &*self.state.borrow())
            .field("listeners", &self.listeners)
            .finish_non_exhaustive()
    }
}

/// The wake key of a token in messages: half of its SHA-256, from which the
/// token cannot be recovered.
fn wake_key(token: &Token) -> String {
    Sha256::digest(token.expose().as_bytes()).iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

async fn run_subscription(
    connector: Arc<Connector>,
    channel: String,
    listeners: Arc<Listeners>,
    state: watch::Sender<SubscriptionState>,
) {
    let documents_channel = connector.options.keys.document_channel();
    let mut pause = FIRST_RETRY_PAUSE;
    loop {
        let lost = Arc::new(Notify::new());
        let (ring, gone, of_documents) =
            (Arc::clone(&listeners), Arc::clone(&lost), documents_channel.clone());
        let hear = move |info: PushInfo| {
            let text = |at: usize| info.data.get(at).and_then(as_text);
            match (info.kind, text(0), text(1)) {
                (PushKind::Message, Some(channel), Some(name)) if channel == of_documents => {
                    ring.followers.wake_group(name);
                }
                (PushKind::Message, _, Some(notifier)) => _ = ring.wakers.wake(notifier),
                (PushKind::Disconnection, ..) => gone.notify_one(),
                _ => {}
            }
            Ok::<(), SendError>(())
        };
        let clock = connector.options.clock.as_ref();
        let attempt = CallDeadline::new(clock, SUBSCRIBE_TIMEOUT);
        let subscribing = attempt.run(async {
            let mut connection =
                connector.connect_to_primary("wake", hear).await.map_err(|err| err.to_string())?;
            let done = connection.subscribe(channel.as_str()).await;
            done.map(|()| connection).map_err(|err| err.category().to_owned())
        });
        match subscribing.await {
            Some(Ok(mut connection)) => {
                pause = FIRST_RETRY_PAUSE;
                state.send_replace(SubscriptionState::Subscribed);
                // Messages published while the subscription was down are lost,
                // so every waiter polls once.
                listeners.wakers.wake_all();
                tokio::select! {
                    () = lost.notified() => {}
                    () = follow_documents(&mut connection, &documents_channel, &listeners) => {}
                }
                state.send_replace(SubscriptionState::Connecting);
                drop(connection);
            }
            failed => {
                state.send_replace(SubscriptionState::Failing);
                let why = failed.and_then(Result::err);
                tracing::debug!(why, "not subscribed; waiters poll meanwhile");
            }
        }
        // With jitter: after a server restart, all clients would otherwise
        // reconnect at the same moments.
        clock.sleep(connector.options.random.jitter(pause)).await;
        pause = (pause * 2).min(MAX_RETRY_PAUSE);
    }
}

/// Subscribes to changes of documents as soon as one is followed. Never returns. Apart from the client's own channel, so
/// that a user without the right to this one still has its waiters woken.
async fn follow_documents(connection: &mut MultiplexedConnection, channel: &str, listeners: &Listeners) {
    while listeners.followers.is_empty() {
        listeners.follower_added.notified().await;
    }
    match connection.subscribe(channel).await {
        // Changes before this moment were not announced, so every follower reads once.
        Ok(()) => listeners.followers.wake_all(),
        Err(err) => tracing::debug!(why = err.category(), "not subscribed to documents; followers poll"),
    }
    std::future::pending().await
}
