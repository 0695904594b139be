//! A history as a picture: one lane per client, time from left to right.

use std::collections::BTreeMap;

use crate::history::{Answer, Entry, History, Wrote};
use crate::oracle::{Attempt, Case, Finding};

/// More lanes than this nobody can look at; the rest is named below the picture.
const MOST_LANES: usize = 40;
/// More holds than this only make the file large. What was done and what is wrong is always drawn.
const MOST_HOLDS: usize = 4_000;
const LEFT: f64 = 120.0;
const WIDTH: f64 = 1000.0;
const LANE: f64 = 22.0;
const TOP: f64 = 34.0;

struct Drawing {
    out: String,
    start: u64,
    span: f64,
}

impl Drawing {
    fn x(&self, at: u64) -> f64 {
        LEFT + at.saturating_sub(self.start) as f64 / self.span * WIDTH
    }

    fn put(&mut self, text: &str) {
        self.out.push_str(text);
        self.out.push('\n');
    }

    fn bar(&mut self, lane: f64, from: u64, to: u64, class: &str, title: &str) {
        let (x, width) = (self.x(from), (self.x(to) - self.x(from)).max(1.0));
        let title = escape(title);
        self.put(&format!(
            r#"<rect class="{class}" x="{x:.1}" y="{lane:.1}" width="{width:.1}" height="12"><title>{title}</title></rect>"#
        ));
    }

    fn dot(&mut self, lane: f64, at: u64, class: &str, title: &str) {
        let (x, y, title) = (self.x(at), lane + 6.0, escape(title));
        self.put(&format!(
            r#"<circle class="{class}" cx="{x:.1}" cy="{y:.1}" r="4"><title>{title}</title></circle>"#
        ));
    }
}

/// The picture as an SVG element; empty if there is nothing to see.
pub(super) fn draw(history: &History, findings: &[Finding]) -> String {
    let case = Case::new(&history.records);
    let times = history
        .records
        .iter()
        .filter(|record| !matches!(record.what, Entry::Applied { .. }));
    let (start, end) = times.fold((u64::MAX, 0), |(from, to), record| {
        (from.min(record.at), to.max(record.at))
    });
    // Whoever asked first is on top.
    let mut clients: Vec<_> = case
        .attempts
        .iter()
        .map(|(who, attempts)| (attempts.first().map(|first| first.sent), *who))
        .collect();
    clients.sort_unstable();
    let lanes: BTreeMap<&str, f64> = clients
        .into_iter()
        .take(MOST_LANES)
        .enumerate()
        .map(|(number, (_, who))| (who, TOP + LANE * number as f64))
        .collect();
    if lanes.is_empty() || end <= start {
        return String::new();
    }
    let bottom = TOP + LANE * lanes.len() as f64;
    let mut drawing = Drawing {
        out: String::new(),
        start,
        span: end.saturating_sub(start) as f64,
    };
    let height = bottom + 24.0;
    let total = LEFT + WIDTH + 20.0;
    drawing.put(&format!(
        r#"<svg viewBox="0 0 {total} {height}" role="img" aria-label="timeline of the drill">"#
    ));
    for (who, lane) in &lanes {
        let (y, who) = (lane + 10.0, escape(who));
        drawing.put(&format!(
            r#"<text x="{:.1}" y="{y:.1}" text-anchor="end">{who}</text>"#,
            LEFT - 8.0
        ));
        let y = lane + 6.0;
        drawing.put(&format!(
            r#"<path class="lane" d="M{LEFT} {y:.1}H{}"/>"#,
            LEFT + WIDTH
        ));
    }
    seconds(&mut drawing, end, bottom);
    let left_out = holds(&mut drawing, &case, &lanes, end);
    ends(&mut drawing, &case, &lanes);
    marks(&mut drawing, history, &lanes, end, bottom);
    for found in findings {
        let at = found.at.min(end);
        drawing.dot(
            bottom + 2.0,
            at,
            "broken",
            &format!("{}: {}", found.invariant, found.why),
        );
    }
    drawing.out.push_str("</svg>\n");
    if case.attempts.len() > MOST_LANES {
        let more = case.attempts.len() - MOST_LANES;
        drawing
            .out
            .push_str(&format!("<p>{more} more clients are not drawn.</p>\n"));
    }
    if left_out > 0 {
        let note = format!("<p>{left_out} holds are not drawn: the last ones of the busiest clients.</p>\n");
        drawing.out.push_str(&note);
    }
    drawing.out
}

