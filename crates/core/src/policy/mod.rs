//! Policies as data: what happens when an acquire, a renewal or a release fails.
//!
//! A [`Class`] is what the protocol reads: numbers only, all present, all checked. It is built in
//! layers. Each layer replaces some fields of the one below, and every value keeps its origin:
//!
//! ```text
//! builtin.toml -> schema -> compose -> draft -> escalation -> override -> (request) -> resolve + check -> Class
//! ```
//!
//! [`PolicyBook`] holds the classes in force, [`FileWatch`] follows the file, and a [`Change`]
//! describes one value in force that changed.

mod book;
mod builtin;
mod change;
mod check;
mod class;
mod compose;
mod draft;
pub mod duration;
mod escalation;
mod field;
mod origin;
mod overrides;
mod plan;
mod reload;
mod rule;
mod schema;
mod setting;
mod state;

pub use book::{PolicyBook, problems};
pub use builtin::BUILTIN_POLICIES;
pub use change::{Change, ChangeKind};
pub use check::{check, check_name, check_store, check_ttl};
pub use class::{
    AcquirePolicy, Class, Enforcement, OnError, OnFailure, ReleasePolicy, ReleaseWhen, RenewPolicy,
};
pub use field::{Field, nearest};
pub use origin::{Origin, ResolvedClass};
pub use overrides::MAX_OVERRIDE_DURATION;
pub use plan::RenewPlan;
pub use reload::FileWatch;
pub use rule::{Action, Rule, Signal};
pub use schema::CLI_SETTING_KEYS;
