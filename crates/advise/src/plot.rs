//! Draws a histogram of the held times, with the TTLs as marks.

use std::fmt::Write as _;
use std::time::Duration;

use leasehold_core::policy::duration::human;

use crate::sample::Sample;

/// A labelled line in the histogram.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlotMark {
    /// Position on the time axis.
    pub at: Duration,
    /// Text next to the line.
    pub label: String,
}

/// One column of the histogram.
struct HistogramColumn {
    up_to: Duration,
    count: u64,
}

/// Builds columns of equal width that cover all durations and marks.
fn columns(sample: &Sample, marks: &[PlotMark], number: usize) -> (Vec<HistogramColumn>, Duration) {
    let longest = sample.counts().iter().rev().find(|(_, count)| *count > 0).map(|(duration, _)| *duration);
    let reach = marks.iter().map(|mark| mark.at).chain(longest).max().unwrap_or_default();
    let reach = reach.max(Duration::from_millis(1));
    let number = u32::try_from(number.max(1)).unwrap_or(u32::MAX);
    let mut columns: Vec<_> = (1..=number)
        .map(|at| HistogramColumn { up_to: reach.mul_f64(f64::from(at) / f64::from(number)), count: 0 })
        .collect();
    for (duration, count) in sample.counts() {
        let at = columns.iter().position(|column| *duration <= column.up_to);
        if let Some(column) = at.and_then(|at| columns.get_mut(at)) {
            column.count += count;
        }
    }
    (columns, reach)
}

/// Draws for a terminal: one line per column, with marks at their line.
#[must_use]
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)] // Bars are approximate.
pub fn terminal(sample: &Sample, marks: &[PlotMark], width: usize) -> String {
    let (columns, _) = columns(sample, marks, 20);
    let most = columns.iter().map(|column| column.count).max().unwrap_or(0).max(1);
    let mut out = String::new();
    let mut from = Duration::ZERO;
    for column in &columns {
        let bar = (column.count as f64 / most as f64 * width as f64).round() as usize;
        // A rare duration must stay visible: at least one character.
        let bar = bar.max(usize::from(column.count > 0));
        let here: Vec<_> = marks.iter().filter(|mark| mark.at > from && mark.at <= column.up_to).collect();
        let labels: Vec<_> = here.iter().map(|mark| format!("{} {}", mark.label, human(mark.at))).collect();
        let note = if labels.is_empty() { String::new() } else { format!("  <- {}", labels.join(", ")) };
        let _ = writeln!(out, "{:>10} |{}{note}", human(column.up_to), "#".repeat(bar));
        from = column.up_to;
    }
    out
}

/// Draws an SVG without scripts, readable on light and dark backgrounds.
#[must_use]
#[allow(clippy::cast_precision_loss)]
pub fn svg(sample: &Sample, marks: &[PlotMark], title: &str) -> String {
    const WIDTH: f64 = 720.0;
    const HEIGHT: f64 = 240.0;
    let (columns, reach) = columns(sample, marks, 60);
    let most = columns.iter().map(|column| column.count).max().unwrap_or(0).max(1) as f64;
    let x = |time: Duration| time.as_secs_f64() / reach.as_secs_f64() * WIDTH;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"-10 -60 760 340\" role=\"img\" aria-label=\"{0}\" \
         font-family=\"system-ui, sans-serif\" font-size=\"12\">\n<title>{0}</title>\n\
         <style>.bar{{fill:#4c78a8}}.mark{{stroke:#d62728;stroke-width:2}}text{{fill:#777}}</style>\n",
        escape(title)
    );
    let mut from = 0.0;
    for column in &columns {
        let to = x(column.up_to);
        let height = column.count as f64 / most * HEIGHT;
        let height = if column.count > 0 { height.max(1.0) } else { 0.0 };
        let _ = writeln!(
            out,
            "<rect class=\"bar\" x=\"{from:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{height:.1}\"><title>up to {}: {}</title></rect>",
            HEIGHT - height,
            (to - from - 1.0).max(1.0),
            human(column.up_to),
            column.count,
        );
        from = to;
    }
    for (at, mark) in marks.iter().enumerate() {
        let (place, row) = (x(mark.at), -48.0 + 14.0 * (at % 4) as f64);
        // A label near the right edge is placed left of its line, or it would be cut off.
        let anchor = if place > WIDTH * 0.7 { "end" } else { "start" };
        let _ = writeln!(
            out,
            "<line class=\"mark\" x1=\"{place:.1}\" x2=\"{place:.1}\" y1=\"{row:.1}\" y2=\"{HEIGHT}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{} {}</text>",
            if anchor == "end" { place - 4.0 } else { place + 4.0 },
            row + 10.0,
            escape(&mark.label),
            human(mark.at),
        );
    }
    let _ = writeln!(out, "<text x=\"0\" y=\"{}\">0</text>", HEIGHT + 18.0);
    let _ = writeln!(
        out,
        "<text x=\"{WIDTH}\" y=\"{}\" text-anchor=\"end\">{}</text>",
        HEIGHT + 18.0,
        human(reach)
    );
    out.push_str("</svg>\n");
    out
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture() -> (Sample, Vec<PlotMark>) {
        let sample = Sample::of((1..=1000).map(|at| Duration::from_millis(at * 18)));
        let mark = PlotMark { at: Duration::from_secs(24), label: "ttl <advised>".into() };
        (sample, vec![mark])
    }

    #[test]
    fn every_record_is_in_the_picture_and_marks_have_their_line() {
        let (sample, marks) = picture();
        let (columns, _) = columns(&sample, &marks, 20);
        assert_eq!(columns.iter().map(|column| column.count).sum::<u64>(), sample.count());
        let text = terminal(&sample, &marks, 40);
        let marked = text.lines().find(|line| line.contains("ttl <advised> 24s")).unwrap();
        assert!(marked.trim_start().starts_with("24s"), "{text}");
        assert_eq!(terminal(&Sample::default(), &[], 40).lines().count(), 20);
    }

    #[test]
    fn a_rare_hold_is_still_visible() {
        let sample =
            Sample::of(std::iter::repeat_n(Duration::from_secs(1), 100_000).chain([Duration::from_secs(20)]));
        let text = terminal(&sample, &[], 40);
        assert!(text.lines().last().unwrap().ends_with("|#"), "{text}");
    }

    #[test]
    fn labels_are_text_not_markup() {
        let (sample, marks) = picture();
        let svg = svg(&sample, &marks, "a \"title\" & more");
        assert!(svg.contains("ttl &lt;advised&gt; 24s") && !svg.contains("<advised>"), "{svg}");
        assert!(svg.contains("a &quot;title&quot; &amp; more"), "{svg}");
    }
}
