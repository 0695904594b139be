//! From a URL to locks.

use std::path::PathBuf;
use std::sync::Arc;

use leasehold_core::event::Observer;
use leasehold_core::store::Failure;
use leasehold_core::{Holder, Invalid, Locks};

use crate::StoreUrl;

/// Begins to open the store at this URL; see the [crate's](crate) table of URLs.
pub fn open(url: impl Into<String>) -> Opening {
    Opening {
        url: url.into(),
        policies: None,
        holder: None,
        observers: Vec::new(),
        log: true,
    }
}

/// Locks that are about to be opened.
#[derive(Debug)]
#[must_use = "nothing is opened until `build`"]
pub struct Opening {
    url: String,
    policies: Option<PathBuf>,
    holder: Option<Holder>,
    observers: Vec<Arc<dyn Observer>>,
    log: bool,
}

impl Opening {
    /// The built-in classes as this file changes and adds to them. It is watched: a change counts within a second, a bad
    /// one is refused with an event and changes nothing.
    pub fn policies(mut self, file: impl Into<PathBuf>) -> Self {
        self.policies = Some(file.into());
        self
    }

    /// Who this client says it is; by default `host:pid`.
    pub fn holder(mut self, holder: Holder) -> Self {
        self.holder = Some(holder);
        self
    }

    /// One more reader of the event stream.
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observers.push(observer);
        self
    }

    /// No log lines: the caller reads the stream itself.
    pub fn without_log(mut self) -> Self {
        self.log = false;
        self
    }

    /// Opens the store and starts to keep. The locks live as long as the runtime this is called on.
    ///
    /// # Errors
    /// No such store, it cannot be used, or the policy file does not make sense.
    pub async fn build(self) -> Result<Locks, OpenError> {
        let url = StoreUrl::parse(&self.url)?;
        // The policies first: a mistake in them should not have made an empty database.
        let book = self
            .policies
            .as_ref()
            .map(leasehold_core::policy::PolicyBook::from_file);
        let book = book.transpose()?;
        // Opening a file may wait for other processes.
        let store = tokio::task::spawn_blocking(move || url.open())
            .await
            .map_err(|_| OpenError::Panicked)??;
        let mut builder = Locks::builder(store);
        if let (Some(path), Some(book)) = (self.policies, book) {
            builder = builder.policies(book).policy_file(path);
        }
        if let Some(holder) = self.holder {
            builder = builder.holder(holder);
        }
        if !self.log {
            builder = builder.without_log();
        }
        for observer in self.observers {
            builder = builder.observer(observer);
        }
        Ok(builder.build()?)
    }
}

/// Locks that could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The URL names no store. Mend it.
    #[error("store {url}: {why}")]
    Url {
        /// What was given, without secrets.
        url: String,
        /// What is wrong with it, and what is known.
        why: String,
    },
    /// The store cannot be used.
    #[error("store {url}: {failure}")]
    Store {
        /// Which, without secrets.
        url: String,
        /// Why.
        #[source]
        failure: Failure,
    },
    /// The policy file cannot be used. Mend it; `leasehold policy check` shows every problem.
    #[error(transparent)]
    Policies(#[from] Invalid),
    /// The store's code panicked.
    #[error("the store's code panicked while opening; please report it")]
    Panicked,
}
