//! The release binary contains no simulator, no model and no test double.
//!
//! Cargo unites features: one dependency that asks for `testing` brings it into the product without a change of code.

use anyhow::{Context, ensure};

use crate::process::{capture, words};

/// Packages for development only.
const DEVELOPMENT_PACKAGES: [&str; 4] = ["leasehold-sim", "leasehold-conformance", "stateright", "proptest"];

pub(crate) fn main() -> anyhow::Result<bool> {
    let mut passed = true;
    // Without the edges of dev-dependencies: these are not part of a release build.
    for features in ["", " --all-features"] {
        let command = format!(
            "cargo tree --locked -p leasehold-cli{features} --edges normal,build,features --prefix none"
        );
        let ended = capture(&mut words(&command)).context("cargo tree")?;
        ensure!(ended.success(), "`{command}` ended with {}", ended.code);
        ensure!(
            ended.text.lines().any(|line| line.starts_with("leasehold-core ")),
            "`{command}` does not show leasehold-core: is its format another one?"
        );
        for line in forbidden_lines(&ended.text) {
            eprintln!("check-features: the release binary contains {line}");
            eprintln!(
                "`cargo tree -p leasehold-cli{features} -e normal,features -i PACKAGE` shows which dependency asks for it"
            );
            passed = false;
        }
    }
    Ok(passed)
}

/// The lines of `cargo tree` that name something for development only, each once.
fn forbidden_lines(tree: &str) -> Vec<&str> {
    let mut found: Vec<_> = tree
        .lines()
        .map(|line| line.trim_end_matches(" (*)").trim_end_matches(" (command-line)"))
        .filter(|line| {
            let (package, rest) = line.split_once(' ').unwrap_or((line, ""));
            DEVELOPMENT_PACKAGES.contains(&package)
                || package.starts_with("leasehold") && rest.starts_with("feature \"testing\"")
        })
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_tests_need_is_found() {
        let tree = "leasehold-cli v0.1.0 (/x/crates/cli)\n\
                    leasehold-core feature \"default\"\n\
                    leasehold-core feature \"testing\"\n\
                    leasehold-core feature \"testing\"\n\
                    leasehold-redis feature \"testbed\"\n\
                    leasehold-redis feature \"testing\" (command-line) (*)\n\
                    leasehold-sim v0.1.0 (/x/crates/sim)\n\
                    opentelemetry_sdk feature \"testing\"\n\
                    stateright feature \"default\"\n";
        assert_eq!(
            forbidden_lines(tree),
            [
                "leasehold-core feature \"testing\"",
                "leasehold-redis feature \"testing\"",
                "leasehold-sim v0.1.0 (/x/crates/sim)",
                "stateright feature \"default\"",
            ]
        );
    }
}
