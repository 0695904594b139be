//! `counts`: figures about how the code reads, of the tree and of a revision beside it.

mod detect;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

use self::detect::{contains_simulator, names_store, runs_acquire_machine, writes_store_scheme};
use crate::ledger::grouped;
use crate::process::{Scratch, bash, capture_all};

#[derive(Debug, clap::Args)]
pub(crate) struct CountsArgs {
    /// Also count this revision
    #[arg(long, value_name = "REVISION")]
    base: Option<String>,
    /// Also list what was counted in the tree
    #[arg(long)]
    list: bool,
}

pub(crate) fn main(args: &CountsArgs) -> anyhow::Result<bool> {
    let tree = Counts::of(Path::new("."))?;
    let base = args.base.as_deref().map(base_counts).transpose()?;
    if let Some(revision) = &args.base {
        println!("{:<64} {:>10} {revision:>10}", "", "tree");
    }
    for (at, (name, value)) in tree.rows().into_iter().enumerate() {
        let beside = base.as_ref().map_or(String::new(), |base| format!(" {:>10}", base.rows()[at].1));
        println!("{name:<64} {value:>10}{beside}");
    }
    if args.list {
        for (title, lines) in tree.lists() {
            println!("\n{title}");
            for line in lines {
                println!("  {line}");
            }
        }
    }
    Ok(true)
}

fn base_counts(revision: &str) -> anyhow::Result<Counts> {
    let scratch = Scratch::new("counts")?;
    let mut extract = bash(
        "set -o pipefail; git archive \"$REVISION\" $(git ls-tree --name-only \"$REVISION\" crates xtask) | tar --extract --directory \"$FOLDER\"",
    );
    let ended = capture_all(extract.env("REVISION", revision).env("FOLDER", scratch.path()))?;
    ensure!(ended.success(), "{revision} cannot be read: {}", ended.text.trim());
    Counts::of(scratch.path())
}

/// Names that say neither subject nor unit.
const VAGUE_CONSTANTS: [&str; 8] =
    ["PATIENCE", "LOOK", "MANY", "LONGEST", "PAUSE", "WITHIN", "SOON", "OFTEN"];
const VAGUE_PEOPLE: [&str; 4] = ["whoever", "nobody", "somebody", "someone"];

/// Where stores may be named: their own crates, the crate that lists them, the kits for their writes, and the plane's list.
const STORE_PLACES: [&str; 10] = [
    "crates/core/src/memory/",
    "crates/http/",
    "crates/sqlite/",
    "crates/redis/",
    "crates/postgres/",
    "crates/etcd/",
    "crates/leasehold/",
    "crates/fence/",
    "crates/plane/src/store/",
    "crates/plane/src/backends.rs",
];

#[derive(Debug, Default)]
struct Counts {
    files: u64,
    lines: u64,
    code_lines: u64,
    why_lines: u64,
    /// Doc comments of at most two words.
    short_docs: Vec<String>,
    /// Comment lines with a vague person.
    people: Vec<String>,
    /// Files that name a store outside of its place.
    store_files: Vec<String>,
    /// Files with a loop around the machine of an acquire.
    acquire_loops: Vec<String>,
    /// Crates that contain a simulator.
    simulators: BTreeSet<String>,
    /// By crate and type: the files that define it.
    types: BTreeMap<(String, String), BTreeSet<String>>,
    type_definitions: BTreeMap<(String, String), u64>,
    constants: Vec<String>,
}

impl Counts {
    fn of(root: &Path) -> anyhow::Result<Self> {
        let mut counts = Self::default();
        let mut files = Vec::new();
        rust_files(&root.join("crates"), &mut files)?;
        files.sort_unstable();
        for path in files {
            let name = path.strip_prefix(root)?.display().to_string();
            let text = std::fs::read_to_string(&path).with_context(|| name.clone())?;
            let mut parts = name.split('/').skip(1);
            let (Some(package), Some(folder)) = (parts.next(), parts.next()) else {
                continue;
            };
            counts.add_words(&name, &text);
            if contains_simulator(&name, &text) {
                counts.simulators.insert(package.to_owned());
            }
            if folder == "src" {
                counts.add_source(&name, package, &text);
            }
        }
        // Of the proof's own program only the names of types are counted: it is no part of the product.
        let mut own = Vec::new();
        if root.join("xtask").is_dir() {
            rust_files(&root.join("xtask/src"), &mut own)?;
        }
        for path in own {
            let name = path.strip_prefix(root)?.display().to_string();
            let text = std::fs::read_to_string(&path).with_context(|| name.clone())?;
            counts.add_types(&name, "xtask", &text);
        }
        Ok(counts)
    }

    /// What is counted in tests too: people in comments, and constants.
    fn add_words(&mut self, name: &str, text: &str) {
        for (at, line) in text.lines().enumerate() {
            let trimmed = line.trim_start();
            let place = || format!("{name}:{}: {trimmed}", at + 1);
            if let Some(constant) = constant_name(trimmed)
                && VAGUE_CONSTANTS.contains(&constant)
            {
                self.constants.push(place());
            }
        }
    }

