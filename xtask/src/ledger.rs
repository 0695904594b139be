//! `proof/ledger.jsonl`: one line per run of a layer, appended and never changed.

use std::fmt;
use std::fs::OpenOptions;
use std::io::Write;

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};

use crate::process;

/// Where the ledger is.
pub(crate) const PATH: &str = "proof/ledger.jsonl";

/// The first seed that the ledger uses. Ordinary test runs and the gate use the seeds below.
pub(crate) const FIRST_SEED: u64 = 1_000_000;

/// A kind of evidence. Numbers of different kinds are never added to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    Simulation,
    Replay,
    Fuzz,
    Model,
    Drills,
    Faults,
    Soak,
    Bugs,
    Mutants,
    Reruns,
}

impl Kind {
    /// What `count` counts.
    pub(crate) fn unit(self) -> &'static str {
        match self {
            Self::Simulation | Self::Replay => "histories",
            Self::Fuzz => "executions",
            Self::Model => "configurations",
            Self::Drills | Self::Faults => "drills",
            Self::Soak => "faults",
            Self::Bugs => "bugs",
            Self::Mutants => "caught",
            Self::Reruns => "tests",
        }
    }

    /// What `events` counts.
    pub(crate) fn event_unit(self) -> &'static str {
        match self {
            Self::Simulation | Self::Replay => "events",
            Self::Model => "transitions",
            Self::Bugs => "times by a layer",
            Self::Mutants => "mutants tried",
            Self::Reruns => "whole runs",
            Self::Fuzz | Self::Drills | Self::Faults | Self::Soak => "fenced writes",
        }
    }

    /// Whether a run does what the run before did, so that only the last one counts and runs do not add up.
    fn repeats_itself(self) -> bool {
        matches!(self, Self::Model | Self::Bugs | Self::Mutants)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Simulation => "simulation",
            Self::Replay => "replay",
            Self::Fuzz => "fuzz",
            Self::Model => "model",
            Self::Drills => "drills",
            Self::Faults => "faults",
            Self::Soak => "soak",
            Self::Bugs => "bugs",
            Self::Mutants => "mutants",
            Self::Reruns => "reruns",
        })
    }
}

/// One run. The order of the fields is the order in the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Entry {
    pub(crate) date: String,
    /// The last commit that changed the code that was run.
    pub(crate) commit: String,
    pub(crate) layer: Kind,
    pub(crate) part: String,
    /// The first seed, where the layer has seeds.
    pub(crate) from: Option<u64>,
    /// The last seed.
    pub(crate) to: Option<u64>,
    /// What passed, in the layer's unit.
    pub(crate) count: Option<u64>,
    pub(crate) events: Option<u64>,
    /// `pass`, or `fail: ` and the reason.
    pub(crate) result: String,
    /// Repeats the run on its commit.
    pub(crate) command: String,
}

impl Entry {
    pub(crate) fn passed(&self) -> bool {
        self.result == "pass"
    }

    /// Why it failed.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.result.strip_prefix("fail: ")
    }

    fn check(&self) -> anyhow::Result<()> {
        let plain = |text: &str| {
            !text.is_empty() && text.bytes().all(|at| at.is_ascii_lowercase() || at == b'_' || at == b' ')
        };
        ensure!(
            self.date.bytes().all(|at| at.is_ascii_digit() || at == b'-') && self.date.len() == 10,
            "the date is not YYYY-MM-DD"
        );
        ensure!(
            !self.commit.is_empty() && self.commit.bytes().all(|at| at.is_ascii_hexdigit()),
            "the commit is not a hash"
        );
        ensure!(plain(&self.part), "the part is not lower-case letters, blanks and underscores");
        ensure!(self.passed() || self.failure().is_some(), "the result is neither `pass` nor `fail: reason`");
        ensure!(!self.passed() || self.count.is_some(), "it passed without a count");
        ensure!(!self.command.is_empty(), "it has no command");
        ensure!(self.from.is_some() == self.to.is_some(), "it has one end of its seeds only");
        if let (Some(from), Some(to)) = (self.from, self.to) {
            ensure!(from <= to, "its seeds go backwards");
            let seeds = to - from + 1;
            ensure!(
                self.layer != Kind::Simulation || self.count.is_none_or(|count| count == seeds),
                "it counts other histories than its seeds"
            );
        }
        Ok(())
    }

    fn shares_seeds_with(&self, other: &Self) -> bool {
        let (Some(from), Some(to), Some(other_from), Some(other_to)) =
            (self.from, self.to, other.from, other.to)
        else {
            return false;
        };
        self.layer == other.layer && self.part == other.part && from <= other_to && other_from <= to
    }
}

