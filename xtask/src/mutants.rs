//! Mutates `leasehold-core` with cargo-mutants and checks that its tests catch each mutant.

use std::path::Path;

use anyhow::{Context, bail, ensure};

use crate::ledger::Ledger;
use crate::process::{self, Scratch, command, need};
use crate::sample::choice;
use crate::test_copy::{SHARED_FEATURES, TestCopy};

/// A mutant whose tests time out counts as caught. Works on a copy of the tree under target/.
#[derive(Debug, clap::Args)]
#[command(about = "Mutate leasehold-core with cargo-mutants and check that its tests catch each mutant")]
pub(crate) struct MutantsArgs {
    /// guards: deadlines, holds, acquire machine, breaker, gate, fence floors; slice: two files of them; all: the whole crate, takes hours;
    /// diff: what has changed
    #[arg(default_value = "guards")]
    part: String,
    /// With diff: since this revision; by default since the last diff or all on record that passed
    since: Option<String>,
    /// Try at most so many mutants, chosen by the commit's hash
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    sample: Option<u64>,
    /// Choose the sample by this commit's hash: tries a sample again after what survived in it has got tests
    #[arg(long, value_name = "COMMIT", requires = "sample")]
    chosen_by: Option<String>,
    /// List the mutants and try none
    #[arg(long)]
    list: bool,
}

const GUARDS: [&str; 11] = [
    "deadline",
    "life/mod",
    "life/lease",
    "life/policy",
    "life/renew",
    "life/release",
    "life/state",
    "acquire/machine",
    "breaker",
    "gate",
    "fence_floors",
];

/// What came of the mutants.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct MutantTotals {
    pub(crate) caught: u64,
    pub(crate) survived: u64,
    pub(crate) timed_out: u64,
}

impl MutantTotals {
    pub(crate) fn tried(&self) -> u64 {
        self.caught + self.survived + self.timed_out
    }

    pub(crate) fn line(&self) -> String {
        format!(
            "{} mutants: {} caught, {} survived, {} timed out",
            self.tried(),
            self.caught,
            self.survived,
            self.timed_out
        )
    }
}

pub(crate) fn main(args: &MutantsArgs) -> anyhow::Result<bool> {
    let count = args.sample.map(usize::try_from).transpose()?;
    let sample = count.map(|count| (count, args.chosen_by.as_deref().unwrap_or("HEAD")));
    if args.list {
        let scratch = Scratch::new("mutants-list")?;
        for name in Selection::new(&args.part, args.since.as_deref(), sample, &scratch)?.names {
            println!("{name}");
        }
        return Ok(true);
    }
    Ok(run(&args.part, args.since.as_deref(), sample, None)?.survived == 0)
}

/// Tries the mutants of a part, or a sample: at most so many of them, chosen by the hash of a commit. In the copy if there is one already.
pub(crate) fn run(
    part: &str,
    since: Option<&str>,
    sample: Option<(usize, &str)>,
    copy: Option<&TestCopy>,
) -> anyhow::Result<MutantTotals> {
    let scratch = Scratch::new("mutants-list")?;
    let selection = Selection::new(part, since, sample, &scratch)?;
    let outcome = match copy {
        _ if selection.names.is_empty() => MutantTotals::default(),
        Some(copy) => try_mutants(&selection, copy)?,
        None => try_mutants(&selection, &TestCopy::new("mutants")?)?,
    };
    println!("{}", outcome.line());
    Ok(outcome)
}

/// The mutants to try.
#[derive(Debug, Default)]
struct Selection {
    names: Vec<String>,
    /// Arguments of cargo-mutants that select them.
    arguments: Vec<String>,
}

impl Selection {
    /// All mutants of the part, or a sample. Files of the selection are put into `scratch`.
    fn new(
        part: &str,
        since: Option<&str>,
        sample: Option<(usize, &str)>,
        scratch: &Scratch,
    ) -> anyhow::Result<Self> {
        let Some(mut arguments) = part_arguments(part, since, scratch)? else {
            return Ok(Self::default());
        };
        need(&["cargo-mutants"])?;
        let names = list(&arguments)?;
        let Some((count, chosen_by)) = sample.filter(|(count, _)| *count < names.len()) else {
            return Ok(Self { names, arguments });
        };
        // A shard, and not `--re` with the names: cargo-mutants does not apply `--re` to every kind of mutant.
        let commit = process::git(&["rev-parse", chosen_by])?;
        let shards = names.len().div_ceil(count);
        let shard = format!("{}/{shards}", choice(&commit, shards as u64));
        arguments.extend(["--sharding", "round-robin", "--shard", &shard].map(str::to_owned));
        let chosen = list(&arguments)?;
        println!("{} of {} mutants: shard {shard}, chosen by {commit}", chosen.len(), names.len());
        ensure!((1..=count).contains(&chosen.len()), "the shard has {} mutants", chosen.len());
        Ok(Self { names: chosen, arguments })
    }
}

