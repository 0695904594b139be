//! `proof ci`: what every change has to pass after `scripts/test`.
//!
//! The work is fixed: every step runs with a fixed count, none is skipped, and any failure fails the run. Where numbers are drawn, the
//! commit's hash draws them, so that a run can be repeated and the next commit tries others. Steps follow each other. Only the soak has
//! company, because it mostly waits.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use crate::process::{self, CommandResult, Scratch, capture_all, command, run, words};
use crate::sample::fault_seed;
use crate::test_copy::TestCopy;
use crate::{advisories, faults, mutants, public_api, seeded_bugs};

const FAULT_DRILLS: u64 = 300;
const FUZZ_TARGETS: [&str; 8] = [
    "fence_header",
    "history",
    "http_body",
    "policy_file",
    "redis_reply",
    "redis_url",
    "resp_framer",
    "words",
];
/// The workspace without the crates for development.
const PUBLISHED: &str = "--workspace --exclude leasehold-sim --exclude xtask --exclude shared-features";
const SEEDED_BUGS: usize = 10;
const MAX_MUTANTS: usize = 40;

pub(crate) fn main() -> anyhow::Result<bool> {
    let mut steps = Steps::default();
    process::need(&[
        "promtool:prometheus",
        "systemd-analyze:systemd",
        "curl:curl",
        "python3:python3",
        "openssl:openssl",
        "unshare:util-linux",
        "cargo-deny",
        "cargo-hack",
    ])?;
    let commit = process::git(&["rev-parse", "HEAD"])?;
    // Everything that follows uses this build, which scripts/test has made already.
    run(&mut words("cargo nextest run --workspace --all-features --locked --no-run"))?;
    let programs = process::target_dir()?.join("debug");
    let (leasehold, simulator) = (programs.join("leasehold"), programs.join("simulate"));

    steps.run("rustdoc", || {
        let mut doc = words("cargo doc --workspace --no-deps --all-features --locked --quiet");
        run(doc.env("RUSTDOCFLAGS", "-D warnings"))
    });
    steps.run("public API: as recorded", || {
        ensure!(public_api::main(&public_api::PublicApiArgs::default())?, "the public API has changed");
        Ok(())
    });
    steps.run("features: each one alone", features_alone);
    steps.run("packages: built from what would be published", packages);
    steps.run("dependencies: licences, sources, bans", || {
        let ended =
            capture_all(&mut words("cargo deny --all-features --locked check bans licenses sources"))?;
        ensure!(ended.success(), "exit code {}:\n{}", ended.code, ended.text);
        println!("{}", ended.last_line());
        Ok(())
    });
    steps.run("dependencies: known vulnerabilities", || {
        ensure!(advisories::main()?, "a dependency has a known vulnerability");
        Ok(())
    });
    steps.run("lock file of the fuzz targets", fuzz_lock);
    steps.run("alerting rules", || {
        run(&mut words("promtool check rules ops/prometheus/alerts.yml ops/prometheus/recording.yml"))?;
        run(&mut words("promtool test rules ops/prometheus/tests.yml"))
    });
    steps.run("systemd unit", || systemd_unit(&leasehold));

    steps.run("simulation: 2,000 histories of the client", || simulate(&simulator, "--seeds 2000"));
    steps.run("simulation: 200 histories of the client, each run twice", || {
        simulate(&simulator, "--seeds 200 --replay")
    });
    steps.run("simulation: 2,000 histories of the daemon", || simulate(&simulator, "--daemon --seeds 2000"));
    steps.run("simulation: 20 histories of the daemon, each run twice", || {
        simulate(&simulator, "--daemon --seeds 20 --replay")
    });
    steps.run("simulation: 50,000 histories of the machines", || {
        simulate(&simulator, "--machines --seeds 50000")
    });
    steps.run("simulation: 500 histories of the machines, each run twice", || {
        simulate(&simulator, "--machines --seeds 500 --replay")
    });

    steps.run("fuzzing: 8 targets for 30 s each, two at a time", fuzz_targets);

    steps.run("hostile clients: a tenth of the load on a daemon", || {
        let drill = ["--store", "", "drill", "hostile-clients", "--scale", "0.1"];
        finish(&capture_all(command(&leasehold).args(drill))?, "renewals: ")
    });
    steps.run("attacks of the security review: nothing got through", || {
        let ended = capture_all(command("scripts/attacks").env("LEASEHOLD_BIN", &leasehold))?;
        ensure!(ended.success(), "exit code {}:\n{}", ended.code, ended.tail(60));
        finish(&ended, "nothing got through")
    });

    let seed = fault_seed(&commit, FAULT_DRILLS);
    let soak = std::thread::scope(|scope| {
        let soak = scope.spawn(|| timed(|| soak(&leasehold, seed)));
        steps.run("schemathesis: 30 examples for each operation (beside the soak)", || {
            run(command("scripts/schemathesis").arg("30").env("LEASEHOLD_BIN", &leasehold))
        });
        steps.run("faults: 300 on real servers and processes (beside the soak)", || {
            faults::run_strictly(&leasehold, FAULT_DRILLS, seed)
        });
        soak.join()
    });
    let (took, result) =
        soak.unwrap_or_else(|_| (Duration::ZERO, Err(anyhow::anyhow!("the soak's thread panicked"))));
    steps.report("soak: 5 minutes with a fault every 5 s", took, result);

    // Models and simulations are left to their seeds: they compute the same each time, and the replays above compare them.
    steps.run("reruns: every other test three times more", || {
        let mut rerun = words("cargo nextest run --workspace --all-features --locked --profile ci --test-threads 8 --stress-count 3");
        run(rerun.args(["-E", "not (binary(model) | binary(sim))"]))
    });
    // For both steps that change code: each leaves it as it was.
    let mut copy = None;
    steps.run("copy of the tree and its builds, for seeded bugs and mutants", || {
        copy = Some(TestCopy::new("changed-code")?);
        Ok(())
    });
    let copy = || copy.as_ref().context("there is no copy");
    steps.run("seeded bugs: ten, chosen by the commit", || {
        ensure!(seeded_bugs::run_sample(copy()?, SEEDED_BUGS)?, "a seeded bug was not caught");
        Ok(())
    });
    steps.run("mutants of the change to core: at most 40, chosen by the commit", || {
        let survived = mutants::run("diff", None, Some((MAX_MUTANTS, "HEAD")), Some(copy()?))?.survived;
        ensure!(survived == 0, "{survived} mutants survived");
        Ok(())
    });
    Ok(steps.summary())
}