/// Every run on record, oldest first. Reading it checks it.
#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) entries: Vec<Entry>,
}

/// What the runs of one part of a layer add up to.
#[derive(Debug)]
pub(crate) struct Sum<'a> {
    pub(crate) layer: Kind,
    pub(crate) part: &'a str,
    pub(crate) runs: u64,
    pub(crate) passed: u64,
    pub(crate) count: u64,
    pub(crate) events: Option<u64>,
    /// The last run, passed or failed.
    pub(crate) last: &'a Entry,
}

impl Ledger {
    pub(crate) fn read() -> anyhow::Result<Self> {
        Self::parse(&std::fs::read_to_string(PATH).context(PATH)?)
    }

    pub(crate) fn parse(text: &str) -> anyhow::Result<Self> {
        let mut entries: Vec<Entry> = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let place = || format!("{PATH}:{}", at + 1);
            let entry: Entry = serde_json::from_str(line).with_context(place)?;
            // One form only: lines can be compared as text, and a missing field is not taken for null.
            ensure!(
                serde_json::to_string(&entry)? == line,
                "{}: it is not in the form that `scripts/proof` writes",
                place()
            );
            entry.check().with_context(place)?;
            if let Some(same) = entries.iter().position(|other| entry.shares_seeds_with(other)) {
                anyhow::bail!("{}: it repeats seeds of line {}", place(), same + 1);
            }
            entries.push(entry);
        }
        Ok(Self { entries })
    }

    /// The first seed, not below `first`, that no run of the layer has used; of all its parts together if no part is given.
    pub(crate) fn next_seed(&self, layer: Kind, part: Option<&str>, first: u64) -> u64 {
        let used = self
            .entries
            .iter()
            .filter(|entry| entry.layer == layer && part.is_none_or(|part| part == entry.part));
        used.filter_map(|entry| entry.to).map(|last| last + 1).fold(first, u64::max)
    }

    /// The commit of the last run of core's mutants that passed and covers every change before it.
    ///
    /// A run over the guards alone, or one in which a mutant survived, says nothing about the rest of a change.
    pub(crate) fn last_mutated_commit(&self) -> Option<&str> {
        let whole = |entry: &&Entry| {
            entry.layer == Kind::Mutants && matches!(&*entry.part, "diff" | "all") && entry.passed()
        };
        self.entries.iter().rev().find(whole).map(|entry| &*entry.commit)
    }

    /// One sum for each part of each layer, in the order in which they first ran.
    pub(crate) fn sums(&self) -> Vec<Sum<'_>> {
        let mut sums: Vec<Sum<'_>> = Vec::new();
        for entry in &self.entries {
            let known = sums.iter().position(|sum| sum.layer == entry.layer && sum.part == entry.part);
            let at = known.unwrap_or_else(|| {
                sums.push(Sum {
                    layer: entry.layer,
                    part: &entry.part,
                    runs: 0,
                    passed: 0,
                    count: 0,
                    events: None,
                    last: entry,
                });
                sums.len() - 1
            });
            let sum = &mut sums[at];
            sum.runs += 1;
            sum.last = entry;
            if entry.layer.repeats_itself() {
                (sum.count, sum.events) = (0, None);
            }
            if entry.passed() {
                sum.passed += 1;
                sum.count += entry.count.unwrap_or(0);
                if let Some(events) = entry.events {
                    sum.events = Some(sum.events.unwrap_or(0) + events);
                }
            }
        }
        sums
    }

    /// The sums as a table for the terminal.
    pub(crate) fn show(&self) -> String {
        let line = |sum: Sum<'_>| {
            let name = format!("{} / {}", sum.layer, sum.part);
            let events = sum
                .events
                .map_or(String::new(), |events| format!("{} {}", grouped(events), sum.layer.event_unit()));
            let (failed, count) = (sum.runs - sum.passed, grouped(sum.count));
            format!(
                "{name:<28} {:>4} runs, {failed} failed  {count:>16} {:<14} {events:>18}",
                sum.runs,
                sum.layer.unit()
            )
        };
        self.sums().into_iter().map(|sum| line(sum).trim_end().to_owned() + "\n").collect()
    }
}

/// Appends a run and prints its line.
pub(crate) fn append(entry: &Entry) -> anyhow::Result<()> {
    entry.check()?;
    let line = serde_json::to_string(entry)?;
    let mut file = OpenOptions::new().append(true).open(PATH).context(PATH)?;
    writeln!(file, "{line}").context(PATH)?;
    println!("{line}");
    Ok(())
}

