//! `proof`: runs a layer and records the result, passed or failed.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, bail, ensure};
use clap::Subcommand;

use crate::ledger::{self, Entry, FIRST_SEED, Kind, Ledger};
use crate::process::{self, CommandResult, Scratch, capture, capture_all, number_before};
use crate::{ci, faults, fuzz, mutants, page, seeded_bugs, store_mutants};

/// The simulator's command, as it stands in the ledger.
const SIMULATE: &str = "cargo xtask simulate";

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum Layer {
    /// What every change has to pass after scripts/test; fixed work, nothing is recorded
    Ci,
    /// Short histories of the client with many faults, from the first free seed
    Sim { histories: u64 },
    /// Histories of the real client in a simulated world, from the first free seed
    Client { histories: u64 },
    /// Histories of the real daemon and its clients over a simulated network, from the first free seed
    Daemon { histories: u64 },
    /// Histories of the machines, of the client and of the daemon, each run twice and compared
    Replay { histories: u64 },
    /// Every fuzz target, or those that are named, for so many seconds each, with a new seed
    Fuzz { seconds: u64, targets: Vec<String> },
    /// Every configuration of the protocol's model
    Model,
    /// Every drill on every store; further arguments are passed on, e.g. --outage 30s
    Drills {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Short drills with one real fault each, from the first free seed
    Faults { drills: u64 },
    /// One fleet with a fault every 5 s, with a new seed
    Soak {
        #[arg(default_value = "5m")]
        duration: String,
        #[arg(default_value = "redis")]
        store: String,
    },
    /// Every seeded bug; writes docs/proof/seeded-bugs.md
    Bugs,
    /// Mutants: guards, slice, all or diff of core, or those of the stores' scripts and statements (redis, sqlite)
    Mutants {
        #[arg(default_value = "guards")]
        part: String,
        /// With diff: mutate what has changed since this revision
        since: Option<String>,
        /// Try at most so many of core's, chosen by the commit's hash, as the gate does
        #[arg(long)]
        sample: Option<u32>,
        /// Choose them by this commit's hash: tries a sample again after what survived in it has got tests
        #[arg(long, requires = "sample")]
        chosen_by: Option<String>,
    },
    /// Every test, so many times; one that fails once is flaky
    Reruns { runs: u64 },
    /// What a release has to pass; takes several days
    Release,
    /// Print the sums
    Show,
    /// Write docs/proof/README.md from the ledger
    Page,
    /// Check that the ledger is valid and that docs/proof/README.md matches it
    Check,
}

/// What a release has to pass, in this order.
const RELEASE: [&str; 16] = [
    "model",
    "sim 5000000",
    "client 500000",
    "daemon 500000",
    "replay 10000",
    "faults 20000",
    "drills --outage 30s",
    "drills --outage 120s",
    "soak 72h redis",
    "soak 24h sqlite",
    "bugs",
    "mutants all",
    "mutants redis",
    "mutants sqlite",
    "fuzz 36000",
    "reruns 20",
];

pub(crate) fn run(layer: &Layer) -> anyhow::Result<bool> {
    match layer {
        Layer::Ci => ci::main(),
        Layer::Release => release(),
        Layer::Show => {
            print!("{}", Ledger::read()?.show());
            Ok(true)
        }
        Layer::Page => {
            page::write(&Ledger::read()?)?;
            Ok(true)
        }
        Layer::Check => {
            page::check(&Ledger::read()?)?;
            Ok(true)
        }
        _ => recorded(layer),
    }
}

/// Each layer in turn, whatever the result of the one before: the ledger has all of them.
fn release() -> anyhow::Result<bool> {
    let mut passed = true;
    for layer in RELEASE {
        // Another process, so that a layer that cannot run does not end the rest.
        let status = process::words(&format!("scripts/proof {layer}")).status()?;
        passed &= status.success();
    }
    Ok(passed)
}

fn recorded(layer: &Layer) -> anyhow::Result<bool> {
    let run = Run::new(layer)?;
    let passed = match layer {
        Layer::Sim { histories } => run.simulated("machines", " --machines", *histories),
        Layer::Client { histories } => run.simulated("client", "", *histories),
        Layer::Daemon { histories } => run.simulated("daemon", " --daemon", *histories),
        Layer::Replay { histories } => run.replays(*histories),
        Layer::Fuzz { seconds, targets } => run.fuzz(*seconds, targets),
        Layer::Model => run.model(),
        Layer::Drills { arguments } => run.drills(arguments),
        Layer::Faults { drills } => run.faults(*drills),
        Layer::Soak { duration, store } => run.soak(duration, store),
        Layer::Bugs => run.bugs(),
        Layer::Mutants { part, since, sample, chosen_by } => {
            run.mutants(part, since.as_deref(), *sample, chosen_by.as_deref())
        }
        Layer::Reruns { runs } => run.reruns(*runs),
        Layer::Ci | Layer::Release | Layer::Show | Layer::Page | Layer::Check => {
            bail!("this is not recorded")
        }
    };
    page::write(&Ledger::read()?)?;
    passed
}

/// The code that a layer runs.
fn code_of(layer: &Layer) -> &'static [&'static str] {
    match layer {
        Layer::Fuzz { .. } => &["crates", "fuzz", "rust-toolchain.toml"],
        Layer::Bugs => &["crates", "proof/bugs", "Cargo.lock", "rust-toolchain.toml"],
        Layer::Mutants { .. } => &["crates", "proof/mutants", "Cargo.lock", "rust-toolchain.toml"],
        _ => &["crates", "Cargo.lock", "rust-toolchain.toml"],
    }
}

