//! `http://` and `https://`, for the registry.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::store::{
    Backend, BackendInfo, Examination, SharedStore, StoreError, StoreLocation, redact,
};
use leasehold_core::url_options::misconfigured;

use crate::examine::examine;
use crate::options::HttpOptions;
use crate::store::HttpStore;

/// Opens `http://` and `https://`: a daemon.
#[derive(Debug, Clone, Copy)]
pub struct HttpBackend;

impl Backend for HttpBackend {
    fn info(&self) -> BackendInfo {
        BackendInfo::new("daemon", &["http", "https"], &["http://HOST:PORT", "https://HOST"])
            .with_summary("a daemon, `leasehold serve`", "all hosts that reach it")
            .with_examines("TLS, access, what its store promises")
            .with_rights_advice(
                "use a token with a grant of `hold` on these names, for example `leasehold token new NAME --grant \
                 'hold:*'`: see docs/daemon.md",
            )
    }

    fn parse(&self, url: &str) -> Result<Box<dyn StoreLocation>, StoreError> {
        // The URL parser would read `http:HOST` as a host too; here it is a typing mistake.
        if !url.contains("://") {
            return Err(misconfigured("it has no host; write http://HOST:PORT"));
        }
        let options = HttpOptions::parse(url)?;
        Ok(Box::new(HttpLocation { url: url.to_owned(), options }))
    }
}

struct HttpLocation {
    url: String,
    options: HttpOptions,
}

impl fmt::Display for HttpLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // `HttpOptions` refuses tokens, but a path may contain half of a mistyped one.
        f.write_str(&redact(&self.url))
    }
}

#[async_trait]
impl StoreLocation for HttpLocation {
    fn expose_url(&self) -> String {
        self.url.clone()
    }

    fn open(&self) -> Result<SharedStore, StoreError> {
        Ok(Arc::new(HttpStore::open(self.options.clone())?))
    }

    async fn examine(&self, within: Duration) -> Result<Examination, StoreError> {
        examine(&self.options, within).await
    }

    fn daemon_url(&self) -> Option<&str> {
        Some(&self.url)
    }
}
