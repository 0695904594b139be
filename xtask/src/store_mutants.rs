//! Mutates the scripts that run inside Redis and the statements that run inside SQLite.
//!
//! cargo-mutants knows Rust only; these mutants are made by universalmutator, by the rules in `proof/mutants`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail, ensure};

use crate::mutants::MutantTotals;
use crate::process::{self, Scratch, capture_all, command};
use crate::test_copy::{SHARED_FEATURES, TestCopy};

/// Mutants that no test can tell from the original are listed, with the reason, in proof/mutants/same.tsv. Works on a copy of the tree under
/// target/ and installs universalmutator into a folder of its own.
#[derive(Debug, clap::Args)]
#[command(
    about = "Mutate the Lua scripts of Redis and the SQL statements of SQLite and check that the store's tests catch each mutant"
)]
pub(crate) struct StoreMutantsArgs {
    /// redis or sqlite; both if none is named
    store: Option<String>,
    /// Only these mutants of the store, by number
    numbers: Vec<usize>,
    /// List the mutants and try none
    #[arg(long)]
    list: bool,
}

/// How a store is mutated and tested.
#[derive(Debug)]
struct Plan {
    store: &'static str,
    rules: &'static str,
    /// Only the store's own tests, so that nothing that depends on the store is built for each mutant.
    tests: &'static str,
}

const PLANS: [Plan; 2] = [
    Plan { store: "redis", rules: "proof/mutants/lua.rules", tests: "--lib --test conformance --test store" },
    Plan {
        store: "sqlite",
        rules: "proof/mutants/sql.rules",
        tests: "--lib --test conformance --test store",
    },
];

/// How long the tests of one mutant may take.
const TEST_TIMEOUT: Duration = Duration::from_secs(300);

pub(crate) fn main(args: &StoreMutantsArgs) -> anyhow::Result<bool> {
    let plans: Vec<&Plan> = match &args.store {
        Some(store) => vec![plan(store)?],
        None => PLANS.iter().collect(),
    };
    let scratch = Scratch::new("store-mutants-made")?;
    let mut outcome = MutantTotals::default();
    for plan in plans {
        let mutants = plan.mutants(scratch.path())?;
        if args.list {
            for mutant in mutants {
                println!("{} {} {} {}", plan.store, mutant.number, mutant.file, mutant.change);
            }
            continue;
        }
        plan.try_all(&mutants, &args.numbers, &mut outcome)?;
    }
    if !args.list {
        println!("{}", outcome.line());
    }
    Ok(outcome.survived == 0)
}

/// Every mutant of a store.
pub(crate) fn run_store(store: &str) -> anyhow::Result<MutantTotals> {
    let scratch = Scratch::new("store-mutants-made")?;
    let (plan, mut outcome) = (plan(store)?, MutantTotals::default());
    plan.try_all(&plan.mutants(scratch.path())?, &[], &mut outcome)?;
    println!("{}", outcome.line());
    Ok(outcome)
}

fn plan(store: &str) -> anyhow::Result<&'static Plan> {
    PLANS
        .iter()
        .find(|plan| plan.store == store)
        .with_context(|| format!("no mutants are made of {store}: redis or sqlite"))
}

/// A changed file.
#[derive(Debug)]
struct Mutant {
    number: usize,
    /// The file of the tree.
    file: String,
    /// The file with the change.
    changed: PathBuf,
    change: Change,
}

impl Plan {
    fn files(&self) -> anyhow::Result<Vec<String>> {
        let pattern = match self.store {
            "redis" => "crates/redis/src/script/*.lua",
            _ => "crates/sqlite/src/*.rs",
        };
        let files = process::git(&["ls-files", pattern])?;
        // These two only describe and create the tables.
        let kept = |file: &&str| !file.ends_with("/examine.rs") && !file.ends_with("/schema.rs");
        Ok(files.lines().filter(kept).map(str::to_owned).collect())
    }

    /// Every mutant, in an order that does not change.
    fn mutants(&self, folder: &Path) -> anyhow::Result<Vec<Mutant>> {
        let mutate = mutator()?;
        let mut mutants = Vec::new();
        for file in self.files()? {
            let made = folder.join(self.store).join(file.replace('/', "_"));
            std::fs::create_dir_all(&made)?;
            let mut make = command(&mutate);
            make.args([
                &*file,
                "--only",
                self.rules,
                "--mutateInStrings",
                "--noCheck",
                "--noFastCheck",
                "--mutantDir",
            ])
            .arg(&made);
            let ended = capture_all(&mut make)?;
            ensure!(ended.success(), "no mutants of {file} could be made:\n{}", ended.tail(20));
            let original = std::fs::read_to_string(&file)?;
            let mut paths: Vec<_> =
                std::fs::read_dir(&made)?.map(|entry| Ok(entry?.path())).collect::<anyhow::Result<_>>()?;
            paths.sort_by_cached_key(|path| mutant_number(path));
            for changed in paths {
                let change = Change::between(&original, &std::fs::read_to_string(&changed)?);
                let Some(change) = change else { bail!("{} changes nothing", changed.display()) };
                mutants.push(Mutant { number: mutants.len() + 1, file: file.clone(), changed, change });
            }
        }
        Ok(mutants)
    }

