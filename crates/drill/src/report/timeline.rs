//! Draws a history as an SVG timeline: one lane per client, time from left to right.

use std::collections::BTreeMap;

use crate::history::{History, HistoryEntry, RecordedOutcome, WriteOutcome};
use crate::oracle::{Attempt, Finding, HistoryIndex};

// More lanes are unreadable. The number of hidden clients is printed below the timeline.
const MAX_LANES: usize = 40;
// More holds only make the file larger. Faults and findings are always drawn.
const MAX_HOLDS: usize = 4_000;
const LABEL_WIDTH: f64 = 120.0;
const CHART_WIDTH: f64 = 1000.0;
const LANE_HEIGHT: f64 = 22.0;
const TOP_MARGIN: f64 = 34.0;

struct Drawing {
    out: String,
    start: u64,
    span: f64,
}

impl Drawing {
    fn x(&self, at: u64) -> f64 {
        LABEL_WIDTH + at.saturating_sub(self.start) as f64 / self.span * CHART_WIDTH
    }

    fn push_line(&mut self, text: &str) {
        self.out.push_str(text);
        self.out.push('\n');
    }

    fn bar(&mut self, lane: f64, from: u64, to: u64, class: &str, title: &str) {
        // At least one pixel wide: a very short hold must stay visible.
        let (x, width) = (self.x(from), (self.x(to) - self.x(from)).max(1.0));
        let title = escape_html(title);
        self.push_line(&format!(
            r#"<rect class="{class}" x="{x:.1}" y="{lane:.1}" width="{width:.1}" height="12"><title>{title}</title></rect>"#
        ));
    }

    fn dot(&mut self, lane: f64, at: u64, class: &str, title: &str) {
        let (x, y, title) = (self.x(at), lane + 6.0, escape_html(title));
        self.push_line(&format!(
            r#"<circle class="{class}" cx="{x:.1}" cy="{y:.1}" r="4"><title>{title}</title></circle>"#
        ));
    }
}

/// Returns the timeline as an SVG element, or an empty string if there is nothing to draw.
pub(super) fn draw(history: &History, findings: &[Finding]) -> String {
    let case = HistoryIndex::new(&history.records);
    // Rows of the target are recorded at the end with one timestamp: they would stretch the axis
    // and show nothing.
    let times = history.records.iter().filter(|record| !matches!(record.what, HistoryEntry::Applied { .. }));
    let (start, end) =
        times.fold((u64::MAX, 0), |(from, to), record| (from.min(record.at), to.max(record.at)));
    // Clients are ordered by their first request, the earliest on top.
    let mut clients: Vec<_> = case
        .attempts
        .iter()
        .map(|(who, attempts)| (attempts.first().map(|first| first.sent), *who))
        .collect();
    clients.sort_unstable();
    let lanes: BTreeMap<&str, f64> = clients
        .into_iter()
        .take(MAX_LANES)
        .enumerate()
        .map(|(number, (_, who))| (who, TOP_MARGIN + LANE_HEIGHT * number as f64))
        .collect();
    if lanes.is_empty() || end <= start {
        return String::new();
    }
    let bottom = TOP_MARGIN + LANE_HEIGHT * lanes.len() as f64;
    let mut drawing = Drawing { out: String::new(), start, span: end.saturating_sub(start) as f64 };
    let height = bottom + 24.0;
    let total = LABEL_WIDTH + CHART_WIDTH + 20.0;
    drawing.push_line(&format!(
        r#"<svg viewBox="0 0 {total} {height}" role="img" aria-label="timeline of the drill">"#
    ));
    for (who, lane) in &lanes {
        let (y, who) = (lane + 10.0, escape_html(who));
        drawing.push_line(&format!(
            r#"<text x="{:.1}" y="{y:.1}" text-anchor="end">{who}</text>"#,
            LABEL_WIDTH - 8.0
        ));
        let y = lane + 6.0;
        drawing.push_line(&format!(
            r#"<path class="lane" d="M{LABEL_WIDTH} {y:.1}H{}"/>"#,
            LABEL_WIDTH + CHART_WIDTH
        ));
    }
    draw_seconds(&mut drawing, end, bottom);
    let left_out = draw_holds(&mut drawing, &case, &lanes, end);
    draw_hold_ends(&mut drawing, &case, &lanes);
    draw_faults_and_signals(&mut drawing, history, &lanes, end, bottom);
    for found in findings {
        let at = found.at.min(end);
        drawing.dot(bottom + 2.0, at, "broken", &format!("{}: {}", found.invariant, found.why));
    }
    drawing.out.push_str("</svg>\n");
    if case.attempts.len() > MAX_LANES {
        let more = case.attempts.len() - MAX_LANES;
        drawing.out.push_str(&format!("<p>{more} more clients are not drawn.</p>\n"));
    }
    if left_out > 0 {
        let note = format!("<p>{left_out} holds are not drawn: the last ones of the busiest clients.</p>\n");
        drawing.out.push_str(&note);
    }
    drawing.out
}

