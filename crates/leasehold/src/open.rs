//! Opens a store by URL and builds the locks on it.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;

use leasehold_core::event::Observer;
use leasehold_core::store::StoreError;
use leasehold_core::{Holder, InvalidInput, Locks};

use crate::StoreUrl;

/// Starts to open the store at this URL, a text or a [`StoreUrl`]; see the table of URLs in the
/// [crate's](crate) documentation. [`build`](OpenBuilder::build) reports an invalid one.
pub fn open(url: impl TryInto<StoreUrl, Error = impl Into<OpenError>>) -> OpenBuilder {
    OpenBuilder {
        url: url.try_into().map_err(Into::into),
        policies: None,
        holder: None,
        observers: Vec::new(),
        log: true,
    }
}

/// Options for opening a store; [`build`](Self::build) opens it.
#[derive(Debug)]
#[must_use = "nothing is opened until `build`"]
pub struct OpenBuilder {
    url: Result<StoreUrl, OpenError>,
    policies: Option<PathBuf>,
    holder: Option<Holder>,
    observers: Vec<Arc<dyn Observer>>,
    log: bool,
}

// `open` takes a `StoreUrl` as it is, and that conversion cannot fail.
impl From<Infallible> for OpenError {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

impl OpenBuilder {
    /// Sets the policy file, which changes and extends the built-in classes. The file is watched. A
    /// change takes effect within about two seconds; an invalid change is refused with an event and has
    /// no effect.
    pub fn policies(mut self, file: impl Into<PathBuf>) -> Self {
        self.policies = Some(file.into());
        self
    }

    /// Sets the holder name of this client; the default is `host:pid`.
    pub fn holder(mut self, holder: Holder) -> Self {
        self.holder = Some(holder);
        self
    }

    /// Adds an observer of the event stream.
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observers.push(observer);
        self
    }

    /// Disables log lines, for callers that observe the events themselves.
    pub fn without_log(mut self) -> Self {
        self.log = false;
        self
    }

    /// Opens the store and starts the keeper, which renews leases. The locks work as long as the
    /// current runtime lives.
    ///
    /// # Errors
    /// The URL names no store, the store cannot be used, or the policy file is invalid.
    pub async fn build(self) -> Result<Locks, OpenError> {
        let url = self.url?;
        // Policies are read first: an invalid file must not leave a new, empty database behind.
        let book = self.policies.as_ref().map(leasehold_core::policy::PolicyBook::from_file);
        let book = book.transpose()?;
        // On a blocking thread: opening a SQLite file may wait for other processes.
        let store =
            tokio::task::spawn_blocking(move || url.open()).await.map_err(|_| OpenError::Panicked)??;
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

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The URL names no store. Correct it.
    #[error("store {url}: {why}")]
    Url {
        /// The given URL, without secrets.
        url: String,
        /// What is wrong with it, and which URLs are known.
        why: String,
    },
    /// The store cannot be used.
    #[error("store {url}: {failure}")]
    Store {
        /// The store's URL, without secrets.
        url: String,
        /// The store's error.
        #[source]
        failure: StoreError,
    },
    /// The policy file is invalid. `leasehold policy check` shows every problem.
    #[error(transparent)]
    Policies(#[from] InvalidInput),
    /// The store's code panicked.
    #[error("the store's code panicked while opening; please report it")]
    Panicked,
}
