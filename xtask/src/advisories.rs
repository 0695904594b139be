//! Known vulnerabilities of the dependencies: the RustSec database for crates, the registry for npm packages.
//!
//! Both need a host that may be out of reach. A check that cannot be made is reported as not run, and does not fail the others.

use anyhow::ensure;
use serde_json::Value;

use crate::process::{CommandResult, capture_all, command, words};

/// The database that cargo-deny fetches.
const ADVISORY_DATABASE: &str = "https://github.com/RustSec/advisory-db";

/// What a check has found.
#[derive(Debug, PartialEq, Eq)]
enum AdvisoryCheck {
    Clean,
    NotRun(String),
    Vulnerable(String),
}

pub(crate) fn main() -> anyhow::Result<bool> {
    let mut clean = true;
    for (what, checked) in [("crates", check_crates()?), ("npm packages", check_npm()?)] {
        match checked {
            AdvisoryCheck::Clean => println!("{what}: no known vulnerability"),
            AdvisoryCheck::NotRun(why) => {
                println!("{what}: NOT RUN, known vulnerabilities were not looked for: {why}")
            }
            AdvisoryCheck::Vulnerable(report) => {
                eprintln!("{what}: known vulnerabilities:\n{report}");
                clean = false;
            }
        }
    }
    Ok(clean)
}

fn check_crates() -> anyhow::Result<AdvisoryCheck> {
    // Asked first: cargo-deny ends with the same exit code without a database and with a vulnerability.
    let mut probe = words("timeout 30 git ls-remote --exit-code");
    let reached = capture_all(probe.args([ADVISORY_DATABASE, "HEAD"]).env("GIT_TERMINAL_PROMPT", "0"))?;
    if !reached.success() {
        return Ok(AdvisoryCheck::NotRun(format!(
            "{ADVISORY_DATABASE} cannot be reached: {}",
            reached.last_line()
        )));
    }
    crate::process::need(&["cargo-deny"])?;
    let ended = capture_all(&mut words("cargo deny --all-features --locked check advisories"))?;
    Ok(if ended.success() { AdvisoryCheck::Clean } else { AdvisoryCheck::Vulnerable(ended.text) })
}

fn check_npm() -> anyhow::Result<AdvisoryCheck> {
    // `web/.npmrc` turns audits off, because `npm ci` must not depend on the registry's answer.
    let mut audit = command("npm");
    audit
        .args(["audit", "--json", "--package-lock-only", "--audit=true", "--loglevel=silent"])
        .current_dir("web");
    let ended = crate::process::capture(&mut audit)?;
    judge_npm_report(&ended)
}

/// Tells a report from an error of the registry; npm ends with 1 for both.
fn judge_npm_report(ended: &CommandResult) -> anyhow::Result<AdvisoryCheck> {
    let report: Value = serde_json::from_str(&ended.text).unwrap_or_default();
    if report.get("auditReportVersion").is_none() {
        let why = report["message"].as_str().unwrap_or_else(|| ended.last_line());
        return Ok(AdvisoryCheck::NotRun(format!("npm audit: {why}")));
    }
    let total = report.pointer("/metadata/vulnerabilities/total").and_then(Value::as_u64);
    ensure!(total.is_some(), "npm audit has another format:\n{}", ended.tail(20));
    Ok(if total == Some(0) {
        AdvisoryCheck::Clean
    } else {
        AdvisoryCheck::Vulnerable(report["vulnerabilities"].to_string())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registry_without_an_audit_differs_from_a_clean_report() {
        let judge = |text: &str| judge_npm_report(&CommandResult { code: 1, text: text.to_owned() });
        let report = |total: u32| {
            format!(
                r#"{{"auditReportVersion":2,"vulnerabilities":{{"x":{{}}}},"metadata":{{"vulnerabilities":{{"total":{total}}}}}}}"#
            )
        };
        assert_eq!(judge(&report(0)).unwrap(), AdvisoryCheck::Clean);
        assert_eq!(judge(&report(1)).unwrap(), AdvisoryCheck::Vulnerable(r#"{"x":{}}"#.to_owned()));
        let refused = judge(r#"{"message":"405 Method Not Allowed","statusCode":405}"#).unwrap();
        assert_eq!(refused, AdvisoryCheck::NotRun("npm audit: 405 Method Not Allowed".to_owned()));
        assert!(matches!(judge("").unwrap(), AdvisoryCheck::NotRun(_)));
        assert!(judge(r#"{"auditReportVersion":3}"#).is_err());
    }
}
