//! `memory:`, for the registry.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::{CAPABILITIES, MemoryStore};
use crate::clock::BootClock;
use crate::store::{
    Backend, BackendInfo, Examination, Finding, SharedStore, StoreError, StoreErrorKind, StoreLocation,
};

/// Opens `memory:`. Each open makes a new, empty store.
#[derive(Debug, Clone, Copy)]
pub struct MemoryBackend;

impl Backend for MemoryBackend {
    fn info(&self) -> BackendInfo {
        BackendInfo::new("memory", &["memory"], &["memory:"])
            .with_summary("this process's memory", "no other process; for tests and examples")
            .within_one_process()
            .with_capabilities(CAPABILITIES)
    }

    fn parse(&self, url: &str) -> Result<Box<dyn StoreLocation>, StoreError> {
        match url {
            "memory:" | "memory://" => Ok(Box::new(MemoryLocation)),
            _ => Err(StoreError::not_done(
                StoreErrorKind::Misconfigured,
                "a store in memory has no address; write memory:",
            )),
        }
    }
}

struct MemoryLocation;

impl fmt::Display for MemoryLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("memory:")
    }
}

#[async_trait]
impl StoreLocation for MemoryLocation {
    fn expose_url(&self) -> String {
        self.to_string()
    }

    fn open(&self) -> Result<SharedStore, StoreError> {
        Ok(Arc::new(MemoryStore::new(BootClock::shared())))
    }

    async fn examine(&self, within: Duration) -> Result<Examination, StoreError> {
        let mut out = Examination::default();
        out.add_finding(
            Finding::breaks(
                "memory.private",
                "memory: is this process's own memory: no other process sees its locks, and they end with it",
                "use it in tests only; sqlite:PATH serves several processes, redis://HOST several hosts",
            )
            .fatal(),
        );
        out.promised = Some(self.open()?.promise(within).await?);
        Ok(out)
    }
}
