//! Puts known mistakes back into the code, one at a time, and checks that the tests catch them.

mod bug;
mod page;

use std::collections::HashSet;
use std::process::Command;

use anyhow::{Context, bail, ensure};

use self::bug::{Bug, BugLayer};
use crate::process::{self, CommandResult, capture_all};
use crate::sample::sample;
use crate::test_copy::{SHARED_FEATURES, TestCopy};

/// Each proof/bugs/NN-name.patch begins with the bug and with one `Layer: name | command` for each layer that must catch it. A bug is
/// caught if tests fail in every one of its layers; code that does not compile is not a catch. Without arguments: lists the bugs. Works on
/// a copy of the tree under target/.
#[derive(Debug, clap::Args)]
#[command(
    about = "Put known mistakes back into the code, one at a time, and check that the tests catch them"
)]
pub(crate) struct SeededBugsArgs {
    /// The bugs to try, by number
    numbers: Vec<String>,
    /// Try every bug
    #[arg(long)]
    all: bool,
    /// Try so many bugs, chosen by the commit's hash
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    sample: Option<u64>,
    /// Only check that every patch still applies
    #[arg(long)]
    check: bool,
    /// Do not run the tests without the bug first; for callers that have just seen all tests pass
    #[arg(long)]
    skip_baseline: bool,
    /// With --all: write docs/proof/seeded-bugs.md
    #[arg(long, requires = "all")]
    write: bool,
}

/// How many bugs were tried and caught.
#[derive(Debug)]
pub(crate) struct BugTotals {
    pub(crate) tried: u64,
    /// Caught by every layer that is named for them.
    pub(crate) caught: u64,
    /// Layers that caught their bug, over all bugs.
    pub(crate) catches: u64,
}

pub(crate) fn main(args: &SeededBugsArgs) -> anyhow::Result<bool> {
    let bugs = bug::read_all()?;
    if args.check {
        return check(&bugs);
    }
    let chosen: Vec<&Bug> = if args.all {
        bugs.iter().collect()
    } else if let Some(count) = args.sample {
        sampled(&bugs, usize::try_from(count)?)?
    } else if args.numbers.is_empty() {
        for bug in &bugs {
            println!("{} {}", bug.number, bug.title);
        }
        return Ok(true);
    } else {
        let by_number = |number: &String| {
            bugs.iter()
                .find(|bug| bug.number == *number)
                .with_context(|| format!("no bug has the number {number}"))
        };
        args.numbers.iter().map(by_number).collect::<Result<_, _>>()?
    };
    let copy = TestCopy::new("seeded-bugs")?;
    let outcome = run(&copy, &chosen, args.skip_baseline, args.write)?;
    Ok(outcome.caught == outcome.tried)
}

/// Every bug, and docs/proof/seeded-bugs.md.
pub(crate) fn run_all_and_write() -> anyhow::Result<BugTotals> {
    run(&TestCopy::new("seeded-bugs")?, &bug::read_all()?.iter().collect::<Vec<_>>(), false, true)
}

/// So many bugs, chosen by the commit's hash; true if all are caught. The tests must have been seen to pass without them. At the end, the copy
/// is as it was.
pub(crate) fn run_sample(copy: &TestCopy, count: usize) -> anyhow::Result<bool> {
    let bugs = bug::read_all()?;
    let chosen = sampled(&bugs, count)?;
    let outcome = run(copy, &chosen, true, false)?;
    Ok(outcome.caught == outcome.tried && outcome.tried == chosen.len() as u64)
}

fn sampled(bugs: &[Bug], count: usize) -> anyhow::Result<Vec<&Bug>> {
    let commit = process::git(&["rev-parse", "HEAD"])?;
    let numbers: Vec<_> = bugs.iter().map(|bug| bug.number.clone()).collect();
    let chosen = sample(&numbers, count, &commit);
    println!(
        "chosen by {commit}; repeat with: scripts/seeded-bugs {}",
        chosen.iter().map(|at| at.as_str()).collect::<Vec<_>>().join(" ")
    );
    Ok(bugs.iter().filter(|bug| chosen.contains(&&bug.number)).collect())
}

fn check(bugs: &[Bug]) -> anyhow::Result<bool> {
    let mut applies = true;
    for bug in bugs {
        let ended = capture_all(
            process::command("git").args(["apply", "--check", "--whitespace=nowarn"]).arg(&bug.path),
        )?;
        if !ended.success() {
            eprintln!(
                "{} no longer applies: put its mistake into the code as it is now\n{}",
                bug.path.display(),
                ended.text.trim_end()
            );
            applies = false;
        }
    }
    Ok(applies)
}