/// What an entry says of the run itself.
#[derive(Debug, Default)]
struct Figures {
    seeds: Option<(u64, u64)>,
    count: Option<u64>,
    events: Option<u64>,
    /// None: it passed.
    failure: Option<String>,
}

/// A run that is going to be recorded.
#[derive(Debug)]
struct Run {
    commit: String,
    ledger: Ledger,
}

impl Run {
    /// Refuses code that is not committed: a figure is worth nothing without the code that it belongs to. The entry names the last commit
    /// that changed this code, which stays true whatever else is committed in the meantime.
    fn new(layer: &Layer) -> anyhow::Result<Self> {
        let code = code_of(layer);
        let changed = process::git(&[&["status", "--porcelain", "--"], code].concat())?;
        ensure!(
            changed.is_empty(),
            "commit these first, so that the ledger can name what was run:\n{changed}"
        );
        let commit = process::git(&[&["log", "-1", "--format=%h", "--abbrev=12", "--"], code].concat())?;
        Ok(Self { commit, ledger: Ledger::read()? })
    }

    /// Appends the entry; returns whether the run passed.
    fn record(&self, layer: Kind, part: &str, command: &str, figures: Figures) -> anyhow::Result<bool> {
        let passed = figures.failure.is_none();
        ledger::append(&Entry {
            date: ledger::today()?,
            commit: self.commit.clone(),
            layer,
            part: part.to_owned(),
            from: figures.seeds.map(|(from, _)| from),
            to: figures.seeds.map(|(_, to)| to),
            count: figures.count,
            events: figures.events,
            result: figures.failure.map_or("pass".to_owned(), |why| format!("fail: {why}")),
            command: command.to_owned(),
        })?;
        Ok(passed)
    }

    fn simulated(&self, part: &str, flags: &str, histories: u64) -> anyhow::Result<bool> {
        let from = self.ledger.next_seed(Kind::Simulation, Some(part), FIRST_SEED);
        let command = format!("{SIMULATE}{flags} --from {from} --seeds {histories}");
        let ended = capture_all(&mut BuiltProgram::new("simulate")?.simulate(&command))?;
        self.histories(Kind::Simulation, part, (from, histories), &command, &ended)
    }

