//! The JSON types of the routes for locks, holds, history and policies, and the error codes of the HTTP
//! API, shared by daemon and clients. The documents of the control plane are in `leasehold-plane`.
//!
//! Times are whole milliseconds, with the unit in the field's name. Fences are decimal strings. An
//! unknown field is an error. Tokens travel in bodies only, never in a URL.
//!
//! Terms: see `docs/glossary.md`.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod acquire;
mod document;
mod error_code;
mod history;
mod hold;
mod lease;
mod policy;
mod problem;
mod release;
mod renew;
mod secret;
mod whoami;

pub use acquire::{Acquire, GrantView, ModeWord, Wait, WaitView};
pub use document::{
    DocumentChangeView, DocumentListView, DocumentPut, DocumentReadView, DocumentView, expected_version,
};
pub use error_code::ErrorCode;
pub use history::{HistoryPage, HoldRecord};
pub use hold::{HoldRequest, HoldView};
pub use lease::{LockList, LockView, StoreView};
pub use policy::{ClassValueView, ClassView, PolicyChangeList, PolicyChangeView, PolicyList, PolicyOverride};
pub use problem::Problem;
pub use release::{Break, BreakView, Release, ReleaseView};
pub use renew::{Renew, RenewBatch, RenewItem, Renewals, RenewedView};
pub use secret::Secret;
pub use whoami::WhoAmI;

use std::time::Duration;

/// The media type of every error response.
pub const PROBLEM_MEDIA_TYPE: &str = "application/problem+json";

/// A duration in whole milliseconds, as the JSON types have it.
#[must_use]
pub fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

// Runs the README's code as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
