//! Verdicts as one HTML page.

use super::timeline::{draw, escape, faults};
use crate::invariant;
use crate::scenario::{Outcome, Verdict};

const STYLE: &str = "
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; color: #1c1c1c; background: #fff }
table { border-collapse: collapse; margin: .5rem 0 } td, th { text-align: left; padding: .2rem .8rem .2rem 0; vertical-align: top }
section { border-top: 1px solid #ccc; margin-top: 2rem } svg { width: 100%; height: auto; font-size: 11px }
.clean { color: #17692b } .VIOLATION, .BROKEN { color: #b3121d; font-weight: 600 } .skipped { color: #666 }
.lane { stroke: #ddd } .held { fill: #3a8f5c } .unproven { fill: #e59a1c } .stopped { fill: #555; opacity: .55 }
.fault path { stroke: #444; stroke-dasharray: 3 3 } .tick { fill: #777; text-anchor: middle } .fault text { text-anchor: middle; font-weight: 600 }
.refused { fill: #8b98a5 } .fenced { fill: #2457c5 } .stale { fill: #a23cc0 } .killed { fill: #000 } .broken { fill: #d3121d }
.key span { display: inline-block; width: .8rem; height: .8rem; margin: 0 .3rem 0 1rem; vertical-align: -1px }
";

const KEY: &str = r#"<p class="key">
<span style="background:#3a8f5c"></span>holds a lease <span style="background:#e59a1c"></span>works without a provable lease
<span style="background:#555"></span>process stopped <span style="background:#2457c5"></span>fenced (had to stop)
<span style="background:#8b98a5"></span>store unavailable, work refused <span style="background:#a23cc0"></span>stale write refused
<span style="background:#000"></span>killed <span style="background:#d3121d"></span>broken promise (bottom line)</p>
"#;

/// The whole page. It loads nothing and runs nothing.
#[must_use]
pub fn page(verdicts: &[Verdict]) -> String {
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Leasehold drills</title>\
         <meta name=\"viewport\" content=\"width=device-width\"><style>{STYLE}</style></head><body>\n<h1>Leasehold drills</h1>\n\
         <p>Each drill breaks something on purpose while real processes take real locks. The verdict compares what the lock's \
         class promises in that situation with what was seen, and a checker that knows nothing of the code judges the whole \
         history against the numbered promises below.</p>\n<table><tr><th>Drill</th><th>Store</th><th>Verdict</th></tr>\n"
    );
    for verdict in verdicts {
        let (word, drill) = (verdict.outcome.word(), verdict.drill);
        out.push_str(&format!(
            "<tr><td><a href=\"#{drill}-{0}\">{drill}</a></td><td>{0}</td><td class=\"{word}\">{word}</td></tr>\n",
            verdict.store
        ));
    }
    out.push_str("</table>\n");
    for verdict in verdicts {
        section(&mut out, verdict);
    }
    out.push_str("<section><h2>The promises</h2><table>\n");
    for (number, _) in invariant::ALL {
        out.push_str(&format!(
            "<tr><th>{number}</th><td>{}</td></tr>\n",
            invariant::promise(number)
        ));
    }
    out.push_str("</table></section>\n</body></html>\n");
    out
}

fn section(out: &mut String, verdict: &Verdict) {
    let (drill, store, word) = (verdict.drill, verdict.store, verdict.outcome.word());
    out.push_str(&format!(
        "<section id=\"{drill}-{store}\"><h2>{drill} on {store}: <span class=\"{word}\">{word}</span></h2>\n<p>{}</p>\n",
        escape(verdict.about)
    ));
    if verdict.control {
        out.push_str(
            "<p>A control run: broken promises are what it must show, or the checker is blind.</p>\n",
        );
    }
    if let Some(why) = &verdict.skipped {
        out.push_str(&format!(
            "<p class=\"skipped\">Not run: {}</p></section>\n",
            escape(why)
        ));
        return;
    }
    out.push_str("<table><tr><th>Promised</th><th></th><th>Seen</th></tr>\n");
    for promise in &verdict.promises {
        let mark = if promise.kept { "kept" } else { "BROKEN" };
        out.push_str(&format!(
            "<tr><td>{}</td><td class=\"{mark}\">{mark}</td><td>{}</td></tr>\n",
            escape(&promise.what),
            escape(&promise.seen)
        ));
    }
    out.push_str("</table>\n");
    out.push_str(&draw(&verdict.history, &verdict.judgement.findings));
    out.push_str(KEY);
    out.push_str("<ol>\n");
    for (at, fault) in faults(&verdict.history) {
        out.push_str(&format!("<li>at {at:.2} s: {}</li>\n", escape(&fault)));
    }
    out.push_str("</ol>\n<table>\n");
    for (name, value) in super::measures(&verdict.measures) {
        out.push_str(&format!("<tr><td>{name}</td><td>{}</td></tr>\n", escape(&value)));
    }
    out.push_str("</table>\n");
    if verdict.outcome == Outcome::Clean && verdict.judgement.findings.is_empty() {
        out.push_str(&format!(
            "<p>{} records checked: no promise broken.</p>\n",
            verdict.judgement.records
        ));
    }
    if verdict.judgement.incomplete {
        out.push_str("<p class=\"BROKEN\">The history is incomplete: nothing can be called clean.</p>\n");
    }
    if !verdict.judgement.findings.is_empty() {
        out.push_str("<h3>What the checker found</h3><table>\n");
        for found in &verdict.judgement.findings {
            out.push_str(&format!(
                "<tr><th>{}</th><td>{}</td><td>{}</td></tr>\n",
                found.invariant,
                escape(&found.name),
                escape(&found.why)
            ));
        }
        out.push_str("</table>\n");
        if verdict.judgement.more > 0 {
            out.push_str(&format!("<p>And {} more.</p>\n", verdict.judgement.more));
        }
    }
    out.push_str("</section>\n");
}
