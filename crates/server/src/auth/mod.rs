//! Authentication and authorization: deny by default, in one middleware.
//!
//! A [`Grant`] gives a [`Right`] on a [`Scope`] of names to a [`Principal`]. [`Tokens`] finds the
//! principal by its API token or client certificate. Every route is registered with a [`Rule`],
//! which `gate` enforces before the handler runs. A route without a rule is refused.

mod admission;
pub(crate) mod dashboard_code;
pub(crate) mod earlier_grants;
pub(crate) mod gate;
mod grant;
mod limit;
mod new_token;
mod principal;
mod response_share;
mod right;
mod rule;
mod scope;
mod tokens;

pub(crate) use admission::revoked_refusal;
pub use grant::Grant;
pub use limit::{Rate, RateLimits};
pub use new_token::{NewToken, OwnerToken};
pub use principal::Principal;
pub use right::Right;
pub(crate) use rule::name_of;
pub use rule::{AuthRequest, Budget, DocumentTarget, Rule, Rules, Target, TargetResolver, TargetSource};
pub use scope::Scope;
pub use tokens::{Tokens, TokensError};