/// What one layer said to one bug.
#[derive(Debug)]
struct Row<'a> {
    bug: &'a Bug,
    layer: &'a BugLayer,
    /// The tests that failed; none if the layer did not catch the bug.
    failed: Vec<String>,
}

fn run(copy: &TestCopy, bugs: &[&Bug], skip_baseline: bool, write: bool) -> anyhow::Result<BugTotals> {
    let mut outcome = BugTotals { tried: 0, caught: 0, catches: 0 };
    let mut rows = Vec::new();
    let mut seen_to_pass = HashSet::new();
    let mut bugs = bugs.to_vec();
    // While core stays unchanged, a bug in another crate costs no build of core and of all that uses it.
    bugs.sort_by_key(|bug| bug.build_rank());
    for bug in bugs {
        println!("{} {}", bug.number, bug.title);
        outcome.tried += 1;
        if !skip_baseline {
            for layer in &bug.layers {
                if seen_to_pass.insert(&layer.command) {
                    check_baseline(copy, layer)?;
                }
            }
        }
        apply(copy, bug, &[])?;
        let tried = try_bug(copy, bug, write);
        // Before an error goes up, because the copy may be used again.
        apply(copy, bug, &["--reverse"])?;
        let tried = tried?;
        let catches = tried.iter().filter(|row| !row.failed.is_empty()).count();
        outcome.caught += u64::from(catches == tried.len());
        outcome.catches += catches as u64;
        rows.extend(tried);
    }
    println!("{} of {} caught by every layer named for them", outcome.caught, outcome.tried);
    if write {
        rows.sort_by_key(|row| &row.bug.number);
        page::write(&rows, &outcome)?;
    }
    Ok(outcome)
}

/// What the layers say to a bug that is in place.
fn try_bug<'a>(copy: &TestCopy, bug: &'a Bug, every_failure: bool) -> anyhow::Result<Vec<Row<'a>>> {
    build_tests(copy, bug)?;
    let row = |layer| Ok(Row { bug, layer, failed: try_layer(copy, layer, every_failure)? });
    bug.layers.iter().map(row).collect()
}

/// Builds the tests of all layers at once, so that both cores have work: layer by layer, one core would wait for the other's linker. The exit
/// code says nothing, because tests that do not compile fail again in their layer.
fn build_tests(copy: &TestCopy, bug: &Bug) -> anyhow::Result<()> {
    let commands: Vec<_> = bug.layers.iter().map(|layer| &*layer.command).collect();
    if let Some(targets) = targets_of_all(&commands) {
        let line = format!("cargo nextest run {SHARED_FEATURES} {targets} --no-run");
        capture_all(&mut nextest(copy, &line))?;
    }
    Ok(())
}

/// The arguments that name the packages and tests of several commands. None if there is nothing to build at once.
fn targets_of_all(commands: &[&str]) -> Option<String> {
    let targets = commands.iter().filter_map(|command| {
        let (_, arguments) = command.split_once("cargo nextest run ")?;
        Some(arguments.split_once(" -E ").map_or(arguments, |(targets, _)| targets).trim())
    });
    let mut targets: Vec<_> = targets.collect();
    targets.sort_unstable();
    targets.dedup();
    // `--lib` is for all packages that are named: beside another package it would build tests that no layer asks for.
    let package = |line: &str| line.split("--").next().unwrap_or_default().to_owned();
    if targets.iter().any(|one| package(one) != package(targets[0])) {
        targets.retain(|one| !one.contains("--lib"));
    }
    (targets.len() > 1).then(|| targets.join(" "))
}

/// A test that fails without the bug would prove nothing.
fn check_baseline(copy: &TestCopy, layer: &BugLayer) -> anyhow::Result<()> {
    // A second try, because tests of real servers may fail once on a machine that is busy.
    let mut ended = run_layer(copy, layer, "")?;
    if !ended.success() {
        ended = run_layer(copy, layer, "")?;
    }
    ensure!(
        ended.success(),
        "these tests fail without any bug, so that a failure would prove nothing: {}\n{}",
        layer.command,
        ended.tail(20)
    );
    println!("  passes without it  {}", layer.command);
    Ok(())
}