/// Today, in UTC.
pub(crate) fn today() -> anyhow::Result<String> {
    Ok(process::capture(process::command("date").args(["-u", "+%F"]))?.text.trim().to_owned())
}

/// 1234567 as 1,234,567.
pub(crate) fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(layer: &str, part: &str, seeds: &str, count: &str, result: &str) -> String {
        let commit = "79d64ceed1d7";
        format!(
            "{{\"date\":\"2026-11-17\",\"commit\":\"{commit}\",\"layer\":\"{layer}\",\"part\":\"{part}\",{seeds},\"count\":{count},\"events\":7,\
             \"result\":\"{result}\",\"command\":\"leasehold drill\"}}"
        )
    }

    const NO_SEEDS: &str = "\"from\":null,\"to\":null";

    fn refusal(text: &str) -> String {
        format!("{:#}", Ledger::parse(text).unwrap_err())
    }

    #[test]
    fn the_committed_ledger_is_sound() {
        let text =
            std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../proof/ledger.jsonl")).unwrap();
        let ledger = Ledger::parse(&text).unwrap();
        assert!(ledger.last_mutated_commit().is_some());
    }

    #[test]
    fn a_line_in_another_form_is_refused() {
        let good = line("faults", "all stores", NO_SEEDS, "3", "pass");
        Ledger::parse(&good).unwrap();
        assert!(
            refusal(&good.replace("\"layer\":\"faults\"", "\"layer\":\"luck\"")).contains("ledger.jsonl:1")
        );
        assert!(refusal(&good.replace(",\"events\":7", "")).contains("form"));
        assert!(refusal(&good.replace("\":\"", "\": \"")).contains("form"));
        assert!(refusal(&good.replace("pass", "perhaps")).contains("neither"));
        assert!(refusal(&good.replace("\"count\":3", "\"count\":null")).contains("without a count"));
    }

    #[test]
    fn seeds_are_used_once() {
        let first = line("simulation", "core", "\"from\":10,\"to\":19", "10", "pass");
        let second = line("simulation", "core", "\"from\":19,\"to\":28", "10", "pass");
        assert!(
            refusal(&format!("{first}\n{second}\n")).contains("ledger.jsonl:2: it repeats seeds of line 1")
        );
        let other = second.replace("core", "client");
        let ledger = Ledger::parse(&format!("{first}\n{other}\n")).unwrap();
        assert_eq!(ledger.next_seed(Kind::Simulation, Some("core"), 0), 20);
        assert_eq!(ledger.next_seed(Kind::Simulation, None, 0), 29);
        assert_eq!(ledger.next_seed(Kind::Replay, Some("core"), 5), 5);
    }

    #[test]
    fn a_simulation_counts_its_seeds() {
        let short = line("simulation", "core", "\"from\":10,\"to\":19", "9", "pass");
        assert!(refusal(&short).contains("other histories"));
        assert!(refusal(&short.replace("\"to\":19", "\"to\":9")).contains("backwards"));
    }

    #[test]
    fn runs_add_up_unless_they_repeat_themselves() {
        let text = [
            line("faults", "all stores", "\"from\":1,\"to\":3", "3", "pass"),
            line("faults", "all stores", "\"from\":4,\"to\":6", "2", "fail: 1 drills broke a promise"),
            line("faults", "all stores", "\"from\":7,\"to\":9", "3", "pass"),
            line("mutants", "diff", NO_SEEDS, "9", "pass"),
            line("mutants", "diff", NO_SEEDS, "4", "pass"),
        ];
        let ledger = Ledger::parse(&text.join("\n")).unwrap();
        let sums = ledger.sums();
        assert_eq!((sums[0].runs, sums[0].passed, sums[0].count, sums[0].events), (3, 2, 6, Some(14)));
        assert_eq!((sums[1].runs, sums[1].count, sums[1].events), (2, 4, Some(7)));
    }

    #[test]
    fn a_change_is_mutated_since_the_last_whole_run_that_passed() {
        let whole = line("mutants", "all", NO_SEEDS, "9", "pass").replace("79d64ceed1d7", "aaa");
        let guards = line("mutants", "guards", NO_SEEDS, "9", "pass").replace("79d64ceed1d7", "bbb");
        let failed =
            line("mutants", "diff", NO_SEEDS, "9", "fail: 2 mutants survived").replace("79d64ceed1d7", "ccc");
        let ledger = Ledger::parse(&[whole, guards, failed].join("\n")).unwrap();
        assert_eq!(ledger.last_mutated_commit(), Some("aaa"));
    }

    #[test]
    fn large_numbers_are_grouped() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }
}
