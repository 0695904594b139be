//! Counts and times from a history: the cost of the fault.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use serde::Serialize;

use crate::history::{History, HistoryEntry, WriteOutcome};

/// Counts and times of a drill, computed from its history alone.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Measures {
    /// Number of leases granted.
    pub grants: u64,
    /// Acquires that ended with *busy*.
    pub busy: u64,
    /// Acquires that a fail-closed class refused because the store was unavailable.
    pub unavailable: u64,
    /// Acquires that a fail-open class allowed with a local lock because the store was unavailable.
    pub fell_back: u64,
    /// Number of confirmed renewals.
    pub renewed: u64,
    /// Number of fenced holds by reason.
    pub abandoned: BTreeMap<String, u64>,
    /// Writes that the target applied.
    pub applied: u64,
    /// Writes that the target refused as stale.
    pub refused: u64,
    /// Tasks that were completed more than once.
    pub duplicates: u64,
    /// Duplicates whose second completion was written in a class that fences. A class that
    /// continues accepts duplicates.
    pub duplicates_fenced: u64,
    /// Longest time from the last fault to the fencing of a hold that began before it, in seconds.
    pub time_to_fence_s: Option<f64>,
    /// Longest time from a holder's kill to the next grant of its name, in seconds.
    pub takeover_s: Option<f64>,
    /// Time worked without a proven lease, in seconds.
    pub overlap_s: f64,
    /// Releases that could not be confirmed in the foreground.
    pub debts: u64,
    /// Total time that leases outlived their finished work, in seconds.
    pub debt_s: f64,
    /// Longest time between two grants of one name, in seconds.
    pub longest_gap_s: f64,
}

/// Computes the measures of a history.
#[must_use]
pub fn measure(history: &History) -> Measures {
    let mut lines: Vec<_> = history.records.iter().collect();
    // Records arrive through one pipe per worker, so their order in the file is not the order of
    // time.
    lines.sort_by_key(|record| record.at);
    let mut sums = Measures::default();
    let mut ended: HashSet<(&str, u64)> = HashSet::new();
    let mut continues: HashSet<&str> = HashSet::new();
    let mut class_of: HashMap<&str, &str> = HashMap::new();
    // By client: the name of its last acquire. By name: time of the last grant, current holder,
    // time of the holder's kill.
    let mut wanted: HashMap<&str, &str> = HashMap::new();
    let mut granted: HashMap<&str, u64> = HashMap::new();
    let mut holder: HashMap<&str, &str> = HashMap::new();
    let mut orphaned: HashMap<&str, u64> = HashMap::new();
    let mut fault = None;
    let longest = |slot: &mut Option<f64>, from: u64, to: u64| {
        let span = seconds(to.saturating_sub(from));
        *slot = Some(slot.map_or(span, |known| known.max(span)));
    };
    for record in lines {
        let who = record.who.as_str();
        match &record.what {
            HistoryEntry::Asked { name, class, .. } => {
                wanted.insert(who, name);
                class_of.insert(who, class);
            }
            HistoryEntry::Written { answer: WriteOutcome::Refused, .. } => sums.refused += 1,
            HistoryEntry::Applied { name, task, writer, .. } => {
                sums.applied += 1;
                if let Some(task) = task
                    && !ended.insert((name, *task))
                {
                    sums.duplicates += 1;
                    let class = class_of.get(writer.as_str()).copied().unwrap_or_default();
                    sums.duplicates_fenced += u64::from(!continues.contains(class));
                }
            }
            HistoryEntry::Class { class, continues: true, .. } => {
                continues.insert(class);
            }
            HistoryEntry::Fault { mends: false, .. } => fault = Some(record.at),
            HistoryEntry::Signal { client, signal } if signal == "kill" => {
                if let Some(name) = wanted.get(client.as_str())
                    && holder.get(name) == Some(&client.as_str())
                {
                    orphaned.insert(name, record.at);
                }
            }
            HistoryEntry::Releasing { .. } => {
                if let Some(name) = wanted.get(who)
                    && holder.get(name) == Some(&who)
                {
                    holder.remove(name);
                }
            }
            HistoryEntry::Event(event) => {
                let span = seconds(event.span.unwrap_or(0));
                match event.event.as_str() {
                    "acquired" => {
                        sums.grants += 1;
                        let name = event.name.as_deref().unwrap_or_default();
                        if let Some(before) = granted.insert(name, record.at) {
                            let gap = seconds(record.at.saturating_sub(before));
                            sums.longest_gap_s = sums.longest_gap_s.max(gap);
                        }
                        holder.insert(name, who);
                        if let Some(died) = orphaned.remove(name) {
                            longest(&mut sums.takeover_s, died, record.at);
                        }
                    }
                    "busy" => sums.busy += 1,
                    "unavailable" => sums.unavailable += 1,
                    "fell_back" => sums.fell_back += 1,
                    "renewed" => sums.renewed += 1,
                    "abandoned" => {
                        let why = event.detail.clone().unwrap_or_default();
                        *sums.abandoned.entry(why).or_default() += 1;
                        // A hold that began after the fault was fenced for another reason.
                        let began = record.at.saturating_sub(event.span.unwrap_or(0));
                        if let Some(fault) = fault.filter(|fault| began <= *fault) {
                            longest(&mut sums.time_to_fence_s, fault, record.at);
                        }
                    }
                    "proven_again" | "overlap_ended" => sums.overlap_s += span,
                    "debt" => sums.debts += 1,
                    "debt_cleared" => sums.debt_s += span,
                    _ => {}
                }
            }
            _ => {}
        }
    }
    sums
}

fn seconds(nanos: u64) -> f64 {
    Duration::from_nanos(nanos).as_secs_f64()
}
