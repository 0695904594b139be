//! The public API of the crates that programs import, as a text beside each crate. A change of it is seen in review.
//!
//! rustdoc's JSON has a version for each toolchain: `public-api` in Cargo.toml must read that of the pinned one.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

use crate::process::{self, capture_all, words};

/// Folders under `crates/`: the published libraries. Not `cli`, whose library is for its binary and its tests.
const CRATES: [&str; 15] = [
    "advise",
    "conformance",
    "core",
    "drill",
    "fence",
    "http",
    "leasehold",
    "metrics",
    "plane",
    "redis",
    "server",
    "sqlite",
    "supervise",
    "trace",
    "wire",
];

#[derive(Debug, Default, clap::Args)]
pub(crate) struct PublicApiArgs {
    /// Write the texts instead of comparing them
    #[arg(long)]
    write: bool,
}

pub(crate) fn main(args: &PublicApiArgs) -> anyhow::Result<bool> {
    let folder = document()?;
    let mut same = true;
    for name in CRATES {
        let current = list(&folder, name)?;
        let path = PathBuf::from(format!("crates/{name}/public-api.txt"));
        if args.write {
            std::fs::write(&path, current).with_context(|| path.display().to_string())?;
            continue;
        }
        let recorded = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let changes = changed_lines(&recorded, &current);
        if !changes.is_empty() {
            println!("{} differs from the code:\n{}", path.display(), changes.join("\n"));
            same = false;
        }
    }
    if !same {
        println!("if the change is meant: cargo xtask public-api --write");
    }
    Ok(same)
}

/// Writes rustdoc's JSON for the whole workspace. With the features of the other steps, so that no dependency is built again.
fn document() -> anyhow::Result<PathBuf> {
    let mut doc = words("cargo doc --workspace --lib --no-deps --all-features --locked --quiet");
    let ended = capture_all(doc.env("RUSTDOC", std::path::absolute("scripts/rustdoc-json")?))?;
    ensure!(ended.success(), "cargo doc: exit code {}:\n{}", ended.code, ended.tail(30));
    Ok(process::target_dir()?.join("doc"))
}

/// One line for each public item, without what every type has.
fn list(folder: &Path, name: &str) -> anyhow::Result<String> {
    let library = if name == "leasehold" { name.to_owned() } else { format!("leasehold_{name}") };
    let json = folder.join(format!("{library}.json"));
    let api = public_api::Builder::from_rustdoc_json(&json)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(true)
        .build()
        .with_context(|| json.display().to_string())?;
    Ok(api.to_string())
}

fn changed_lines(recorded: &str, current: &str) -> Vec<String> {
    let (old, new): (BTreeSet<_>, BTreeSet<_>) = (recorded.lines().collect(), current.lines().collect());
    let removed = old.difference(&new).map(|line| format!("-{line}"));
    removed.chain(new.difference(&old).map(|line| format!("+{line}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_item_is_one_line_less_and_one_more() {
        assert_eq!(changed_lines("pub fn a()\npub fn b()\n", "pub fn a()\npub fn b()\n"), [""; 0]);
        assert_eq!(
            changed_lines("pub fn a()\npub fn b()\n", "pub fn a(u8)\npub fn b()\n"),
            ["-pub fn a()", "+pub fn a(u8)"]
        );
    }
}
