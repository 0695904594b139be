//! Fuzzes everything that parses what people, files, stores and networks send.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, bail, ensure};

use crate::process::{capture_all, command, need, run as run_command};

/// Fuzz every target, or those that are named
///
/// Inputs that reach new code are kept in fuzz/corpus, where the next run begins; fuzz/seeds is what a fresh copy begins with.
#[derive(Debug, clap::Args)]
pub(crate) struct FuzzArgs {
    /// How long, for each target
    #[arg(default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// The targets; all if none is named
    targets: Vec<String>,
    /// Build all targets and run none
    #[arg(long)]
    build: bool,
    /// Repeats a run's random numbers on the same corpus
    #[arg(long, env = "LEASEHOLD_FUZZ_SEED", default_value_t = 0)]
    seed: u64,
    /// Targets at a time
    #[arg(long, default_value_t = 1)]
    jobs: usize,
}

pub(crate) fn main(args: &FuzzArgs) -> anyhow::Result<bool> {
    if args.build {
        build()?;
        return Ok(true);
    }
    Ok(run_jobs(args.seconds, &args.targets, args.seed, args.jobs)?
        .iter()
        .all(|result| result.failure.is_none()))
}

/// What came of one target.
#[derive(Debug)]
pub(crate) struct FuzzResult {
    pub(crate) target: String,
    pub(crate) executions: u64,
    /// How to repeat it, if an input failed.
    pub(crate) failure: Option<String>,
}

/// One target after the other.
pub(crate) fn run(seconds: u64, targets: &[String], seed: u64) -> anyhow::Result<Vec<FuzzResult>> {
    run_jobs(seconds, targets, seed, 1)
}

/// So many targets at a time.
fn run_jobs(seconds: u64, targets: &[String], seed: u64, jobs: usize) -> anyhow::Result<Vec<FuzzResult>> {
    let manifest = std::fs::read_to_string("fuzz/Cargo.toml").context("fuzz/Cargo.toml")?;
    let all = target_names(&manifest);
    for target in targets {
        ensure!(all.contains(target), "there is no fuzz target {target}; there are: {}", all.join(", "));
    }
    let targets = if targets.is_empty() { &all } else { targets };
    let programs = build()?;
    println!("{:<16} {:>12} {:>9} {:>7}  result", "target", "executions", "per-second", "edges");
    let (next, results) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                while let Some(target) = targets.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let result = fuzz_target(&programs, target, seconds, seed);
                    results.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(result);
                }
            });
        }
    });
    let results = results.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    results.into_iter().collect()
}

/// Builds every target and returns the folder of the programs.
///
/// Without a sanitizer: `unsafe` is forbidden in every crate here, so a sanitizer could find nothing in our code. Without it the pinned
/// stable compiler suffices and a run is twice as fast. Without `cfg(fuzzing)`, so that the fuzzed code is the shipped code.
fn build() -> anyhow::Result<PathBuf> {
    need(&["cargo-fuzz"])?;
    let version = capture_all(command("rustc").arg("-vV"))?;
    let host = version
        .text
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .context("rustc -vV names no host")?
        .to_owned();
    let mut build = command("cargo");
    build.args(["fuzz", "build", "--sanitizer", "none", "--no-cfg-fuzzing", "--target", &host]);
    // The programs' place must not depend on the caller's CARGO_TARGET_DIR.
    run_command(build.current_dir("fuzz").env_remove("CARGO_TARGET_DIR"))?;
    Ok(PathBuf::from("fuzz/target").join(host).join("release"))
}

fn fuzz_target(
    programs: &std::path::Path,
    target: &str,
    seconds: u64,
    seed: u64,
) -> anyhow::Result<FuzzResult> {
    let [corpus, artifacts, seeds] =
        ["corpus", "artifacts", "seeds"].map(|folder| format!("fuzz/{folder}/{target}"));
    for folder in [&corpus, &artifacts, &seeds] {
        std::fs::create_dir_all(folder).with_context(|| folder.clone())?;
    }
    let program = programs.join(target);
    let mut fuzzer = command(&program);
    fuzzer.args([&corpus, &seeds]).args([
        format!("-max_total_time={seconds}"),
        format!("-seed={seed}"),
        // Inputs are short texts: 4 kB hold several of anything, and longer inputs only slow each execution down.
        "-max_len=4096".to_owned(),
        "-timeout=20".to_owned(),
        "-rss_limit_mb=2048".to_owned(),
        "-print_final_stats=1".to_owned(),
        format!("-artifact_prefix={artifacts}/"),
    ]);
    let ended = capture_all(&mut fuzzer)?;
    let stats = FinalStats::parse(&ended.text);
    if ended.success() && stats.executions == 0 {
        bail!("{target} ended without an execution:\n{}", ended.tail(20));
    }
    let word = if ended.success() { "ok" } else { "FOUND" };
    println!("{target:<16} {:>12} {:>9} {:>7}  {word}", stats.executions, stats.per_second, stats.edges);
    let failure = (!ended.success()).then(|| {
        eprintln!("{}", ended.tail(30));
        let again = format!("{} {}", program.display(), stats.input.unwrap_or("(no input was written)"));
        eprintln!("repeat with: {again}");
        again
    });
    Ok(FuzzResult { target: target.to_owned(), executions: stats.executions, failure })
}

/// The names of the targets in the manifest, in its order.
fn target_names(manifest: &str) -> Vec<String> {
    let bins = manifest.split("[[bin]]").skip(1);
    let name = |bin: &str| {
        bin.lines().find_map(|line| Some(line.strip_prefix("name = \"")?.strip_suffix('"')?.to_owned()))
    };
    bins.filter_map(name).collect()
}

/// What libFuzzer prints at its end.
#[derive(Debug, Default, PartialEq)]
struct FinalStats<'a> {
    executions: u64,
    per_second: u64,
    edges: u64,
    /// The file with the input that failed.
    input: Option<&'a str>,
}

impl<'a> FinalStats<'a> {
    fn parse(text: &'a str) -> Self {
        let mut stats = Self::default();
        for line in text.lines() {
            let number = |prefix: &str| line.strip_prefix(prefix).and_then(|rest| rest.trim().parse().ok());
            if let Some(value) = number("stat::number_of_executed_units:") {
                stats.executions = value;
            } else if let Some(value) = number("stat::average_exec_per_sec:") {
                stats.per_second = value;
            } else if let Some((_, rest)) = line.split_once(" cov: ") {
                stats.edges =
                    rest.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(stats.edges);
            } else if let Some((_, path)) = line.split_once("Test unit written to ") {
                stats.input = Some(path);
            }
        }
        stats
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_read_from_the_manifest() {
        let manifest = "[package]\nname = \"leasehold-fuzz\"\n[[bin]]\nname = \"rule\"\npath = \"a.rs\"\n[[bin]]\nname = \"words\"\n";
        assert_eq!(target_names(manifest), ["rule", "words"]);
    }

    #[test]
    fn final_stats_are_read() {
        let text = "#9\tNEW    cov: 10 ft: 3\n#11\tDONE   cov: 12 ft: 4\nstat::number_of_executed_units: 2022\n\
                    stat::average_exec_per_sec:     67\nartifact_prefix='x'; Test unit written to fuzz/artifacts/rule/crash-1\n";
        let input = Some("fuzz/artifacts/rule/crash-1");
        assert_eq!(
            FinalStats::parse(text),
            FinalStats { executions: 2022, per_second: 67, edges: 12, input }
        );
    }
}
