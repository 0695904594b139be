//! The programs that layers run.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Context;

use crate::process::{self, Scratch};

/// The simulator's command, as it stands in the ledger.
pub(super) const SIMULATE: &str = "cargo xtask simulate";

/// A copy of a built program: the tree may be built again while a long layer runs.
#[derive(Debug)]
pub(super) struct BuiltProgram {
    _folder: Scratch,
    pub(super) path: PathBuf,
}

impl BuiltProgram {
    pub(super) fn new(name: &str) -> anyhow::Result<Self> {
        let built = process::build_program(name)?;
        let folder = Scratch::new("proof")?;
        let path = folder.path().join(name);
        std::fs::copy(&built, &path).with_context(|| built.display().to_string())?;
        Ok(Self { _folder: folder, path })
    }

    /// `leasehold …` as it stands in the ledger. An empty store keeps a configured one out of the drills.
    pub(super) fn leasehold(&self, line: &str) -> Command {
        let mut command = process::command(&self.path);
        command.args(["--store", ""]).args(line.split_whitespace().skip(1));
        command
    }

    /// `cargo xtask simulate …` as it stands in the ledger.
    pub(super) fn simulate(&self, line: &str) -> Command {
        let mut command = process::command(&self.path);
        command.args(line.trim_start_matches(SIMULATE).split_whitespace());
        command
    }
}