/// How many of their marks each of these may have so that all together are not too many: who has few loses none.
fn share(mut counts: Vec<usize>, mut left: usize) -> usize {
    counts.sort_unstable();
    let mut others = counts.len();
    for count in counts {
        let fair = left / others.max(1);
        if count > fair {
            return fair;
        }
        (left, others) = (left - count, others - 1);
    }
    usize::MAX
}

fn seconds(drawing: &mut Drawing, end: u64, bottom: f64) {
    let whole = end.saturating_sub(drawing.start) / 1_000_000_000;
    let step = (whole / 20).max(1);
    for second in (0..=whole).step_by(usize::try_from(step).unwrap_or(1)) {
        let x = drawing.x(drawing.start + second * 1_000_000_000);
        let y = bottom + 18.0;
        drawing.put(&format!(
            r#"<text class="tick" x="{x:.1}" y="{y:.1}">{second} s</text>"#
        ));
    }
}

/// The bars, and the acquires that were refused; answers how many are left out.
fn holds(drawing: &mut Drawing, case: &Case<'_>, lanes: &BTreeMap<&str, f64>, end: u64) -> usize {
    let shown = |attempt: &Attempt<'_>| {
        matches!(
            attempt.answered,
            Some((_, Answer::Held | Answer::LocalOnly | Answer::Unavailable, _))
        )
    };
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for attempt in case.all().filter(|attempt| shown(attempt)) {
        *counts.entry(attempt.who).or_default() += usize::from(lanes.contains_key(attempt.who));
    }
    let each = share(counts.into_values().collect(), MOST_HOLDS);
    let (mut drawn, mut left_out): (BTreeMap<&str, usize>, _) = (BTreeMap::new(), 0);
    for attempt in case.all().filter(|attempt| shown(attempt)) {
        let Some(lane) = lanes.get(attempt.who).copied() else {
            continue;
        };
        let count = drawn.entry(attempt.who).or_default();
        if *count >= each {
            left_out += 1;
            continue;
        }
        *count += 1;
        // A holder that was stopped or killed holds until the last deadline it knew, whenever it finds out.
        let known = attempt
            .claims
            .iter()
            .map(|claim| claim.until)
            .max()
            .unwrap_or(end);
        let to = attempt.over().unwrap_or(end).min(known).min(end);
        match attempt.answered {
            Some((at, Answer::Held, fence)) => {
                let fence = fence.map_or_else(String::new, |fence| format!(", fence {fence}"));
                let title = format!("{} holds {}{fence}", attempt.who, attempt.name);
                drawing.bar(lane, at, to, "held", &title);
                if let Some(unproven) = attempt.first("unproven") {
                    let title = format!("{} works without proof", attempt.who);
                    drawing.bar(
                        lane,
                        unproven,
                        attempt.first("proven_again").unwrap_or(to),
                        "unproven",
                        &title,
                    );
                }
            }
            Some((at, Answer::LocalOnly, _)) => {
                let title = format!("{} works with a local lock only", attempt.who);
                drawing.bar(lane, at, to, "unproven", &title);
            }
            Some((at, Answer::Unavailable, _)) => {
                drawing.dot(
                    lane,
                    at,
                    "refused",
                    &format!("{}: store unavailable, work refused", attempt.who),
                );
            }
            _ => {}
        }
    }
    left_out
}

/// Holds that were fenced, and writes that were refused.
fn ends(drawing: &mut Drawing, case: &Case<'_>, lanes: &BTreeMap<&str, f64>) {
    for attempt in case.all() {
        let Some(lane) = lanes.get(attempt.who).copied() else {
            continue;
        };
        if let Some(at) = attempt.first("abandoned") {
            drawing.dot(lane, at, "fenced", &format!("{} is fenced", attempt.who));
        }
        for write in attempt
            .writes
            .iter()
            .filter(|write| write.answer == Wrote::Refused)
        {
            drawing.dot(
                lane,
                write.at,
                "stale",
                &format!("stale write {} of {} refused", write.number, attempt.who),
            );
        }
    }
}

