//! The fixture of a store that has a testbed: its test file needs no code of its own.

use std::io;

use anyhow::Context;
use async_trait::async_trait;
use leasehold_core::store::{Backend, SharedStore};
use leasehold_core::testbed::{Testbed, TestbedAbility, TestbedSetup};
use tempfile::TempDir;

use crate::fixture::Fixture;
use crate::taker::TakerCommand;

/// A throw-away store of a backend. A server is restarted by [`Fixture::reopen`].
#[derive(Debug)]
pub struct TestbedFixture<B> {
    backend: B,
    testbed: Box<dyn Testbed>,
    restarts: bool,
    taker: fn(&str) -> io::Result<TakerCommand>,
    _folder: TempDir,
}

impl<B: Backend> TestbedFixture<B> {
    /// Starts the store. `taker` is the function `taker_command` that [`taker!`](crate::taker) has
    /// defined.
    ///
    /// # Errors
    /// The backend has no testbed, or the store does not start.
    pub async fn start(backend: B, taker: fn(&str) -> io::Result<TakerCommand>) -> anyhow::Result<Self> {
        let factory = backend.testbed().context("the backend has no testbed")?;
        let folder = TempDir::new()?;
        let testbed = factory.start(TestbedSetup::new(folder.path(), "locks").with_durability()).await?;
        let restarts = factory.info().can(TestbedAbility::Restart);
        Ok(Self { backend, testbed, restarts, taker, _folder: folder })
    }
}

/// Opens the store that this URL names.
///
/// # Errors
/// The URL is not one of the backend's, or the store cannot be opened.
pub fn open_url(backend: &dyn Backend, url: &str) -> anyhow::Result<SharedStore> {
    Ok(backend.parse(url)?.open()?)
}

#[async_trait]
impl<B: Backend> Fixture for TestbedFixture<B> {
    async fn open(&self) -> anyhow::Result<SharedStore> {
        open_url(&self.backend, &self.testbed.url())
    }

    async fn reopen(&self) -> anyhow::Result<SharedStore> {
        if self.restarts {
            self.testbed.restart().await?;
        }
        self.open().await
    }

    fn taker(&self) -> Option<TakerCommand> {
        (self.taker)(&self.testbed.url()).ok()
    }
}