    fn replays(&self, histories: u64) -> anyhow::Result<bool> {
        let from = |part| self.ledger.next_seed(Kind::Replay, Some(part), FIRST_SEED);
        let mut passed = true;
        let simulator = BuiltProgram::new("simulate")?;
        for (part, flags) in [("machines", " --machines"), ("client", ""), ("daemon", " --daemon")] {
            let command = format!("{SIMULATE}{flags} --replay --from {} --seeds {histories}", from(part));
            let ended = capture_all(&mut simulator.simulate(&command))?;
            passed &= self.histories(Kind::Replay, part, (from(part), histories), &command, &ended)?;
        }
        Ok(passed)
    }

    /// Records a simulation or a replay by the line with its figures.
    fn histories(
        &self,
        layer: Kind,
        part: &str,
        (from, histories): (u64, u64),
        command: &str,
        ended: &CommandResult,
    ) -> anyhow::Result<bool> {
        let (counted, broken) = match layer {
            Kind::Replay => (format!("{histories} histories ran twice, "), " ran differently"),
            _ => (format!("{histories} histories, "), " broke"),
        };
        let line = ended.text.lines().find(|line| line.starts_with(&counted));
        let events = line.and_then(|line| number_before(line, "events")).filter(|_| ended.success());
        // Where one thread stopped at a failure, the others may have stopped early too: nothing is counted.
        let mut figures = Figures { seeds: Some((from, from + histories - 1)), ..Figures::default() };
        match events {
            Some(_) => (figures.count, figures.events) = (Some(histories), events),
            None => {
                eprintln!("{}", ended.tail(90));
                let line = ended.text.lines().find(|line| line.contains(broken));
                let seed = line.and_then(|line| number_before(line, broken.trim_start()));
                figures.failure =
                    Some(seed.map_or("see the command's output".to_owned(), |seed| {
                        format!("seed {seed}{broken}")
                    }));
            }
        }
        self.record(layer, part, command, figures)
    }

    fn fuzz(&self, seconds: u64, targets: &[String]) -> anyhow::Result<bool> {
        let seed = self.ledger.next_seed(Kind::Fuzz, None, 1);
        let mut passed = true;
        for result in fuzz::run(seconds, targets, seed)? {
            let figures = Figures {
                seeds: Some((seed, seed)),
                count: Some(result.executions),
                failure: result.failure.map(|_| "an input was found".to_owned()),
                ..Figures::default()
            };
            let command = format!("LEASEHOLD_FUZZ_SEED={seed} scripts/fuzz {seconds} {}", result.target);
            passed &= self.record(Kind::Fuzz, &result.target, &command, figures)?;
        }
        Ok(passed)
    }

    fn model(&self) -> anyhow::Result<bool> {
        let command = "cargo test -p leasehold-sim --features model --test model -- --nocapture";
        let ended = capture_all(&mut process::words(command))?;
        if !ended.success() {
            eprintln!("{}", ended.tail(60));
            let failure = Some("see the command's output".to_owned());
            return self.record(Kind::Model, "all", command, Figures { failure, ..Figures::default() });
        }
        let (holds, transitions, breaks) = model_figures(&ended.text);
        ensure!(holds > 0 && breaks > 0, "the model's tests passed, but their figures cannot be read");
        let holds = Figures { count: Some(holds), events: Some(transitions), ..Figures::default() };
        self.record(Kind::Model, "must hold", command, holds)?;
        self.record(Kind::Model, "must break", command, Figures { count: Some(breaks), ..Figures::default() })
    }

