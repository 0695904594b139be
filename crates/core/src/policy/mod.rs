//! Policies as data: what happens when acquire errs, when renewal fails, when release fails.
//!
//! A [`Class`] is what the protocol reads: numbers only, all present, all checked. It is made in layers, each
//! stating some fields over the one below, and every value remembers which layer it came from:
//!
//! ```text
//! builtin.toml -> schema -> compose -> draft -> escalation -> override -> (request) -> resolve + check -> Class
//! ```
//!
//! [`PolicyBook`] holds the classes in force, [`FileWatch`] follows the file, and a [`Change`] is what is told when
//! a value in force becomes another.

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
pub use builtin::BUILTIN;
pub use change::{Change, ChangeKind};
pub use check::{check, check_name, check_store};
pub use class::{
    AcquirePolicy, Class, Enforcement, OnError, OnFailure, ReleasePolicy, ReleaseWhen, RenewPolicy,
};
pub use field::{Field, nearest};
pub use origin::{Origin, Resolved};
pub use overrides::LONGEST_OVERRIDE;
pub use plan::RenewPlan;
pub use reload::FileWatch;
pub use rule::{Action, Rule, Signal};
pub use schema::SETTINGS;