/// The steps so far. A failed step does not stop the run: one run shows every failure.
#[derive(Debug, Default)]
struct Steps {
    done: Vec<(String, Duration, bool)>,
}

impl Steps {
    fn run(&mut self, name: &str, step: impl FnOnce() -> anyhow::Result<()>) {
        println!("\n== {name}");
        let (took, result) = timed(step);
        self.report(name, took, result);
    }

    fn report(&mut self, name: &str, took: Duration, result: anyhow::Result<()>) {
        match &result {
            Ok(()) => println!("-- {name}: passed after {}", shown(took)),
            Err(error) => println!("-- {name}: FAILED after {}: {error:#}", shown(took)),
        }
        self.done.push((name.to_owned(), took, result.is_ok()));
    }

    /// Prints every step; true if all have passed.
    fn summary(&self) -> bool {
        println!("\n== summary");
        for (name, took, passed) in &self.done {
            println!("{} {:>6}  {name}", if *passed { "passed" } else { "FAILED" }, shown(*took));
        }
        let failed = self.done.iter().filter(|(_, _, passed)| !passed).count();
        println!("{} steps, {failed} failed", self.done.len());
        failed == 0
    }
}

#[allow(clippy::disallowed_methods, reason = "the time of a step is only shown")]
fn timed(step: impl FnOnce() -> anyhow::Result<()>) -> (Duration, anyhow::Result<()>) {
    let started = Instant::now();
    let result = step();
    (started.elapsed(), result)
}

fn shown(took: Duration) -> String {
    format!("{}:{:02}", took.as_secs() / 60, took.as_secs() % 60)
}

/// Checks every published crate with each of its features alone, with none and with all. A warning fails it too: with `-D warnings` in
/// RUSTFLAGS, every dependency would be built again.
fn features_alone() -> anyhow::Result<()> {
    let ended = capture_all(&mut words(&format!("cargo hack check --each-feature --locked {PUBLISHED}")))?;
    ensure!(ended.success(), "exit code {}:\n{}", ended.code, ended.tail(60));
    let warning = ended.text.lines().position(|line| line.starts_with("warning: "));
    ensure!(warning.is_none(), "a build with some features warns:\n{}", ended.tail(60));
    Ok(())
}