    fn drills(&self, arguments: &[String]) -> anyhow::Result<bool> {
        let mut command = "leasehold drill all --out target/drills".to_owned();
        for argument in arguments {
            command.push(' ');
            command.push_str(argument);
        }
        let ended = capture(&mut BuiltProgram::new("leasehold")?.leasehold(&command))?;
        print!("{}", ended.text);
        ensure!(ended.code <= 1, "some drills could not be run: nothing is recorded");
        let figure = |words| number_before(ended.last_line(), words);
        let broken = figure("violations").context("the last line has no figures: nothing is recorded")?;
        let figures = Figures {
            count: figure("clean"),
            events: Some(figure("writes applied").unwrap_or(0) + figure("stale ones refused").unwrap_or(0)),
            failure: (ended.code != 0).then(|| format!("{broken} drills broke a promise")),
            ..Figures::default()
        };
        self.record(Kind::Drills, "all stores", &command, figures)
    }

    fn faults(&self, drills: u64) -> anyhow::Result<bool> {
        let from = self.ledger.next_seed(Kind::Faults, None, FIRST_SEED);
        let sums = faults::run(&BuiltProgram::new("leasehold")?.path, drills, from)?;
        println!("{}", sums.line());
        // Drills that could not be run are not counted, and their seeds are used up.
        let figures = Figures {
            seeds: Some((from, from + drills - 1)),
            count: Some(sums.drills),
            events: Some(sums.applied + sums.refused),
            failure: (!sums.violations.is_empty())
                .then(|| format!("{} drills broke a promise", sums.violations.len())),
        };
        let command = format!("leasehold drill faults --count {drills} --seed {from}");
        Ok(self.record(Kind::Faults, "all stores", &command, figures)? && sums.failed.is_empty())
    }

    fn soak(&self, duration: &str, store: &str) -> anyhow::Result<bool> {
        let seed = self.ledger.next_seed(Kind::Soak, None, FIRST_SEED);
        let command = format!("leasehold drill soak --for {duration} --every 5s --on {store} --seed {seed}");
        let ended = capture(&mut BuiltProgram::new("leasehold")?.leasehold(&command))?;
        print!("{}", ended.text);
        ensure!(ended.code <= 1, "the soak could not be run to its end: nothing is recorded");
        let figure = |words| number_before(ended.last_line(), words);
        let broken = figure("violations").context("the last line has no figures: nothing is recorded")?;
        let figures = Figures {
            seeds: Some((seed, seed)),
            count: figure("faults in"),
            events: Some(figure("writes applied").unwrap_or(0) + figure("stale ones refused").unwrap_or(0)),
            failure: (ended.code != 0).then(|| format!("{broken} violations")),
        };
        self.record(Kind::Soak, store, &command, figures)
    }

    fn bugs(&self) -> anyhow::Result<bool> {
        let outcome = seeded_bugs::run_all_and_write()?;
        let missed = outcome.tried - outcome.caught;
        let figures = Figures {
            count: Some(outcome.caught),
            events: Some(outcome.catches),
            failure: (missed > 0).then(|| format!("{missed} not caught by every layer named for them")),
            ..Figures::default()
        };
        self.record(Kind::Bugs, "caught by every layer", "scripts/seeded-bugs --all --write", figures)
    }

    fn mutants(
        &self,
        part: &str,
        since: Option<&str>,
        sample: Option<u32>,
        chosen_by: Option<&str>,
    ) -> anyhow::Result<bool> {
        let count = sample.map(usize::try_from).transpose()?;
        let chosen = count.map(|count| (count, chosen_by.unwrap_or("HEAD")));
        let (outcome, script) = match part {
            "redis" | "sqlite" => (store_mutants::run_store(part)?, "store-mutants"),
            _ => (mutants::run(part, since, chosen, None)?, "mutants"),
        };
        let mut command = format!("scripts/{script} {part}");
        if let Some(since) = since {
            command.push(' ');
            command.push_str(since);
        }
        if let Some(sample) = sample {
            command.push_str(&format!(" --sample {sample}"));
        }
        if let Some(commit) = chosen_by {
            command.push_str(&format!(" --chosen-by {commit}"));
        }
        let figures = Figures {
            count: Some(outcome.caught + outcome.timed_out),
            events: Some(outcome.tried()),
            failure: (outcome.survived > 0).then(|| format!("{} mutants survived", outcome.survived)),
            ..Figures::default()
        };
        self.record(Kind::Mutants, part, &command, figures)
    }

