//! Verdicts as one HTML page without scripts or external files, in a light and a dark colour
//! scheme.

use super::timeline::{draw, escape_html, fault_list};
use crate::invariant;
use crate::scenario::{Measures, Outcome, Verdict};

// Inlined, so that the page works as a single file.
const STYLE: &str = include_str!("style.css");

const INTRODUCTION: &str = "<p>Each drill breaks something on purpose while real processes take real locks on a real store and write to a \
    target that they all share. Then two judges look at it. The first compares what the lock's <em>class</em> promises in this \
    situation with what was seen. The second is a checker that knows nothing of the code: it judges every recorded step against the \
    <a href=\"#promises\">numbered promises</a>. A drill is <strong class=\"clean\">clean</strong> only if both are content.</p>\n";

const COLUMN_HELP: &str = "<details><summary>What the columns mean</summary><table>\
    <tr><th>time to fence</th><td>from the fault until a holder that could not renew had stopped working</td></tr>\
    <tr><th>takeover</th><td>from a holder's death until another client had the lock</td></tr>\
    <tr><th>overlap</th><td>time worked without a lease that could be proven (only in classes that say so)</td></tr>\
    <tr><th>debt</th><td>time that locks stayed shut after their work was done, because giving them back could not be confirmed</td></tr>\
    <tr><th>stale refused</th><td>late writes of former holders that the target turned away, by their fence</td></tr>\
    <tr><th>twice</th><td>tasks that were finished twice: must be 0</td></tr>\
    </table></details>\n";

const TIMELINE_KEY: &str = r#"<p class="key">bars:
<i class="k-held"></i>holds a lease <i class="k-unproven"></i>works without a provable lease <i class="k-stopped"></i>process stopped;
dots: <i class="dot k-fenced"></i>fenced: told to stop <i class="dot k-refused"></i>store unavailable, work refused
<i class="dot k-stale"></i>late write refused <i class="dot k-killed"></i>killed <i class="dot k-broken"></i>broken promise (bottom line);
numbers above: what was done, listed below. One line per client, time from left to right; rest the pointer on anything for its details.</p>
"#;

/// Returns the whole page. `failed` lists the drills that could not be run, and why.
#[must_use]
pub fn page(verdicts: &[Verdict], failed: &[(String, String)]) -> String {
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Leasehold drills</title>\
         <meta name=\"viewport\" content=\"width=device-width\"><style>{STYLE}</style></head><body>\n<h1>Leasehold drills</h1>\n"
    );
    headline(&mut out, verdicts, failed);
    out.push_str(INTRODUCTION);
    summary(&mut out, verdicts, failed);
    out.push_str(COLUMN_HELP);
    for verdict in verdicts.iter().filter(|verdict| verdict.skipped.is_none()) {
        section(&mut out, verdict);
    }
    out.push_str("<section id=\"promises\"><h2>The promises</h2><table>\n");
    for (number, _) in invariant::ALL_INVARIANTS {
        out.push_str(&format!("<tr><th>{number}</th><td>{}</td></tr>\n", invariant::promise_text(number)));
    }
    out.push_str("</table></section>\n</body></html>\n");
    out
}

fn headline(out: &mut String, verdicts: &[Verdict], failed: &[(String, String)]) {
    let count = |outcome| verdicts.iter().filter(|verdict| verdict.outcome == outcome).count();
    let (clean, broken) = (count(Outcome::Clean), count(Outcome::Violation));
    let (class, mut words) = if broken > 0 {
        ("VIOLATION", format!("{broken} of {} drills broke a promise", clean + broken))
    } else if clean == 0 {
        ("skipped", "No drill was run".to_owned())
    } else {
        ("clean", format!("All {clean} drills that were run are clean"))
    };
    if !failed.is_empty() {
        words.push_str(&format!("; {} could not be run", failed.len()));
    }
    let took: f64 = verdicts.iter().map(|verdict| verdict.took.as_secs_f64()).sum();
    out.push_str(&format!(
        "<p class=\"headline {class}\">{words}. <span class=\"soft\">{:.0} min {:.0} s, version {}.</span></p>\n",
        (took / 60.0).floor(),
        took % 60.0,
        env!("CARGO_PKG_VERSION")
    ));
}

