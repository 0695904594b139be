//! A kind of store that programs open by URL, and one store of it.
//!
//! A store crate implements both traits and depends on this crate only. The registry in the crate
//! `leasehold` finds the backend by the URL's scheme. No other code asks which store it has: what
//! differs is a capability, a promise, a finding, or an answer of [`StoreLocation`].

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;

use super::{Capabilities, Examination, SharedStore, StoreError};
use crate::testbed::{SimProfile, TestbedFactory};

/// What help texts and documentation say about a backend, and which URLs belong to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackendInfo {
    /// The product's name for people: `SQLite`.
    pub title: &'static str,
    /// The URL schemes of this backend, without the colon.
    pub schemes: &'static [&'static str],
    /// A URL without a scheme that begins with `/`, `./` or `../` belongs to this backend.
    pub takes_paths: bool,
    /// The URLs that a user writes: `redis://HOST`. Older spellings may be left out.
    pub url_forms: &'static [&'static str],
    /// What the URL names, in one line: `one SQLite file`.
    pub summary: &'static str,
    /// Which clients can use one store together: `processes of one host`.
    pub shared_by: &'static str,
    /// The store is memory of one process: it cannot exclude another one.
    pub one_process: bool,
    /// The subjects of [`StoreLocation::examine`], for the help of `leasehold doctor`; may be empty.
    pub examines: &'static str,
    /// How a user is given the rights that locks need: advice of `leasehold doctor`; may be empty.
    pub rights_advice: &'static str,
    /// What every store of this kind can do. `None`: it depends on the store.
    pub capabilities: Option<Capabilities>,
}

impl BackendInfo {
    /// A backend that takes no bare paths and examines nothing in particular.
    #[must_use]
    pub const fn new(
        title: &'static str,
        schemes: &'static [&'static str],
        url_forms: &'static [&'static str],
    ) -> Self {
        Self {
            title,
            schemes,
            takes_paths: false,
            url_forms,
            summary: title,
            shared_by: "",
            one_process: false,
            examines: "",
            rights_advice: "",
            capabilities: None,
        }
    }

    /// Sets what the URL names and which clients can share it.
    #[must_use]
    pub const fn with_summary(mut self, summary: &'static str, shared_by: &'static str) -> Self {
        self.summary = summary;
        self.shared_by = shared_by;
        self
    }

    /// Declares that the store is memory of one process.
    #[must_use]
    pub const fn within_one_process(mut self) -> Self {
        self.one_process = true;
        self
    }

    /// Declares that bare paths belong to this backend.
    #[must_use]
    pub const fn with_paths(mut self) -> Self {
        self.takes_paths = true;
        self
    }

    /// Sets the subjects of the examination.
    #[must_use]
    pub const fn with_examines(mut self, examines: &'static str) -> Self {
        self.examines = examines;
        self
    }

    /// Sets the advice for a user who lacks a right.
    #[must_use]
    pub const fn with_rights_advice(mut self, rights_advice: &'static str) -> Self {
        self.rights_advice = rights_advice;
        self
    }

    /// Sets the capabilities that every store of this kind has.
    #[must_use]
    pub const fn with_capabilities(mut self, capabilities: Capabilities) -> Self {
        self.capabilities = Some(capabilities);
        self
    }
}

/// A kind of store. The registry has one value of it.
pub trait Backend: Send + Sync + fmt::Debug + 'static {
    /// The schemes and the description. Constant.
    fn info(&self) -> BackendInfo;

    /// Parses a URL of one of the schemes, or a path if [`BackendInfo::takes_paths`]. Opens and
    /// creates nothing.
    ///
    /// # Errors
    /// The URL cannot be used. The message says what to write instead and never repeats a secret.
    fn parse(&self, url: &str) -> Result<Box<dyn StoreLocation>, StoreError>;

    /// Makes stores of this kind for drills. `None`: they cannot be drilled, or this build leaves that
    /// out.
    fn testbed(&self) -> Option<&'static dyn TestbedFactory> {
        None
    }

    /// How such a store behaves, for the simulator.
    fn sim_profile(&self) -> Option<SimProfile> {
        None
    }
}

/// One store, as a parsed URL names it. `Display` prints the URL without secrets.
#[async_trait]
pub trait StoreLocation: fmt::Display + Send + Sync + 'static {
    /// The whole URL, secrets included. It opens the same store from any folder, so that another
    /// process can be given it.
    fn expose_url(&self) -> String;

    /// Opens the store and creates what is missing. A server is connected to at the first request,
    /// so one that is down is not an error here. May block for a short time.
    ///
    /// # Errors
    /// The store cannot be used.
    fn open(&self) -> Result<SharedStore, StoreError>;

    /// Finds hazards of the store, or of the place where it would be created. Creates and changes
    /// nothing.
    ///
    /// # Errors
    /// The store does not answer.
    async fn examine(&self, within: Duration) -> Result<Examination, StoreError>;

    /// Whether the store is there, if that can be told without a request to a server. A caller that
    /// must create nothing does not open a store that is not there.
    fn exists(&self) -> Option<bool> {
        None
    }

    /// The URL of the Leasehold daemon that serves this store, if there is one: operators' requests
    /// go to its HTTP API.
    fn daemon_url(&self) -> Option<&str> {
        None
    }
}
