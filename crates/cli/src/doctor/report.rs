//! Prints the findings as text or JSON.

use std::io::Write;

use anstyle::{AnsiColor, Style};
use leasehold::StoreUrl;
use leasehold::store::{Examination, Severity};
use serde_json::{Map, Value, json};

use super::DoctorArgs;
use crate::args::ReportFormat;
use crate::output::Output;

pub(super) fn print_report(url: &StoreUrl, found: &Examination, args: &DoctorArgs) -> anyhow::Result<()> {
    let mut out = crate::output::stdout();
    match args.output {
        ReportFormat::Json => writeln!(out, "{:#}", report_document(url, found, args))?,
        ReportFormat::Text => write_text(&mut out, url, found, args)?,
    }
    out.flush()?;
    Ok(())
}

fn report_document(url: &StoreUrl, found: &Examination, args: &DoctorArgs) -> Value {
    let facts: Map<String, Value> =
        found.facts.iter().map(|(key, value)| ((*key).to_owned(), value.clone().into())).collect();
    let findings: Vec<_> = found
        .findings
        .iter()
        .map(|finding| {
            json!({
                "code": finding.code,
                "severity": finding.severity,
                "what": finding.what,
                "advice": finding.advice,
                // Accepted findings stay in the report; they only do not count for the exit code.
                "accepted": args.accept.iter().any(|code| code == finding.code),
            })
        })
        .collect();
    let broken = |finding: &Value| finding["severity"] == "breaks" && finding["accepted"] == false;
    json!({
        "schema_version": 1,
        "store": url.to_string(),
        "clean": !findings.iter().any(broken),
        "promise": found.promised.as_ref().map(|promised| promised.promise.to_string()),
        "round_trip_us": found.round_trip.map(|trip| u64::try_from(trip.as_micros()).unwrap_or(u64::MAX)),
        "facts": facts,
        "findings": findings,
    })
}

fn write_text(
    out: &mut Output,
    url: &StoreUrl,
    found: &Examination,
    args: &DoctorArgs,
) -> std::io::Result<()> {
    let promise = found
        .promised
        .as_ref()
        .map_or_else(|| "nothing known".to_owned(), |promised| promised.promise.to_string());
    let trip = found
        .round_trip
        .map_or_else(String::new, |trip| format!(", round trip {:.1}ms", trip.as_secs_f64() * 1000.0));
    writeln!(out, "{url}: promises {promise}{trip}")?;
    for finding in &found.findings {
        let colour = match finding.severity {
            Severity::Note => AnsiColor::Cyan,
            Severity::Risk => AnsiColor::Yellow,
            _ => AnsiColor::Red,
        };
        let style = Style::new().bold().fg_color(Some(colour.into()));
        let accepted = args.accept.iter().any(|code| code == finding.code);
        let mark = if accepted { " (accepted)" } else { "" };
        writeln!(out)?;
        out.write_styled(style, &finding.severity.to_string())?;
        writeln!(out, " {}{mark}", finding.code)?;
        writeln!(out, "  {}", finding.what)?;
        writeln!(out, "  do: {}", finding.advice)?;
    }
    let count = |severity| found.findings.iter().filter(|finding| finding.severity == severity).count();
    let (breaks, risks, notes) = (count(Severity::Breaks), count(Severity::Risk), count(Severity::Note));
    if found.findings.is_empty() {
        writeln!(out, "nothing found")
    } else {
        writeln!(out, "\n{breaks} that break a promise, {risks} risks, {notes} notes")
    }
}
