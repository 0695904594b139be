//! The caller's acquire request: plain data, validated.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::policy::{Class, check};
use crate::store::Mode;
use crate::types::{Fence, InvalidInput, Name, Token, Ttl};

/// One acquire as the caller wants it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Request {
    /// The name to lock.
    pub name: Name,
    /// The class whose policy applies.
    pub class: Arc<str>,
    /// Exclusive, shared or permits.
    pub mode: Mode,
    /// Values that replace the class's for this request only.
    pub options: RequestOptions,
    /// The token to acquire with, for callers that resume the hold after a restart
    /// ([`Locks::resume`](crate::Locks::resume)). It must be fresh for every acquire. The hold's
    /// holder is the token's. `None` makes a random token.
    pub token: Option<Token>,
    /// Makes the tokens of later leases of the same hold, for the same callers. `None` makes random
    /// tokens.
    pub token_source: Option<Arc<dyn TokenSource>>,
    /// The name may contain invisible characters; see [`ClassLocks::existing_names`](crate::ClassLocks::existing_names).
    pub existing_name: bool,
}

/// The source of tokens for re-acquired leases. A hold that lost its lease, or never had one,
/// acquires the name again with a new token. A caller that resumes such a hold after a restart
/// makes these tokens and records which one is in use.
pub trait TokenSource: fmt::Debug + Send + Sync {
    /// Returns an unused token; `None` if no more can be made. The keeper task calls this for all
    /// holds, so the implementation must not block.
    fn next_token(&self) -> Option<Token>;

    /// The hold now has this token and this fence. The implementation must not block.
    fn token_adopted(&self, token: &Token, fence: Fence);
}

impl Request {
    /// An exclusive request with the class's own values.
    ///
    /// # Errors
    /// The name is invalid.
    pub fn new<N>(class: &str, name: N) -> Result<Self, InvalidInput>
    where
        N: TryInto<Name>,
        InvalidInput: From<N::Error>,
    {
        Ok(Self {
            name: name.try_into()?,
            class: class.into(),
            mode: Mode::Exclusive,
            options: RequestOptions::default(),
            token: None,
            token_source: None,
            existing_name: false,
        })
    }

    /// Sets the token instead of a random one.
    #[must_use]
    pub fn token(mut self, token: Token) -> Self {
        self.token = Some(token);
        self
    }

    /// Sets the source of tokens for re-acquired leases.
    #[must_use]
    pub fn token_source(mut self, source: Arc<dyn TokenSource>) -> Self {
        self.token_source = Some(source);
        self
    }

    /// Sets the values that replace the class's.
    #[must_use]
    pub fn options(mut self, options: RequestOptions) -> Self {
        self.options = options;
        self
    }
}

/// Values of a class that one request replaces. The result is checked like a class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequestOptions {
    /// Time to live; the renewal interval and the drift keep their proportion to it.
    pub ttl: Option<Duration>,
    /// How long to wait for a busy name; zero is one try.
    pub wait: Option<Duration>,
    /// How long the work needs to stop after its cancellation.
    pub stop_grace: Option<Duration>,
}

impl RequestOptions {
    /// Sets the time to live.
    #[must_use]
    pub fn ttl(mut self, ttl: Option<Duration>) -> Self {
        self.ttl = ttl;
        self
    }

    /// Sets the wait for a busy name.
    #[must_use]
    pub fn wait(mut self, wait: Option<Duration>) -> Self {
        self.wait = wait;
        self
    }

    /// Returns the class with these values, checked.
    ///
    /// # Errors
    /// The resulting class cannot work; the message shows the arithmetic.
    pub fn apply(&self, class: &Arc<Class>) -> Result<Arc<Class>, InvalidInput> {
        if *self == Self::default() {
            return Ok(Arc::clone(class));
        }
        let mut changed = Class::clone(class);
        if let Some(ttl) = self.ttl {
            let ttl = Ttl::new(ttl)?;
            let share = ttl.get().as_secs_f64() / changed.ttl.get().as_secs_f64();
            changed.renew.every = changed.renew.every.map(|every| every.mul_f64(share));
            // At most a sixth of the TTL, so that a retry still fits before the deadline.
            changed.renew.timeout = changed.renew.timeout.min(ttl.get() / 6);
            // A drift that the policy states explicitly stays; only the default follows the TTL.
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
