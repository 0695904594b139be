//! A copy of the tree with its builds, in which code can be changed and tested.

use std::path::PathBuf;
use std::process::Command;

use anyhow::ensure;

use crate::process::{Scratch, command, run};

/// These arguments give all dependencies the features that they have in a build of the whole workspace, so that the builds in the copy are used.
/// Nothing of `leasehold-cli` itself is built: it has neither a library nor tests of the names that are asked for.
pub(crate) const SHARED_FEATURES: &str =
    "-p leasehold-cli --all-features --features leasehold/testing,serde/rc,tokio/test-util";

/// The copy; removed at the end.
#[derive(Debug)]
pub(crate) struct TestCopy {
    folder: Scratch,
}

impl TestCopy {
    pub(crate) fn new(name: &str) -> anyhow::Result<Self> {
        let nextest = command("cargo").args(["nextest", "--version"]).output()?;
        ensure!(nextest.status.success(), "cargo-nextest is missing: run scripts/need cargo-nextest");
        let folder = Scratch::named(name)?;
        run(command("scripts/copy").arg(folder.path()))?;
        Ok(Self { folder })
    }

    /// The copied source.
    pub(crate) fn tree(&self) -> PathBuf {
        self.folder.path().join("tree")
    }

    /// A program that is started in the copy and builds there.
    pub(crate) fn within(&self, mut command: Command) -> Command {
        command
            .current_dir(self.tree())
            .env("CARGO_TARGET_DIR", self.folder.path().join("target"))
            // The copy lies inside the repository but is none of its files: `git apply` would silently skip every change.
            .env("GIT_CEILING_DIRECTORIES", self.folder.path());
        command
    }
}