/// The tests that fail with the bug in place: every one, or those until nextest stops after the first.
fn try_layer(copy: &TestCopy, layer: &BugLayer, every_failure: bool) -> anyhow::Result<Vec<String>> {
    let flags = if every_failure { "" } else { "--fail-fast" };
    let mut ended = run_layer(copy, layer, flags)?;
    // Layers that draw random inputs may need a second draw.
    if ended.success() {
        ended = run_layer(copy, layer, flags)?;
    }
    let failed = failed_tests(&ended.text);
    // nextest exits with 100 if tests failed, and with 101 if they did not compile.
    if ended.code == 100 && !failed.is_empty() {
        println!("  caught      {}: {}", layer.name, page::some(3, &failed));
        return Ok(failed);
    }
    println!("  NOT CAUGHT  {} (exit {}): {}", layer.name, ended.code, layer.command);
    if !ended.success() {
        println!("{}", ended.tail(20));
    }
    Ok(Vec::new())
}

fn run_layer(copy: &TestCopy, layer: &BugLayer, flags: &str) -> anyhow::Result<CommandResult> {
    let start = format!("cargo nextest run {SHARED_FEATURES} {flags}");
    let line = layer.command.replacen("cargo nextest run", &start, 1);
    capture_all(&mut nextest(copy, &line))
}

/// Incremental, although CI's own build is not: a bug changes a few lines, and core and the crates that use it are built again for most bugs.
fn nextest(copy: &TestCopy, line: &str) -> Command {
    let mut nextest = copy.within(process::bash(line));
    nextest.env("CARGO_INCREMENTAL", "1");
    nextest
}

fn apply(copy: &TestCopy, bug: &Bug, flags: &[&str]) -> anyhow::Result<()> {
    let mut git = copy.within(process::command("git"));
    git.args(["apply", "--whitespace=nowarn"]).args(flags).arg(std::path::absolute(&bug.path)?);
    let ended = capture_all(&mut git)?;
    if !ended.success() {
        bail!(
            "{} no longer applies: put its mistake into the code as it is now\n{}",
            bug.path.display(),
            ended.text.trim_end()
        );
    }
    Ok(())
}

/// The names of the tests that nextest reports as failed, sorted, each once.
pub(crate) fn failed_tests(text: &str) -> Vec<String> {
    let name = |line: &str| {
        let mut words = line.strip_prefix(' ')?.split_whitespace();
        let status = words.next()?;
        let failed = matches!(status, "FAIL" | "TIMEOUT" | "ABORT") || status.starts_with("SIG");
        // `FAIL [   0.1s] (12/90) package::binary test`, where the parts in brackets may contain blanks.
        let rest = line.split_once(']')?.1.trim_start();
        let rest = if rest.starts_with('(') { rest.split_once(')')?.1.trim_start() } else { rest };
        let (_, test) = rest.split_once(' ')?;
        (failed && !test.contains(' ')).then(|| test.to_owned())
    };
    let mut names: Vec<_> = text.lines().filter_map(name).collect();
    names.sort_unstable();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tests_of_a_bug_are_built_at_once() {
        let at_once = |tests: &[&str]| {
            let commands: Vec<_> =
                tests.iter().map(|one| format!("A=1 cargo nextest run -p {one} -E 'test(x)'")).collect();
            targets_of_all(&commands.iter().map(|one| &**one).collect::<Vec<_>>())
        };
        let two = at_once(&["a --test one", "b --test two", "b --test two"]);
        assert_eq!(two.as_deref(), Some("-p a --test one -p b --test two"));
        assert_eq!(at_once(&["a --lib", "a --test one"]).as_deref(), Some("-p a --lib -p a --test one"));
        assert_eq!(at_once(&["a --lib", "b --test one"]), None);
        assert_eq!(at_once(&["a --test one"]), None);
    }

    #[test]
    fn failed_tests_are_read_from_the_report() {
        let text = "        PASS [   0.010s] ( 1/90) leasehold-core life::passes\n\
                    \u{20}       FAIL [   0.020s] ( 2/90) leasehold-core::sim run::the_promises_hold\n\
                    \u{20}    TIMEOUT [ 120.000s] leasehold-redis::store fences::grow\n\
                    \u{20}    SIGKILL [   0.100s] (90/90) leasehold-cli::command run::killed\n\
                    FAIL [ 0.1s] a b\n\
                    \u{20}       FAIL [   0.020s] ( 2/90) leasehold-core::sim run::the_promises_hold\n";
        assert_eq!(failed_tests(text), ["fences::grow", "run::killed", "run::the_promises_hold"]);
    }
}
