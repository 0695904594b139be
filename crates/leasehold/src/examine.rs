//! What is wrong with a store: each store's crate knows its own hazards.

use std::time::Duration;

use leasehold_core::store::{Examination, Finding, Promise, Promised};

use crate::{OpenError, StoreUrl};

impl StoreUrl {
    /// Finds what is wrong with the store, or with the place where it would be. Makes and changes nothing.
    ///
    /// # Errors
    /// It could not be looked at: it does not answer, or this build does not contain it.
    pub async fn examine(&self, within: Duration) -> Result<Examination, OpenError> {
        match self {
            Self::Memory => Ok(memory()),
            #[cfg(feature = "sqlite")]
            Self::Sqlite { path, .. } => {
                let path = path.clone();
                let mut out = tokio::task::spawn_blocking(move || leasehold_sqlite::examine(&path))
                    .await
                    .map_err(|_| OpenError::Panicked)?;
                out.promised = Some(Promised {
                    promise: Promise::Durable,
                    because: vec!["there is one copy, on one host's disk".into()],
                });
                Ok(out)
            }
            #[cfg(feature = "redis")]
            Self::Redis { url } => {
                let options =
                    leasehold_redis::RedisOptions::parse(url).map_err(|failure| self.failed(failure))?;
                let examined = leasehold_redis::examine(&options, within).await;
                examined.map_err(|failure| self.failed(failure))
            }
            #[cfg(feature = "http")]
            Self::Http { url } => {
                let options =
                    leasehold_http::HttpOptions::parse(url).map_err(|failure| self.failed(failure))?;
                let examined = leasehold_http::examine(&options, within).await;
                examined.map_err(|failure| self.failed(failure))
            }
            #[cfg(not(all(feature = "sqlite", feature = "redis", feature = "http")))]
            _ => {
                let _ = within;
                Err(OpenError::Url {
                    url: self.to_string(),
                    why: "this build does not contain that store; build it with the feature of its name"
                        .into(),
                })
            }
        }
    }
}

fn memory() -> Examination {
    let mut out = Examination::default();
    out.found(Finding::breaks(
        "memory.private",
        "memory: is this process's own memory: no other process sees its locks, and they end with it",
        "use it in tests only; sqlite:PATH serves several processes, redis://HOST several hosts",
    ));
    out.promised = Some(Promised {
        promise: Promise::Volatile,
        because: vec!["it is this process's memory".into()],
    });
    out
}
