//! A store of a program's own: SQLite files under the scheme `trial`. Also used by the tests of the CLI.

use std::fmt;
use std::time::Duration;

use leasehold::store::{Backend, BackendInfo, Examination, SharedStore, StoreError, StoreLocation};
use leasehold::testbed::{Testbed, TestbedError, TestbedFactory, TestbedInfo, TestbedSetup};
use leasehold_sqlite::SqliteOptions;
use leasehold_sqlite::testkit::{SqliteTestbed, SqliteTestbeds};

#[derive(Debug)]
pub(crate) struct TrialBackend;

impl Backend for TrialBackend {
    fn info(&self) -> BackendInfo {
        BackendInfo::new("trial", &["trial"], &["trial:PATH"])
            .with_summary("a trial file", "processes of one host")
            .with_examines("what the trial file is on")
    }

    fn parse(&self, url: &str) -> Result<Box<dyn StoreLocation>, StoreError> {
        let path = url.strip_prefix("trial:").unwrap_or_default();
        Ok(Box::new(TrialLocation(SqliteOptions::parse(path)?)))
    }

    fn testbed(&self) -> Option<&'static dyn TestbedFactory> {
        Some(&TrialTestbeds)
    }
}

#[derive(Debug)]
struct TrialTestbeds;

#[async_trait::async_trait]
impl TestbedFactory for TrialTestbeds {
    fn info(&self) -> TestbedInfo {
        TestbedInfo::new("trial", "A trial file in a temporary folder")
    }

    async fn start(&self, setup: TestbedSetup) -> Result<Box<dyn Testbed>, TestbedError> {
        let path = setup.folder.join("trial.db");
        let url = format!("trial:{}", path.display());
        Ok(Box::new(SqliteTestbed::new(path, url)))
    }

    async fn attach(&self, url: &str) -> Result<Box<dyn Testbed>, TestbedError> {
        let path = url.strip_prefix("trial:").unwrap_or_default();
        // Checks the mark.
        SqliteTestbeds.attach(path).await?;
        Ok(Box::new(SqliteTestbed::new(path.into(), url.to_owned())))
    }
}

struct TrialLocation(SqliteOptions);

impl fmt::Display for TrialLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "trial:{}", self.0.path().display())
    }
}

#[async_trait::async_trait]
impl StoreLocation for TrialLocation {
    fn expose_url(&self) -> String {
        self.to_string()
    }

    fn open(&self) -> Result<SharedStore, StoreError> {
        self.0.open()
    }

    async fn examine(&self, within: Duration) -> Result<Examination, StoreError> {
        self.0.examine(within).await
    }

    fn exists(&self) -> Option<bool> {
        self.0.exists()
    }
}