fn summary(out: &mut String, verdicts: &[Verdict], failed: &[(String, String)]) {
    out.push_str(
        "<div class=\"wide\"><table><tr><th>drill</th><th>store</th><th>verdict</th><th class=\"number\">took</th>\
         <th class=\"number\">time to fence</th><th class=\"number\">takeover</th><th class=\"number\">overlap</th>\
         <th class=\"number\">debt</th><th class=\"number\">grants</th><th class=\"number\">stale refused</th>\
         <th class=\"number\">twice</th></tr>\n",
    );
    for verdict in verdicts {
        let (word, drill, store) = (verdict.outcome.as_str(), verdict.drill, verdict.store);
        if let Some(why) = &verdict.skipped {
            out.push_str(&format!(
                "<tr><td>{drill}</td><td>{store}</td><td class=\"skipped\" colspan=\"9\">not run: {}</td></tr>\n",
                escape_html(why)
            ));
            continue;
        }
        let of = &verdict.measures;
        let control = if verdict.control { " (control)" } else { "" };
        out.push_str(&format!(
            "<tr><td><a href=\"#{drill}-{store}\">{drill}</a></td><td>{store}</td>\
             <td class=\"verdict {word}\">{word}{control}</td><td class=\"number\">{:.1} s</td>",
            verdict.took.as_secs_f64()
        ));
        for cell in [
            of.time_to_fence_s.map_or_else(dash, seconds),
            of.takeover_s.map_or_else(dash, seconds),
            seconds_or_dash(of.overlap_s),
            seconds_or_dash(of.debt_s),
            of.grants.to_string(),
            of.refused.to_string(),
            of.duplicates.to_string(),
        ] {
            out.push_str(&format!("<td class=\"number\">{cell}</td>"));
        }
        out.push_str("</tr>\n");
    }
    for (drill, why) in failed {
        out.push_str(&format!(
            "<tr><td colspan=\"2\">{}</td><td class=\"failed\" colspan=\"9\">could not be run: {}</td></tr>\n",
            escape_html(drill),
            escape_html(why)
        ));
    }
    out.push_str("</table></div>\n");
}

fn section(out: &mut String, verdict: &Verdict) {
    let (drill, store, word) = (verdict.drill, verdict.store, verdict.outcome.as_str());
    out.push_str(&format!(
        "<section id=\"{drill}-{store}\"><h2>{drill} on {store}: <span class=\"{word}\">{word}</span></h2>\n<p>{}{}</p>\n",
        escape_html(&sentence(verdict.about)),
        if verdict.classes.is_empty() {
            String::new()
        } else {
            format!(" <span class=\"soft\">Classes: {}.</span>", verdict.classes.join(", "))
        }
    ));
    if verdict.control {
        out.push_str(
            "<p>A <strong>control run</strong>: here the protection is switched off on purpose, and broken promises are what it must show. \
             If the checker found nothing here, its silence elsewhere would be worth nothing.</p>\n",
        );
    }
    cards(out, &verdict.measures);
    if !verdict.promises.is_empty() {
        out.push_str("<table><tr><th>promised</th><th></th><th>seen</th></tr>\n");
    }
    for promise in &verdict.promises {
        let mark = if promise.kept { "kept" } else { "BROKEN" };
        out.push_str(&format!(
            "<tr><td>{}</td><td class=\"{mark}\">{mark}</td><td>{}</td></tr>\n",
            escape_html(&promise.what),
            escape_html(&promise.seen)
        ));
    }
    if !verdict.promises.is_empty() {
        out.push_str("</table>\n");
    }
    out.push_str("<h3>What happened</h3>\n");
    out.push_str(&draw(&verdict.history, &verdict.judgement.findings));
    out.push_str(TIMELINE_KEY);
    let done = fault_list(&verdict.history);
    if !done.is_empty() {
        out.push_str("<ol>\n");
        for (at, fault) in done {
            out.push_str(&format!("<li>at {at:.2} s: {}</li>\n", escape_html(&fault)));
        }
        out.push_str("</ol>\n");
    }
    checker_result(out, verdict);
    out.push_str("<details><summary>All numbers</summary><table>\n");
    for (name, value) in super::readable_measures(&verdict.measures) {
        out.push_str(&format!("<tr><td>{name}</td><td class=\"number\">{}</td></tr>\n", escape_html(&value)));
    }
    out.push_str("</table></details></section>\n");
}

