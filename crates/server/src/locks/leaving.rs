//! What a caller who has gone may have got is taken back, unless it can ask for it again.
//!
//! A caller with an id of its own asks again with the same token: over another connection, while the daemon has not yet noticed that
//! the first one is cut off. What is taken back for the first question would then be what the second was granted. So nothing is taken
//! back once two questions of one token were there at the same time (it runs out by itself), a question waits for what is being
//! taken back, and if nobody knows whether that happened, the token is void for as long as it may still happen.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold::clock::{Clock, Moment};
use leasehold::leasehold_core::Token;
use leasehold::store::Giving;
use tokio::sync::Notify;

use super::acquire::Asking;
use crate::app::App;

/// How long a release without an answer may still arrive.
const LATE: Duration = Duration::from_secs(60);
/// How many tokens are remembered before those whose time is over are looked for.
const MANY: usize = 1024;

/// Tokens that are being asked for or taken back.
#[derive(Default)]
pub(crate) struct Leavings {
    table: Mutex<HashMap<Token, State>>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    askers: u32,
    /// Two of them were there at once.
    shared: bool,
    /// It is being taken back.
    going: bool,
    /// It may still be taken back until then.
    void_until: Option<Moment>,
}

/// The token may be taken back at any moment: it must not be used any more.
#[derive(Debug)]
pub(crate) struct Gone;

impl Leavings {
    /// Begins to ask, once nothing is being taken back.
    async fn begin(&self, clock: &dyn Clock, token: &Token) -> Result<(), Gone> {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // From here on no change is missed.
            changed.as_mut().enable();
            {
                let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
                let state = table.entry(token.clone()).or_default();
                if !state.going {
                    if state.void_until.is_some_and(|until| clock.now() < until) {
                        return Err(Gone);
                    }
                    state.askers += 1;
                    state.shared |= state.askers > 1;
                    return Ok(());
                }
            }
            changed.await;
        }
    }

    /// One question has ended. True: it was the only one, and it is to be taken back now.
    fn end(&self, token: &Token, take_back: bool) -> bool {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(state) = table.get_mut(token) else {
            return false;
        };
        state.askers -= 1;
        if state.askers > 0 {
            return false;
        }
        if take_back && !state.shared {
            state.going = true;
            return true;
        }
        table.remove(token);
        false
    }

    /// It was taken back, or nobody knows until when it may be.
    fn went(&self, token: &Token, unknown_until: Option<Moment>, now: Moment) {
        {
            let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
            table.remove(token);
            if unknown_until.is_some() {
                let void = State {
                    void_until: unknown_until,
                    ..State::default()
                };
                table.insert(token.clone(), void);
            }
            if table.len() > MANY {
                table.retain(|_, state| {
                    state.askers > 0 || state.going || state.void_until.is_some_and(|until| now < until)
                });
            }
        }
        self.changed.notify_waiters();
    }
}

impl fmt::Debug for Leavings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leavings").finish_non_exhaustive()
    }
}

/// One question under way.
pub(super) struct Leaving {
    app: Arc<App>,
    token: Token,
    giving: Option<Giving>,
}

impl Leaving {
    /// Of this caller.
    pub(super) async fn new(app: &Arc<App>, asking: &Asking) -> Result<Self, Gone> {
        let (name, token) = (asking.ask.name.clone(), asking.ask.token.clone());
        app.leavings.begin(&*app.clock, &token).await?;
        let giving = match (asking.orphan, asking.wait.is_some()) {
            (true, _) => Some(Giving::undo(name, token.clone())),
            // One who waited and can ask again only loses its place.
            (false, true) => Some(Giving::owned(name, token.clone())),
            (false, false) => None,
        };
        Ok(Self {
            app: Arc::clone(app),
            token,
            giving,
        })
    }

    /// The caller knows.
    pub(super) fn stay(&mut self) {
        self.giving = None;
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        let giving = self.giving.take();
        let take_back = self.app.leavings.end(&self.token, giving.is_some());
        let Some(giving) = giving.filter(|_| take_back) else {
            return;
        };
        let (app, token) = (Arc::clone(&self.app), self.token.clone());
        tokio::spawn(async move {
            let within = super::WITHIN;
            let result = app.within(within, app.store().release(&giving, within)).await;
            let now = app.clock.now();
            let unknown = result.as_ref().is_err_and(|failure| failure.unknown);
            if let Err(failure) = result {
                // It runs out by itself then.
                tracing::warn!(%failure, "what a caller left behind could not be taken back");
            }
            app.leavings.went(&token, unknown.then_some(now + LATE), now);
        });
    }
}

#[cfg(test)]
mod tests {
    use leasehold::Holder;
    use leasehold::clock::{ClockExt, RuntimeClock};
    use leasehold::leasehold_core::rng::SeededRandom;

    use super::*;

    fn token() -> Token {
        Token::fresh(&Holder::new("h").unwrap(), "scheduler", &*SeededRandom::shared(7))
    }

    /// The first question's connection is cut when the second has been granted already: what it has must stay.
    #[tokio::test(start_paused = true)]
    async fn nothing_is_taken_back_from_one_who_asked_again() {
        let (leavings, clock, token) = (Leavings::default(), RuntimeClock::shared(), token());
        for second_ends_first in [true, false] {
            leavings.begin(&*clock, &token).await.unwrap();
            leavings.begin(&*clock, &token).await.unwrap();
            // The one that was granted takes nothing back, the other would.
            assert!(!leavings.end(&token, !second_ends_first));
            assert!(
                !leavings.end(&token, second_ends_first),
                "its lease would be gone"
            );
        }
        // One after the other is another matter.
        leavings.begin(&*clock, &token).await.unwrap();
        assert!(leavings.end(&token, true));
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_waits_for_what_is_being_taken_back() {
        let (leavings, clock, token) = (Leavings::default(), RuntimeClock::shared(), token());
        leavings.begin(&*clock, &token).await.unwrap();
        assert!(leavings.end(&token, true));
        let took_back = async {
            clock.sleep(Duration::from_secs(3)).await;
            leavings.went(&token, None, clock.now());
        };
        let before = clock.now();
        let (began, ()) = tokio::join!(leavings.begin(&*clock, &token), took_back);
        began.unwrap();
        assert_eq!(clock.now().since(before), Duration::from_secs(3));
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_that_may_still_be_taken_back_is_void() {
        let (leavings, clock, token) = (Leavings::default(), RuntimeClock::shared(), token());
        leavings.begin(&*clock, &token).await.unwrap();
        assert!(leavings.end(&token, true));
        leavings.went(&token, Some(clock.now() + LATE), clock.now());
        assert!(leavings.begin(&*clock, &token).await.is_err());
        clock.sleep(LATE).await;
        leavings.begin(&*clock, &token).await.unwrap();
        leavings.end(&token, false);
        assert!(leavings.table.lock().unwrap().is_empty());
    }
}
