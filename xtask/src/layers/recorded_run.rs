//! Runs a layer and appends its result to the ledger.

use anyhow::{Context, bail, ensure};

use super::built_program::{BuiltProgram, SIMULATE};
use super::{ProofLayer, code_of};
use crate::ledger::{self, Entry, FIRST_SEED, Kind, Ledger};
use crate::process::{self, CommandResult, capture, capture_all, number_before};
use crate::{faults, fuzz, mutants, seeded_bugs, store_mutants};

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
pub(super) struct RecordedRun {
    commit: String,
    ledger: Ledger,
}

impl RecordedRun {
    /// Refuses code that is not committed: a figure is worth nothing without the code that it belongs to. The entry names the last commit
    /// that changed this code, which stays true whatever else is committed in the meantime.
    pub(super) fn new(layer: &ProofLayer) -> anyhow::Result<Self> {
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

    pub(super) fn simulated(&self, part: &str, flags: &str, histories: u64) -> anyhow::Result<bool> {
        let from = self.ledger.next_seed(Kind::Simulation, Some(part), FIRST_SEED);
        let command = format!("{SIMULATE}{flags} --from {from} --seeds {histories}");
        let ended = capture_all(&mut BuiltProgram::new("simulate")?.simulate(&command))?;
        self.histories(Kind::Simulation, part, (from, histories), &command, &ended)
    }

    pub(super) fn replays(&self, histories: u64) -> anyhow::Result<bool> {
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

    pub(super) fn fuzz(&self, seconds: u64, targets: &[String]) -> anyhow::Result<bool> {
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

    pub(super) fn model(&self) -> anyhow::Result<bool> {
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

    pub(super) fn drills(&self, arguments: &[String]) -> anyhow::Result<bool> {
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

    pub(super) fn faults(&self, drills: u64) -> anyhow::Result<bool> {
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

    pub(super) fn soak(&self, duration: &str, store: &str) -> anyhow::Result<bool> {
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

    pub(super) fn bugs(&self) -> anyhow::Result<bool> {
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

    pub(super) fn mutants(
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

    pub(super) fn reruns(&self, runs: u64) -> anyhow::Result<bool> {
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
}