    fn reruns(&self, runs: u64) -> anyhow::Result<bool> {
        let command = "cargo nextest run --workspace --all-features --locked --profile ci";
        let (mut passed, mut green) = (0, 0);
        for run in 1..=runs {
            let ended = capture_all(&mut process::words(command))?;
            let line = ended.text.lines().rev().find(|line| line.contains(" tests run: "));
            let Some(line) = line else {
                bail!("run {run} did not run the tests: nothing is recorded\n{}", ended.tail(30));
            };
            println!("run {run} of {runs}: {}", line.trim());
            for failed in seeded_bugs::failed_tests(&ended.text) {
                println!("  failed: {failed}");
            }
            passed += number_before(line, "passed").unwrap_or(0);
            green += u64::from(ended.success());
        }
        let figures = Figures {
            count: Some(passed),
            events: Some(green),
            failure: (green < runs)
                .then(|| format!("{} of {runs} runs had a test that failed", runs - green)),
            ..Figures::default()
        };
        self.record(Kind::Reruns, "all tests", command, figures)
    }
}

/// Configurations that hold, their transitions, and configurations that break, from the output of the model's tests.
fn model_figures(text: &str) -> (u64, u64, u64) {
    let mut lines: Vec<_> = text.lines().filter_map(|line| line.split_once(": ")).collect();
    // A test that is run on several threads may print its line twice.
    lines.sort_unstable();
    lines.dedup();
    let named = |(name, _): &&(&str, &str), prefix: &str| {
        name.rsplit(' ').next().is_some_and(|name| name.starts_with(prefix))
    };
    let holds: Vec<_> = lines
        .iter()
        .filter(|line| named(line, "holds_"))
        .filter_map(|(_, rest)| number_before(rest, "transitions"))
        .collect();
    let breaks = lines.iter().filter(|line| named(line, "breaks_") && line.1.contains(" breaks in")).count();
    (holds.len() as u64, holds.iter().sum(), breaks as u64)
}

/// A copy of a built program: the tree may be built again while a long layer runs.
#[derive(Debug)]
struct BuiltProgram {
    _folder: Scratch,
    path: PathBuf,
}

impl BuiltProgram {
    fn new(name: &str) -> anyhow::Result<Self> {
        let built = process::build_program(name)?;
        let folder = Scratch::new("proof")?;
        let path = folder.path().join(name);
        std::fs::copy(&built, &path).with_context(|| built.display().to_string())?;
        Ok(Self { _folder: folder, path })
    }

    /// `leasehold …` as it stands in the ledger. An empty store keeps a configured one out of the drills.
    fn leasehold(&self, line: &str) -> Command {
        let mut command = process::command(&self.path);
        command.args(["--store", ""]).args(line.split_whitespace().skip(1));
        command
    }

    /// `cargo xtask simulate …` as it stands in the ledger.
    fn simulate(&self, line: &str) -> Command {
        let mut command = process::command(&self.path);
        command.args(line.trim_start_matches(SIMULATE).split_whitespace());
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_of_the_model_are_read() {
        let text = "test holds_two_clients ... holds_two_clients: 120 transitions, 40 states\n\
                    holds_drift: 7 transitions\nholds_drift: 7 transitions\n\
                    breaks_no_fence: stale write breaks in 9 steps\nother: 3 transitions\n";
        assert_eq!(model_figures(text), (2, 127, 1));
    }

    #[test]
    fn the_layers_of_a_release_are_commands_of_proof() {
        use clap::FromArgMatches;
        for line in RELEASE {
            let command = Layer::augment_subcommands(clap::Command::new("proof"));
            let matches =
                command.try_get_matches_from(format!("proof {line}").split(' ').map(str::to_owned)).unwrap();
            Layer::from_arg_matches(&matches).unwrap();
        }
    }
}
