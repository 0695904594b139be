//! Authentication and authorization: deny by default, in one middleware.
//!
//! A [`Grant`] gives a [`Role`] on a [`Scope`] of names to a [`Principal`]. [`Tokens`] finds the
//! principal by its API token or client certificate. Every route is registered with a [`Rule`],
//! which `gate` enforces before the handler runs. A route without a rule is refused.

pub(crate) mod gate;
mod grant;
mod limit;
mod principal;
mod rule;
mod scope;
mod tokens;

pub use grant::{Grant, Role};
pub use limit::{Rate, RateLimits};
pub use principal::Principal;
pub(crate) use rule::lock_target;
pub use rule::{AuthRequest, Budget, DocumentTarget, Rule, Rules, Target, TargetResolver, TargetSource};
pub use scope::Scope;
pub use tokens::{NewToken, Tokens, TokensError};
