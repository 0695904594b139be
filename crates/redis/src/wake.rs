//! Being told that it is one's turn.
//!
//! A release that hands over publishes to the channel of the client whose waiter is next. One subscriber connection
//! per store value listens there, opened when the first waiter comes. It is a connection of its own, so that a
//! command connection that was given up on does not take the subscription with it. Messages are hints: they may be
//! lost while the subscription is down (hazard R15), so everyone is woken once it is up again.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold_core::clock::ClockExt;
use leasehold_core::rng::RandomExt;
use leasehold_core::store::{Listener, Wakers};
use leasehold_core::word::Token;
use redis::aio::SendError;
use redis::{PushInfo, PushKind};
use sha2::{Digest, Sha256};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use crate::connection::{Dialer, Limit, text};
use crate::keys::RESERVED;

/// How long one attempt to subscribe may take.
const ATTEMPT: Duration = Duration::from_secs(5);
/// The first delay after a failed attempt; it doubles up to the last.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LAST_PAUSE: Duration = Duration::from_secs(2);

/// Every client's channel starts with this; its id follows.
pub(crate) fn channel_prefix() -> String {
    format!("{RESERVED}wake:")
}

/// How the subscription stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Being made for the first time, or again after it was cut: worth a short wait.
    Coming,
    /// A publisher would reach us.
    Up,
    /// The last attempt failed: no ask waits for the next one.
    Failing,
}

/// The part of a store value that listens.
pub(crate) struct Ear {
    dialer: Arc<Dialer>,
    /// Names this store value's channel.
    client: String,
    wakers: Arc<Wakers>,
    state: watch::Sender<State>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Ear {
    pub(crate) fn new(dialer: &Arc<Dialer>) -> Self {
        Self {
            dialer: Arc::clone(dialer),
            client: format!("{:016x}", dialer.options.random.bits()),
            wakers: Arc::new(Wakers::default()),
            state: watch::Sender::new(State::Coming),
            task: Mutex::new(None),
        }
    }

    /// A listener for this token; subscribes if nobody did before.
    pub(crate) fn listen(&self, token: &Token) -> Listener {
        self.start();
        self.wakers.listen(bell(token))
    }

    /// Where a waiter is to be woken: this client and the waiter's bell.
    pub(crate) fn place(&self, token: &Token) -> String {
        format!("{}|{}", self.client, bell(token))
    }

    /// A publisher would reach us now. A waiter that registers before that would be taken for dead.
    pub(crate) fn subscribed(&self) -> bool {
        *self.state.borrow() == State::Up
    }

    /// Waits until a publisher would reach us, or it is clear that none will soon; no longer than the limit.
    pub(crate) async fn ready(&self, limit: &Limit<'_>) -> bool {
        self.start();
        let mut state = self.state.subscribe();
        let settled = state.wait_for(|state| *state != State::Coming);
        let settled = limit.run(settled).await;
        matches!(settled, Some(Ok(state)) if *state == State::Up)
    }

    /// Starts the subscriber, once. Outside a runtime nothing can be started; then waiters poll.
    fn start(&self) {
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        // A runtime that ended took its task with it.
        if task.as_ref().is_some_and(|running| !running.is_finished()) {
            return;
        }
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            self.state.send_replace(State::Coming);
            *task = Some(runtime.spawn(subscribe_for_ever(
                Arc::clone(&self.dialer),
                format!("{}{}", channel_prefix(), self.client),
                Arc::clone(&self.wakers),
                self.state.clone(),
            )));
        }
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        if let Some(task) = self.task.lock().unwrap_or_else(PoisonError::into_inner).take() {
            task.abort();
        }
    }
}

impl fmt::Debug for Ear {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ear")
            .field("state", &*self.state.borrow())
            .field("wakers", &self.wakers)
            .finish_non_exhaustive()
    }
}

/// What a message names its waiter by: half a digest of the token. Whoever sees the message learns no secret.
fn bell(token: &Token) -> String {
    Sha256::digest(token.expose().as_bytes())
        .iter()
        .take(16)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

async fn subscribe_for_ever(
    dialer: Arc<Dialer>,
    channel: String,
    wakers: Arc<Wakers>,
    state: watch::Sender<State>,
) {
    let mut pause = FIRST_PAUSE;
    loop {
        let lost = Arc::new(Notify::new());
        let (ring, gone) = (Arc::clone(&wakers), Arc::clone(&lost));
        let hear = move |info: PushInfo| {
            match (info.kind, info.data.get(1).and_then(text)) {
                (PushKind::Message, Some(bell)) => _ = ring.wake(bell),
                (PushKind::Disconnection, _) => gone.notify_one(),
                _ => {}
            }
            Ok::<(), SendError>(())
        };
        let clock = dialer.options.clock.as_ref();
        let attempt = Limit::new(clock, ATTEMPT);
        let subscribing = attempt.run(async {
            let mut connection = dialer.dial("wake", hear).await.map_err(|err| err.to_string())?;
            let done = connection.subscribe(channel.as_str()).await;
            done.map(|()| connection).map_err(|err| err.category().to_owned())
        });
        match subscribing.await {
            Some(Ok(connection)) => {
                pause = FIRST_PAUSE;
                state.send_replace(State::Up);
                // Whatever was published while nobody listened is lost: everyone asks again.
                wakers.wake_all();
                lost.notified().await;
                state.send_replace(State::Coming);
                drop(connection);
            }
            failed => {
                state.send_replace(State::Failing);
                let why = failed.and_then(Result::err);
                tracing::debug!(why, "not subscribed; waiters poll meanwhile");
            }
        }
        clock.sleep(dialer.options.random.jitter(pause)).await;
        pause = (pause * 2).min(LAST_PAUSE);
    }
}