    fn try_all(
        &self,
        mutants: &[Mutant],
        numbers: &[usize],
        outcome: &mut MutantTotals,
    ) -> anyhow::Result<()> {
        let equivalent =
            std::fs::read_to_string("proof/mutants/same.tsv").context("proof/mutants/same.tsv")?;
        let copy = TestCopy::new("store-mutants")?;
        let ended = self.test(&copy)?;
        ensure!(ended.success(), "the tests of {} fail without any change:\n{}", self.store, ended.tail(30));
        for mutant in mutants {
            let wanted = numbers.is_empty() || numbers.contains(&mutant.number);
            if !wanted || is_equivalent(&equivalent, self.store, &mutant.file, &mutant.change) {
                continue;
            }
            let place = copy.tree().join(&mutant.file);
            std::fs::copy(&mutant.changed, &place)?;
            let ended = self.test(&copy)?;
            std::fs::copy(&mutant.file, &place)?;
            let word = match ended.code {
                0 => {
                    outcome.survived += 1;
                    "SURVIVED"
                }
                100 => {
                    outcome.caught += 1;
                    "caught"
                }
                124 | 137 => {
                    outcome.timed_out += 1;
                    "timed out"
                }
                code => bail!(
                    "{} {} could not be tried (exit {code}):\n{}",
                    self.store,
                    mutant.number,
                    ended.tail(30)
                ),
            };
            println!("{word} {} {} {} {}", self.store, mutant.number, mutant.file, mutant.change);
        }
        Ok(())
    }

    fn test(&self, copy: &TestCopy) -> anyhow::Result<process::CommandResult> {
        let package = format!("leasehold-{}", self.store);
        let mut test = copy.within(command("timeout"));
        test.env("NEXTEST_PROFILE", "mutants")
            .env("CARGO_INCREMENTAL", "1")
            .args(["-k", "15", &TEST_TIMEOUT.as_secs().to_string(), "cargo", "nextest", "run", "--locked"])
            .args(SHARED_FEATURES.split(' '))
            .args(["-p", &package])
            .args(self.tests.split(' '))
            .args(["-E", &format!("package({package})")]);
        capture_all(&mut test)
    }
}

/// The number that universalmutator gives a file: `acquire.mutant.12.lua`.
fn mutant_number(path: &Path) -> u64 {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.split('.').find_map(|part| part.parse().ok()).unwrap_or(0)
}

/// The program `mutate`, installed if it is missing.
fn mutator() -> anyhow::Result<PathBuf> {
    let folder = process::target_dir()?.join("universalmutator");
    let program = folder.join("bin/mutate");
    if !program.exists() {
        process::run(command("python3").args(["-m", "venv"]).arg(&folder))
            .context("universalmutator cannot be installed")?;
        process::run(command(folder.join("bin/pip")).args([
            "install",
            "--quiet",
            "universalmutator>=1.14,<2",
        ]))?;
    }
    Ok(program)
}

/// The line that a mutant changes.
#[derive(Debug, PartialEq, Eq)]
struct Change {
    line: usize,
    from: String,
    to: String,
}

impl Change {
    /// The first line that differs: a mutant changes one.
    fn between(original: &str, changed: &str) -> Option<Self> {
        let pairs = original.lines().zip(changed.lines()).enumerate();
        let (at, (from, to)) = pairs.into_iter().find(|(_, (from, to))| from != to)?;
        Some(Self { line: at + 1, from: from.trim_start().to_owned(), to: to.trim_start().to_owned() })
    }

    /// Without the number of the line, which moves with every edit above it.
    fn text(&self) -> String {
        format!("{} | {}", self.from, self.to)
    }
}

impl std::fmt::Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}: | {}", self.line, self.text())
    }
}

/// Whether the change is listed as one that no test can notice: store, file, change, reason, with tabs between them.
fn is_equivalent(list: &str, store: &str, file: &str, change: &Change) -> bool {
    let wanted = [store, file, &change.text()];
    list.lines().any(|line| line.split('\t').take(3).eq(wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_known_by_its_text_and_not_by_its_line() {
        let change = Change::between("a\n  x == 1\nb\n", "a\n  x ~= 1\nb\n").unwrap();
        assert_eq!(change.to_string(), "line 2: | x == 1 | x ~= 1");
        assert_eq!(Change::between("a\n", "a\n"), None);
        let list = "# comment\nredis\tacquire.lua\tx == 1 | x ~= 1\tthe reason\n";
        assert!(is_equivalent(list, "redis", "acquire.lua", &change));
        assert!(!is_equivalent(list, "redis", "renew.lua", &change));
        assert!(!is_equivalent(list, "sqlite", "acquire.lua", &change));
    }

    #[test]
    fn mutants_are_ordered_by_their_number() {
        assert_eq!(mutant_number(Path::new("made/acquire.mutant.12.lua")), 12);
    }
}
