use std::io;

/// Why a testbed could not be used. No verdict on the store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TestbedError {
    /// A process or file could not be used.
    #[error("{what}: {source}")]
    Io {
        /// The operation that failed.
        what: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The store did not do what the testbed asked for.
    #[error("{0}")]
    Store(String),
    /// The store is external, and its operator has not marked it as drillable.
    #[error("{0}")]
    NotDrillable(String),
}

impl TestbedError {
    /// An error of the operating system, for `map_err`.
    pub fn io(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { what: what.to_owned(), source }
    }

    /// An error of the store.
    pub fn store(error: impl ToString) -> Self {
        Self::Store(error.to_string())
    }

    /// The testbed lacks an ability: "this store cannot …".
    #[must_use]
    pub fn unsupported(what: &str) -> Self {
        Self::Store(format!("this store cannot {what}"))
    }

    /// An external store carries no mark. `url` is printed, so it must have no secrets; `how` is the
    /// command that sets the mark.
    #[must_use]
    pub fn not_marked(url: &str, how: &str) -> Self {
        Self::NotDrillable(format!(
            "{url} is not marked as drillable, so it may be a production store\n\
             if its locks may be starved and its clients cut off, allow it: {how}\n\
             without a store (--store '') drills run on throw-away ones"
        ))
    }
}