    fn add_source(&mut self, name: &str, package: &str, text: &str) {
        self.files += 1;
        let mut doc = DocBlock::default();
        for (at, line) in text.lines().enumerate() {
            let trimmed = line.trim();
            let place = || format!("{name}:{}: {trimmed}", at + 1);
            self.lines += 1;
            self.code_lines += u64::from(!trimmed.is_empty() && !trimmed.starts_with("//"));
            self.why_lines += u64::from(is_why_comment(trimmed));
            if trimmed.starts_with("//") && has_word(trimmed, &VAGUE_PEOPLE) {
                self.people.push(place());
            }
            if let Some(short) = doc.add(trimmed, at + 1) {
                self.short_docs.push(format!("{name}:{short}"));
            }
        }
        self.add_types(name, package, text);
        if let Some(short) = doc.add("", text.lines().count()) {
            self.short_docs.push(format!("{name}:{short}"));
        }
        if runs_acquire_machine(text) {
            self.acquire_loops.push(name.to_owned());
        }
        let names = names_store(text) || !name.ends_with("/tests.rs") && writes_store_scheme(text);
        if names && !STORE_PLACES.iter().any(|place| name.starts_with(place)) {
            self.store_files.push(name.to_owned());
        }
    }

    fn add_types(&mut self, name: &str, package: &str, text: &str) {
        for (at, line) in text.lines().enumerate() {
            if let Some(defined) = type_name(line) {
                let key = (package.to_owned(), defined.to_owned());
                *self.type_definitions.entry(key.clone()).or_default() += 1;
                self.types.entry(key).or_default().insert(format!("{name}:{}", at + 1));
            }
        }
    }

    fn doubled_types(&self) -> Vec<String> {
        let doubled = self.types.iter().filter(|(_, places)| places.len() > 1);
        doubled.map(|((package, name), places)| format!("{package}: {name} ×{}", places.len())).collect()
    }