/// The number of holds to draw per client so that the total stays within `left`. Clients below
/// their fair share lose none.
fn fair_limit(mut counts: Vec<usize>, mut left: usize) -> usize {
    // From the smallest count up: what a small client does not use is shared by the larger ones.
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

fn draw_seconds(drawing: &mut Drawing, end: u64, bottom: f64) {
    let whole = end.saturating_sub(drawing.start) / 1_000_000_000;
    // About twenty labels at most, or they overlap.
    let step = (whole / 20).max(1);
    for second in (0..=whole).step_by(usize::try_from(step).unwrap_or(1)) {
        let x = drawing.x(drawing.start + second * 1_000_000_000);
        let y = bottom + 18.0;
        drawing.push_line(&format!(r#"<text class="tick" x="{x:.1}" y="{y:.1}">{second} s</text>"#));
    }
}

/// Draws holds as bars and refused acquires as dots. Returns how many are left out.
fn draw_holds(
    drawing: &mut Drawing,
    case: &HistoryIndex<'_>,
    lanes: &BTreeMap<&str, f64>,
    end: u64,
) -> usize {
    let shown = |attempt: &Attempt<'_>| {
        matches!(
            attempt.answered,
            Some((_, RecordedOutcome::Held | RecordedOutcome::LocalOnly | RecordedOutcome::Unavailable, _))
        )
    };
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for attempt in case.all_attempts().filter(|attempt| shown(attempt)) {
        *counts.entry(attempt.who).or_default() += usize::from(lanes.contains_key(attempt.who));
    }
    let each = fair_limit(counts.into_values().collect(), MAX_HOLDS);
    let (mut drawn, mut left_out): (BTreeMap<&str, usize>, _) = (BTreeMap::new(), 0);
    for attempt in case.all_attempts().filter(|attempt| shown(attempt)) {
        let Some(lane) = lanes.get(attempt.who).copied() else {
            continue;
        };
        let count = drawn.entry(attempt.who).or_default();
        if *count >= each {
            left_out += 1;
            continue;
        }
        *count += 1;
        // A paused or killed holder holds until its last known deadline, even if it notices the
        // loss later or never.
        let known = attempt.claims.iter().map(|claim| claim.until).max().unwrap_or(end);
        let to = attempt.claims_end().unwrap_or(end).min(known).min(end);
        match attempt.answered {
            Some((at, RecordedOutcome::Held, fence)) => {
                let fence = fence.map_or_else(String::new, |fence| format!(", fence {fence}"));
                let title = format!("{} holds {}{fence}", attempt.who, attempt.name);
                drawing.bar(lane, at, to, "held", &title);
                if let Some(unproven) = attempt.first_event_at("unproven") {
                    let title = format!("{} works without proof", attempt.who);
                    drawing.bar(
                        lane,
                        unproven,
                        attempt.first_event_at("proven_again").unwrap_or(to),
                        "unproven",
                        &title,
                    );
                }
            }
            Some((at, RecordedOutcome::LocalOnly, _)) => {
                let title = format!("{} works with a local lock only", attempt.who);
                drawing.bar(lane, at, to, "unproven", &title);
            }
            Some((at, RecordedOutcome::Unavailable, _)) => {
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

/// Draws fenced holds and refused writes.
fn draw_hold_ends(drawing: &mut Drawing, case: &HistoryIndex<'_>, lanes: &BTreeMap<&str, f64>) {
    for attempt in case.all_attempts() {
        let Some(lane) = lanes.get(attempt.who).copied() else {
            continue;
        };
        if let Some(at) = attempt.first_event_at("abandoned") {
            drawing.dot(lane, at, "fenced", &format!("{} is fenced", attempt.who));
        }
        for write in attempt.writes.iter().filter(|write| write.answer == WriteOutcome::Refused) {
            drawing.dot(
                lane,
                write.at,
                "stale",
                &format!("stale write {} of {} refused", write.number, attempt.who),
            );
        }
    }
}

fn draw_faults_and_signals(
    drawing: &mut Drawing,
    history: &History,
    lanes: &BTreeMap<&str, f64>,
    end: u64,
    bottom: f64,
) {
    let mut stopped: BTreeMap<&str, u64> = BTreeMap::new();
    let mut number = 0;
    for record in &history.records {
        match &record.what {
            HistoryEntry::Fault { fault, .. } => {
                number += 1;
                let (x, title) = (drawing.x(record.at), escape_html(fault));
                drawing.push_line(&format!(
                    r#"<g class="fault"><path d="M{x:.1} {:.1}V{bottom:.1}"/><text x="{x:.1}" y="{:.1}">{number}</text><title>{title}</title></g>"#,
                    TOP_MARGIN - 10.0,
                    TOP_MARGIN - 14.0
                ));
            }
            HistoryEntry::Signal { client, signal } => {
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
        // Paused and never resumed: drawn to the end.
        if let Some(lane) = lanes.get(client).copied() {
            drawing.bar(lane + 3.0, from, end, "stopped", &format!("{client} is stopped"));
        }
    }
}

/// The injected faults with their times in seconds, in the order of the numbers in the timeline.
pub(super) fn fault_list(history: &History) -> Vec<(f64, String)> {
    let start = history.records.iter().map(|record| record.at).min().unwrap_or(0);
    let faults = history.records.iter().filter_map(|record| match &record.what {
        HistoryEntry::Fault { fault, .. } => {
            Some((record.at.saturating_sub(start) as f64 / 1e9, fault.clone()))
        }
        _ => None,
    });
    faults.collect()
}

/// Escapes text for HTML. Names come from histories, which may be edited by hand.
pub(super) fn escape_html(text: &str) -> String {
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
    use crate::history::HistoryRecord;

    fn line(at: u64, who: &str, what: HistoryEntry) -> HistoryRecord {
        HistoryRecord { at, who: who.into(), what }
    }

    /// Adds the records of one acquire, hold and release.
    fn hold(records: &mut Vec<HistoryRecord>, who: &str, attempt: u64, at: u64) {
        let (name, class) = ("job:1".to_owned(), "scheduler".to_owned());
        records.push(line(at, who, HistoryEntry::Asked { attempt, name, class }));
        let held = HistoryEntry::Answered { attempt, sent: at, answer: RecordedOutcome::Held, fence: None };
        records.push(line(at + 1, who, held));
        records.push(line(at + 2, who, HistoryEntry::Releasing { attempt }));
    }

    #[test]
    fn faults_and_findings_are_always_drawn() {
        let mut records = Vec::new();
        for client in 0..10 {
            for number in 1..=500 {
                hold(&mut records, &format!("a.{client}"), number, number * 10);
            }
        }
        hold(&mut records, "z", 1, 6_000);
        let fault = "the fault of all faults".to_owned();
        records.push(line(6_100, "director", HistoryEntry::Fault { fault, mends: false }));
        let found = Finding {
            invariant: "I1",
            at: 6_200,
            name: "job:1".into(),
            why: "the finding of all findings".into(),
        };
        let history = History { records, damage: Vec::new() };
        let svg = draw(&history, &[found]);
        for wanted in ["z holds job:1", "the fault of all faults", "the finding of all findings"] {
            assert!(svg.contains(wanted), "{wanted}");
        }
        assert!(svg.contains("1010 holds are not drawn"), "{}", svg.lines().last().unwrap_or_default());
    }

    #[test]
    fn clients_with_few_holds_lose_none() {
        assert_eq!(fair_limit(vec![1, 5_000], 4_000), 3_999);
        assert_eq!(fair_limit(vec![10, 20], 30), usize::MAX);
        assert_eq!(fair_limit(vec![5_000, 5_000], 4_000), 2_000);
    }
}