/// The names of the mutants that the arguments select.
fn list(arguments: &[String]) -> anyhow::Result<Vec<String>> {
    let mut list = command("cargo");
    list.args(["mutants", "--list", "--package", "leasehold-core", "--colors", "never"]);
    let ended = process::capture(list.args(arguments))?;
    ensure!(ended.success(), "cargo mutants --list failed with {}", ended.code);
    Ok(ended.text.lines().filter(|line| line.contains(": ")).map(str::to_owned).collect())
}

/// Arguments of cargo-mutants that select the part. None: nothing has changed.
fn part_arguments(part: &str, since: Option<&str>, scratch: &Scratch) -> anyhow::Result<Option<Vec<String>>> {
    ensure!(since.is_none() || part == "diff", "a revision goes with diff only");
    let file = |name: &str| ["--file".to_owned(), format!("crates/core/src/{name}.rs")];
    Ok(Some(match part {
        "guards" => GUARDS.into_iter().flat_map(file).collect(),
        "slice" => ["deadline", "life/release"].into_iter().flat_map(file).collect(),
        "all" => Vec::new(),
        "diff" => {
            let ledger = Ledger::read()?;
            let since = since
                .or(ledger.last_mutated_commit())
                .context("no run of mutants is on record: name a revision")?;
            println!("mutants of what has changed in crates/core/src since {since}");
            let patch = process::git(&["diff", since, "--", "crates/core/src"])?;
            if patch.is_empty() {
                return Ok(None);
            }
            let path = scratch.path().join("change.patch");
            std::fs::write(&path, patch + "\n")?;
            vec!["--in-diff".to_owned(), path.display().to_string()]
        }
        _ => bail!("no part is called {part}; there are guards, slice, all and diff"),
    }))
}

/// Tries exactly these mutants.
fn try_mutants(selection: &Selection, copy: &TestCopy) -> anyhow::Result<MutantTotals> {
    let output = process::target_dir()?;
    let results = output.join("mutants.out");
    if results.exists() {
        std::fs::remove_dir_all(&results).with_context(|| results.display().to_string())?;
    }
    // The core's own tests must catch them: they are fast and point at the right place. The simulator is another crate, and
    // every crate between it and core would be built again for each mutant.
    let mut mutants = copy.within(command("cargo"));
    mutants
        .env("NEXTEST_PROFILE", "mutants")
        .env("RUST_BACKTRACE", "0")
        .env("CARGO_INCREMENTAL", "1")
        .args([
            "mutants",
            "--in-place",
            "--package",
            "leasehold-core",
            "--test-tool",
            "nextest",
            "--timeout",
            "120",
        ])
        .args(["--no-shuffle", "--colors", "never", "--baseline", "skip", "--cargo-arg=--locked"])
        // Not optimised: a mutant is built once and tested for seconds.
        .arg("--cargo-arg=--config=profile.dev.package.leasehold-core.opt-level=0")
        .arg("--dir")
        .arg(copy.tree())
        .arg("--output")
        .arg(&output);
    mutants.args(&selection.arguments);
    mutants.arg("--").args(SHARED_FEATURES.split(' ')).args(["--lib", "--test", "behaviour"]);
    let status = mutants.status().context("cannot start cargo mutants")?;
    // 2: some survived; 3: some timed out. Anything else is not a run.
    ensure!(matches!(status.code(), Some(0 | 2 | 3)), "cargo mutants failed: {status}");
    let count = |file: &str| lines_of(&results.join(file)).map(|lines| lines.len() as u64);
    let outcome = MutantTotals {
        caught: count("caught.txt")?,
        survived: count("missed.txt")?,
        timed_out: count("timeout.txt")?,
    };
    for name in lines_of(&results.join("missed.txt"))? {
        println!("survived: {name}");
    }
    // Mutants that do not compile are no mutants, but each one has to be accounted for.
    let unviable = count("unviable.txt")?;
    ensure!(
        outcome.tried() + unviable == selection.names.len() as u64,
        "{} mutants were tried and {unviable} did not compile, of {}",
        outcome.tried(),
        selection.names.len()
    );
    Ok(outcome)
}

fn lines_of(path: &Path) -> anyhow::Result<Vec<String>> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    Ok(text.lines().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_summarized_in_one_line() {
        let outcome = MutantTotals { caught: 7, survived: 1, timed_out: 2 };
        assert_eq!(outcome.line(), "10 mutants: 7 caught, 1 survived, 2 timed out");
    }
}
