//! What a caller asks for: plain data, validated.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::policy::{Class, check};
use crate::store::Mode;
use crate::word::{Fence, Invalid, Name, Token, Ttl};

/// One acquire, as the caller wants it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Request {
    /// What is to be locked.
    pub name: Name,
    /// Under which class.
    pub class: Arc<str>,
    /// How it is to be shared.
    pub mode: Mode,
    /// What differs from the class for this one request.
    pub tweaks: Tweaks,
    /// The token to ask with, for callers who must know it to take the hold up again after a restart
    /// ([`Locks::resume`](crate::Locks::resume)). Fresh for every acquire. The hold's holder is the token's.
    pub token: Option<Token>,
    /// Who makes the tokens of the leases that come after the first, for the same callers. Fresh ones if nobody does.
    pub heirs: Option<Arc<dyn Heirs>>,
}

/// A hold that has lost its lease, or never had one, asks for the name anew with another token. Whoever wants to take such a
/// hold up after a restart makes these tokens, and keeps which of them it is held with.
pub trait Heirs: fmt::Debug + Send + Sync {
    /// A token that was never asked with; none if that cannot be made any more. Called by the task that keeps all holds: must
    /// not wait for anything.
    fn next(&self) -> Option<Token>;

    /// From now on it is held with this token and this fence. As little may be waited for.
    fn taken(&self, token: &Token, fence: Fence);
}

impl Request {
    /// An exclusive request under a class's own values.
    ///
    /// # Errors
    /// The name cannot be one.
    pub fn new<N>(class: &str, name: N) -> Result<Self, Invalid>
    where
        N: TryInto<Name>,
        Invalid: From<N::Error>,
    {
        Ok(Self {
            name: name.try_into()?,
            class: class.into(),
            mode: Mode::Exclusive,
            tweaks: Tweaks::default(),
            token: None,
            heirs: None,
        })
    }

    /// With this token instead of a fresh one.
    #[must_use]
    pub fn token(mut self, token: Token) -> Self {
        self.token = Some(token);
        self
    }

    /// With tokens of these later on.
    #[must_use]
    pub fn heirs(mut self, heirs: Arc<dyn Heirs>) -> Self {
        self.heirs = Some(heirs);
        self
    }

    /// With these values instead of the class's.
    #[must_use]
    pub fn tweaks(mut self, tweaks: Tweaks) -> Self {
        self.tweaks = tweaks;
        self
    }
}

/// Values of a class that one request changes for itself. The result is checked like a class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tweaks {
    /// Another time to live; the renewal interval and the drift keep their proportion.
    pub ttl: Option<Duration>,
    /// Another wait for a busy name; zero is one try.
    pub wait: Option<Duration>,
    /// Another time to stop.
    pub stop_grace: Option<Duration>,
}

impl Tweaks {
    /// With another time to live.
    #[must_use]
    pub fn ttl(mut self, ttl: Option<Duration>) -> Self {
        self.ttl = ttl;
        self
    }

    /// With another wait.
    #[must_use]
    pub fn wait(mut self, wait: Option<Duration>) -> Self {
        self.wait = wait;
        self
    }

    /// The class with these values, checked.
    ///
    /// # Errors
    /// The result cannot work; the message has the arithmetic.
    pub fn apply(&self, class: &Arc<Class>) -> Result<Arc<Class>, Invalid> {
        if *self == Self::default() {
            return Ok(Arc::clone(class));
        }
        let mut changed = Class::clone(class);
        if let Some(ttl) = self.ttl {
            let ttl = Ttl::new(ttl)?;
            let share = ttl.get().as_secs_f64() / changed.ttl.get().as_secs_f64();
            changed.renew.every = changed.renew.every.map(|every| every.mul_f64(share));
            changed.renew.timeout = changed.renew.timeout.min(ttl.get() / 6);
            if changed.drift == Class::default_drift(changed.ttl.get()) {
                changed.drift = Class::default_drift(ttl.get());
            }
            changed.ttl = ttl;
        }
        changed.acquire.wait = self.wait.unwrap_or(changed.acquire.wait);
        changed.stop_grace = self.stop_grace.unwrap_or(changed.stop_grace);
        check(&changed)?;
        Ok(Arc::new(changed))
    }
}
