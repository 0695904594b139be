//! A copy of the tree with its builds, in which code can be changed and tested.

use std::path::PathBuf;
use std::process::Command;

use anyhow::ensure;

use crate::process::{Scratch, command, run};

/// These arguments give all dependencies the features that they have in a build of the whole workspace, so that the builds in the copy are used.
/// Nothing of that package is built, and none of its dependencies for its sake: it has no library and no test of a name that is asked for.
pub(crate) const SHARED_FEATURES: &str = "-p shared-features --all-features";

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

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use crate::process::{capture, words};

    fn texts(list: &Value) -> Vec<&str> {
        list.as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect()
    }

    /// A feature that is missing there costs no proof, but each seeded bug and mutant would build the dependency and all above it again.
    #[test]
    fn shared_features_lists_what_the_workspace_uses() {
        let line = "cargo metadata --locked --offline --no-deps --format-version 1";
        let metadata: Value = serde_json::from_str(&capture(&mut words(line)).unwrap().text).unwrap();
        let packages = metadata["packages"].as_array().unwrap();
        let dependencies = |package: &str| {
            let package = packages.iter().find(|one| one["name"] == package).unwrap();
            package["dependencies"].as_array().unwrap().iter()
        };
        let check = |name: &Value, features: Vec<&str>, user: &Value| {
            let listed = dependencies("shared-features").find(|one| one["name"] == *name);
            let listed = listed.map_or_else(Vec::new, |one| texts(&one["features"]));
            for feature in features {
                let known = listed.contains(&feature);
                assert!(known, "xtask/shared-features lacks {name} with {feature}, which {user} uses");
            }
        };
        for package in packages.iter().filter(|one| one["name"] != "shared-features") {
            let name = &package["name"];
            if name != "xtask" {
                check(
                    name,
                    package["features"].as_object().unwrap().keys().map(String::as_str).collect(),
                    name,
                );
            }
            // What libraries use themselves comes with them.
            for used in
                dependencies(name.as_str().unwrap()).filter(|one| one["kind"] == "dev" || name == "xtask")
            {
                let listed = dependencies("shared-features").any(|one| one["name"] == used["name"]);
                assert!(listed, "xtask/shared-features lacks {}, which {name} uses", used["name"]);
                check(&used["name"], texts(&used["features"]), name);
            }
        }
    }
}