    fn rows(&self) -> [(&'static str, String); 11] {
        let share = self.why_lines as f64 * 100.0 / self.lines.max(1) as f64;
        [
            ("source files (crates/*/src)", grouped(self.files)),
            ("lines of code, neither blank nor comment", grouped(self.code_lines)),
            ("plain comments, % of all lines", format!("{share:.1}")),
            ("doc comments of at most two words", grouped(self.short_docs.len() as u64)),
            ("comment lines with whoever, nobody, somebody or someone", grouped(self.people.len() as u64)),
            ("files that name a store outside of its own place", grouped(self.store_files.len() as u64)),
            (
                "acquire loops: files that loop around AcquireMachine, expected 1",
                grouped(self.acquire_loops.len() as u64),
            ),
            ("simulators: crates that contain one, expected 1", grouped(self.simulators.len() as u64)),
            (
                "type names defined twice in a crate, xtask included",
                grouped(self.doubled_types().len() as u64),
            ),
            (
                "definitions of such types",
                grouped(self.type_definitions.values().filter(|count| **count > 1).sum()),
            ),
            (
                "constants named PATIENCE, LOOK, MANY and the like, tests included",
                grouped(self.constants.len() as u64),
            ),
        ]
    }

    fn lists(&self) -> [(&'static str, Vec<String>); 7] {
        [
            ("doc comments of at most two words", self.short_docs.clone()),
            ("comment lines with whoever, nobody, somebody or someone", self.people.clone()),
            ("files that name a store outside of its own place", self.store_files.clone()),
            ("files that loop around AcquireMachine", self.acquire_loops.clone()),
            ("crates that contain a simulator", self.simulators.iter().cloned().collect()),
            ("type names defined twice in a crate", self.doubled_types()),
            ("constants named PATIENCE, LOOK, MANY and the like", self.constants.clone()),
        ]
    }
}

/// The doc comment that is being read.
#[derive(Debug, Default)]
struct DocBlock {
    words: usize,
    started: usize,
    text: String,
}

impl DocBlock {
    /// Takes the next line; returns the block before it if it has ended and was short.
    fn add(&mut self, line: &str, number: usize) -> Option<String> {
        if let Some(doc) = line.strip_prefix("///").or_else(|| line.strip_prefix("//!")) {
            if self.words == 0 {
                self.started = number;
                self.text = line.to_owned();
            }
            self.words += doc.split_whitespace().count();
            return None;
        }
        let block = std::mem::take(self);
        (1..=2).contains(&block.words).then(|| format!("{}: {}", block.started, block.text))
    }
}

/// A comment for readers of the code: neither documentation nor a directive.
fn is_why_comment(line: &str) -> bool {
    let Some(comment) = line.strip_prefix("//") else {
        return false;
    };
    let directive =
        ["clippy", "rustfmt", "allow(", "SPDX"].iter().any(|word| comment.trim_start().starts_with(word));
    !comment.starts_with('/') && !comment.starts_with('!') && !directive
}

fn has_word(line: &str, wanted: &[&str]) -> bool {
    line.split(|at: char| !at.is_alphanumeric())
        .any(|word| wanted.iter().any(|wanted| word.eq_ignore_ascii_case(wanted)))
}

/// The line without its visibility.
fn without_visibility(line: &str) -> &str {
    let Some(rest) = line.strip_prefix("pub") else {
        return line;
    };
    let rest = if rest.starts_with('(') { rest.split_once(')').map_or(rest, |(_, rest)| rest) } else { rest };
    rest.trim_start()
}

fn constant_name(line: &str) -> Option<&str> {
    let line = without_visibility(line);
    let rest = line.strip_prefix("const ").or_else(|| line.strip_prefix("static "))?;
    rest.split_once(':').map(|(name, _)| name.trim())
}

fn type_name(line: &str) -> Option<&str> {
    // An associated type is not a type of the crate, and an indented alias is one of an `impl`.
    let in_impl = line.starts_with(' ') && line.trim_start().starts_with("type ");
    let line = without_visibility(line.trim_start());
    let kinds = ["struct ", "enum ", "trait ", "type ", "union "];
    let rest = kinds.iter().find_map(|kind| line.strip_prefix(kind))?;
    let name = rest.split(|at: char| at != '_' && !at.is_alphanumeric()).next()?;
    let associated = in_impl || line.starts_with("type ") && !line.contains('=');
    (name.starts_with(|first: char| first.is_ascii_uppercase()) && !associated).then_some(name)
}

fn rust_files(folder: &Path, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            rust_files(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Counts {
        let mut counts = Counts::default();
        counts.add_words("crates/cli/src/a.rs", text);
        counts.add_source("crates/cli/src/a.rs", "cli", text);
        counts
    }

    #[test]
    fn short_docs_are_counted_by_block() {
        let counts = of(
            "//! The file.\n\n/// Which.\na: u8,\n/// Long enough\n/// in two lines.\nb: u8,\n/// Why it ends.",
        );
        let places: Vec<_> = counts.short_docs.iter().map(|line| line.split(": ").next().unwrap()).collect();
        assert_eq!(places, ["crates/cli/src/a.rs:1", "crates/cli/src/a.rs:3"]);
    }

    #[test]
    fn kinds_of_comments_are_distinguished() {
        assert!(is_why_comment("// A race."));
        assert!(is_why_comment("//"));
        assert!(
            !["/// Doc.", "//! Doc.", "let a; // late", "// clippy: fine", "//clippy::all"]
                .into_iter()
                .any(is_why_comment)
        );
        let counts = of("// Nobody waits.\nlet someone = 1;\n\n/// For whoever asks.\n");
        assert_eq!((counts.people.len(), counts.why_lines, counts.code_lines, counts.lines), (2, 1, 1, 4));
    }

    #[test]
    fn files_that_name_a_store_are_counted_outside_of_its_place() {
        assert!(names_store("match kind { Kind::Sqlite => 1 }"));
        assert!(names_store("StoreUrl::Http(_)"));
        assert!(!names_store("leasehold_redis::Redis, Self::Redis, Sqlite::open(), Body::Http"));
        assert_eq!(of("Place::Redis").store_files, ["crates/cli/src/a.rs"]);
        assert_eq!(of("open(\"sqlite:a\")").store_files, ["crates/cli/src/a.rs"]);
        let mut counts = Counts::default();
        counts.add_source("crates/sqlite/src/a.rs", "sqlite", "Halt::Sqlite");
        assert_eq!(counts.store_files, [""; 0]);
    }

    #[test]
    fn types_and_constants_are_read_from_their_definitions() {
        assert_eq!(type_name("pub(crate) struct Line<'a> {"), Some("Line"));
        assert_eq!(type_name("type Alias = u8;"), Some("Alias"));
        assert_eq!(type_name("type Error;"), None);
        assert_eq!(type_name("    type Error = Infallible;"), None);
        assert_eq!(type_name("structure"), None);
        let counts = of(
            "struct Line;\nmod b { enum Line {} }\nenum Line {}\npub(super) const PATIENCE: u8 = 1;\nconst LOOKS: u8 = 1;\n",
        );
        assert_eq!(counts.doubled_types(), ["cli: Line ×2"]);
        assert_eq!(counts.constants.len(), 1);
    }

    #[test]
    fn xtask_counts_for_the_names_of_types_only() {
        let folder = Scratch::new("counts-test").unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("crates/cli/src/a.rs", "struct Args;\n");
        write("xtask/src/b.rs", "struct Args;\n");
        write("xtask/src/c/d.rs", "pub(crate) struct Args;\nstruct Bug;\n");
        let counts = Counts::of(folder.path()).unwrap();
        assert_eq!(counts.doubled_types(), ["xtask: Args ×2"]);
        assert_eq!((counts.files, counts.lines), (1, 1));
    }
}