/// The key numbers of a drill. Times that were not measured are left out.
fn cards(out: &mut String, of: &Measures) {
    let all = [
        (of.time_to_fence_s.map(seconds), "time to fence"),
        (of.takeover_s.map(seconds), "takeover after a kill"),
        ((of.overlap_s > 0.0).then(|| seconds(of.overlap_s)), "overlap"),
        ((of.debts > 0).then(|| seconds(of.debt_s)), "debt"),
        (Some(of.grants.to_string()), "leases granted"),
        (Some(of.applied.to_string()), "writes applied"),
        (Some(of.refused.to_string()), "late writes refused"),
        (Some(of.duplicates.to_string()), "tasks ended twice"),
    ];
    out.push_str("<div class=\"cards\">");
    for (value, name) in all {
        if let Some(value) = value {
            out.push_str(&format!("<div class=\"card\"><strong>{value}</strong><span>{name}</span></div>"));
        }
    }
    out.push_str("</div>\n");
}

/// The checker's result: number of records, findings, and invariants that could not be judged.
fn checker_result(out: &mut String, verdict: &Verdict) {
    let judged = &verdict.judgement;
    let found = judged.findings.len() + judged.dropped_findings;
    out.push_str(&format!(
        "<p>The checker read {} records with {} grants and {} writes at the target: {}.</p>\n",
        judged.records,
        judged.grants,
        judged.applied,
        match (found, verdict.control) {
            (0, _) => "no promise is broken".to_owned(),
            (_, true) => format!("{found} broken promises, as it must be here"),
            (_, false) => format!("<strong class=\"BROKEN\">{found} broken promises</strong>"),
        }
    ));
    let shown = |number: &str| judged.judged_invariants.contains(&number);
    let not: Vec<_> =
        invariant::ALL_INVARIANTS.iter().map(|(number, _)| *number).filter(|number| !shown(number)).collect();
    if !not.is_empty() {
        out.push_str(&format!(
            "<p class=\"soft\">Not judged, because this history does not show it: {}.</p>\n",
            not.join(", ")
        ));
    }
    if let Some(lacks) = &judged.missing {
        out.push_str(&format!(
            "<p class=\"BROKEN\">The history is incomplete: nothing can be called clean: {}.</p>\n",
            escape_html(lacks)
        ));
    }
    if found == 0 {
        return;
    }
    let start = verdict.history.records.iter().map(|record| record.at).min().unwrap_or(0);
    out.push_str("<ul>\n");
    // A blind store breaks one promise thousands of times: twenty findings show the pattern.
    for found in judged.findings.iter().take(20) {
        out.push_str(&format!(
            "<li><strong>{}</strong> ({}) at {:.3} s, {}: {}</li>\n",
            found.invariant,
            invariant::promise_text(found.invariant),
            found.at.saturating_sub(start) as f64 / 1e9,
            escape_html(&found.name),
            escape_html(&found.why)
        ));
    }
    let hidden = found.saturating_sub(20);
    if hidden > 0 {
        out.push_str(&format!("<li>and {hidden} more</li>\n"));
    }
    out.push_str("</ul>\n");
}

fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|letter| letter.to_uppercase().to_string());
    format!("{}{}.", first.unwrap_or_default(), letters.as_str())
}

fn seconds(value: f64) -> String {
    format!("{value:.2} s")
}

fn seconds_or_dash(value: f64) -> String {
    // A dash instead of 0.00 s: most drills have neither overlap nor debt.
    if value > 0.0 { seconds(value) } else { dash() }
}

fn dash() -> String {
    "–".to_owned()
}
