//! Who asks, and what they may: deny by default, in one middleware.
//!
//! [`Grant`]s give a [`Role`] on a [`Scope`] of names to a [`Principal`], which [`Tokens`] finds by its API token or
//! certificate. Every route is registered with a [`Rule`]; the `gate` asks it before anything else happens. A route
//! without a rule is refused.

pub(crate) mod browser;
pub(crate) mod gate;
mod grant;
mod limit;
mod principal;
mod rule;
mod scope;
mod tokens;

pub use grant::{Grant, Role};
pub use limit::{Limits, Rate};
pub use principal::Principal;
pub use rule::{Budget, Look, Request, Rule, Rules, Space, Target};
pub use scope::Scope;
pub use tokens::{NewToken, Tokens, TokensError};