fn marks(drawing: &mut Drawing, history: &History, lanes: &BTreeMap<&str, f64>, end: u64, bottom: f64) {
    let mut stopped: BTreeMap<&str, u64> = BTreeMap::new();
    let mut number = 0;
    for record in &history.records {
        match &record.what {
            Entry::Fault { fault, .. } => {
                number += 1;
                let (x, title) = (drawing.x(record.at), escape(fault));
                drawing.put(&format!(
                    r#"<g class="fault"><path d="M{x:.1} {:.1}V{bottom:.1}"/><text x="{x:.1}" y="{:.1}">{number}</text><title>{title}</title></g>"#,
                    TOP - 10.0,
                    TOP - 14.0
                ));
            }
            Entry::Signal { client, signal } => {
                let Some(lane) = lanes.get(client.as_str()).copied() else {
                    continue;
                };
                match signal.as_str() {
                    "kill" => drawing.dot(lane, record.at, "killed", &format!("{client} is killed")),
                    "stop" => {
                        stopped.insert(client, record.at);
                    }
                    "continue" => {
                        if let Some(from) = stopped.remove(client.as_str()) {
                            drawing.bar(
                                lane + 3.0,
                                from,
                                record.at,
                                "stopped",
                                &format!("{client} is stopped"),
                            );
                        }
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }
    for (client, from) in stopped {
        if let Some(lane) = lanes.get(client).copied() {
            drawing.bar(lane + 3.0, from, end, "stopped", &format!("{client} is stopped"));
        }
    }
}

/// What was done on purpose, in the order of the numbers in the picture.
pub(super) fn faults(history: &History) -> Vec<(f64, String)> {
    let start = history.records.iter().map(|record| record.at).min().unwrap_or(0);
    let faults = history.records.iter().filter_map(|record| match &record.what {
        Entry::Fault { fault, .. } => Some((record.at.saturating_sub(start) as f64 / 1e9, fault.clone())),
        _ => None,
    });
    faults.collect()
}

/// Text for HTML: names come from files and people.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Record;

    fn line(at: u64, who: &str, what: Entry) -> Record {
        Record {
            at,
            who: who.into(),
            what,
        }
    }

    /// Asks, holds and gives back.
    fn hold(records: &mut Vec<Record>, who: &str, attempt: u64, at: u64) {
        let (name, class) = ("job:1".to_owned(), "scheduler".to_owned());
        records.push(line(at, who, Entry::Asked { attempt, name, class }));
        let held = Entry::Answered {
            attempt,
            sent: at,
            answer: Answer::Held,
            fence: None,
        };
        records.push(line(at + 1, who, held));
        records.push(line(at + 2, who, Entry::Releasing { attempt }));
    }

    #[test]
    fn what_matters_is_drawn_however_many_holds_there_are() {
        let mut records = Vec::new();
        for client in 0..10 {
            for number in 1..=500 {
                hold(&mut records, &format!("a.{client}"), number, number * 10);
            }
        }
        hold(&mut records, "z", 1, 6_000);
        let fault = "the fault of all faults".to_owned();
        records.push(line(6_100, "director", Entry::Fault { fault, mends: false }));
        let found = Finding {
            invariant: "I1",
            at: 6_200,
            name: "job:1".into(),
            why: "the finding of all findings".into(),
        };
        let history = History {
            records,
            damage: Vec::new(),
        };
        let svg = draw(&history, &[found]);
        for wanted in [
            "z holds job:1",
            "the fault of all faults",
            "the finding of all findings",
        ] {
            assert!(svg.contains(wanted), "{wanted}");
        }
        assert!(
            svg.contains("1010 holds are not drawn"),
            "{}",
            svg.lines().last().unwrap_or_default()
        );
    }

    #[test]
    fn who_has_few_loses_none() {
        assert_eq!(share(vec![1, 5_000], 4_000), 3_999);
        assert_eq!(share(vec![10, 20], 30), usize::MAX);
        assert_eq!(share(vec![5_000, 5_000], 4_000), 2_000);
    }
}