fn packages() -> anyhow::Result<()> {
    // Cargo unpacks the packages into its home by the path of this folder and the version, and uses again what it finds there:
    // in the same folder the next commit would be built against the packages of this one.
    let commit = process::git(&["rev-parse", "HEAD"])?;
    let scratch = Scratch::new(&format!("package-{commit}"))?;
    let mut package = words(&format!("cargo package --locked --allow-dirty {PUBLISHED}"));
    let ended = capture_all(package.arg("--target-dir").arg(scratch.path()))?;
    ensure!(ended.success(), "exit code {}:\n{}", ended.code, ended.tail(60));
    Ok(())
}

/// The fuzz targets are a workspace of their own, and cargo-fuzz would update its lock file silently.
fn fuzz_lock() -> anyhow::Result<()> {
    let ended = capture_all(&mut words(
        "cargo metadata --locked --format-version 1 --manifest-path fuzz/Cargo.toml",
    ))?;
    ensure!(ended.success(), "fuzz/Cargo.lock is out of date: {}", ended.tail(5));
    Ok(())
}

fn systemd_unit(leasehold: &Path) -> anyhow::Result<()> {
    let unit =
        std::fs::read_to_string("ops/systemd/leasehold.service").context("ops/systemd/leasehold.service")?;
    let scratch = Scratch::new("systemd")?;
    let path = scratch.path().join("leasehold.service");
    // The check looks for the program, which is not installed here.
    std::fs::write(&path, unit.replace("/usr/local/bin/leasehold", &leasehold.display().to_string()))?;
    run(command("systemd-analyze").args(["verify", "--man=no"]).arg(&path))?;
    let ended = capture_all(
        command("systemd-analyze").args(["security", "--offline=true", "--threshold=20"]).arg(&path),
    )?;
    println!("{}", ended.last_line());
    ensure!(ended.success(), "the unit is not confined enough:\n{}", ended.text);
    Ok(())
}

fn simulate(simulator: &Path, flags: &str) -> anyhow::Result<()> {
    let ended = capture_all(command(simulator).args(flags.split(' ')))?;
    finish(&ended, " histories")
}

/// Prints the line with the figures, or the end of the output if the command failed.
fn finish(ended: &CommandResult, figures: &str) -> anyhow::Result<()> {
    ensure!(ended.success(), "exit code {}:\n{}", ended.code, ended.tail(90));
    // Lines that begin with the program's name show progress.
    for line in ended.text.lines().filter(|line| line.contains(figures) && !line.starts_with("leasehold: ")) {
        println!("{line}");
    }
    Ok(())
}

/// Hardly optimised: a faster target would not make up for its build within half a minute.
fn fuzz_targets() -> anyhow::Result<()> {
    let mut fuzz = command("scripts/fuzz");
    fuzz.args(["--jobs", "2", "30"]).args(FUZZ_TARGETS);
    // Without debug information: a panic names its line, and `scripts/fuzz` alone builds with it. By RUSTFLAGS, because cargo-fuzz sets the
    // profile's debug information on its command line, which outranks the environment.
    run(fuzz.env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1").env("RUSTFLAGS", "-Cdebuginfo=0"))
}

/// A soak that is disturbed because the machine did not keep up (exit code 2) is run once more; then it fails.
fn soak(leasehold: &Path, seed: u64) -> anyhow::Result<()> {
    let once = || {
        let mut soak = command(leasehold);
        soak.args([
            "--store",
            "",
            "drill",
            "soak",
            "--for",
            "5m",
            "--every",
            "5s",
            "--on",
            "redis",
            "--seed",
            &seed.to_string(),
        ]);
        capture_all(&mut soak)
    };
    let mut ended = once()?;
    if ended.code == 2 {
        println!(
            "the soak was disturbed, because the machine did not keep up; it is run once more:\n{}",
            ended.tail(5)
        );
        ended = once()?;
    }
    ensure!(ended.success(), "exit code {}:\n{}", ended.code, ended.text);
    // Windows go to stderr, and stderr follows stdout here: the line with the figures is not the last one.
    finish(&ended, " faults in ")
}
