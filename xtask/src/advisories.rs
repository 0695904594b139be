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

impl AdvisoryCheck {
    fn report(&self, what: &str) -> String {
        match self {
            Self::Clean => format!("{what}: no known vulnerability"),
            Self::NotRun(why) => {
                format!("{what}: NOT RUN, known vulnerabilities were not looked for: {why}")
            }
            Self::Vulnerable(report) => format!("{what}: known vulnerabilities:\n{report}"),
        }
    }
}

pub(crate) fn main() -> anyhow::Result<bool> {
    let mut clean = true;
    for (what, checked) in [("crates", check_crates(ADVISORY_DATABASE)?), ("npm packages", check_npm()?)] {
        println!("{}", checked.report(what));
        clean &= !matches!(checked, AdvisoryCheck::Vulnerable(_));
    }
    Ok(clean)
}

fn check_crates(database: &str) -> anyhow::Result<AdvisoryCheck> {
    // Asked first: cargo-deny ends with the same exit code without a database and with a vulnerability.
    let mut probe = words("timeout 30 git ls-remote --exit-code");
    let reached = capture_all(probe.args([database, "HEAD"]).env("GIT_TERMINAL_PROMPT", "0"))?;
    if !reached.success() {
        return Ok(AdvisoryCheck::NotRun(format!("{database} cannot be reached: {}", reached.last_line())));
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

    /// Finding 30 of the security review.
    #[test]
    fn finding_30_a_check_without_its_database_is_not_run_and_says_so() {
        let database = concat!(env!("CARGO_MANIFEST_DIR"), "/no-such-database");
        let checked = check_crates(database).unwrap();
        assert!(matches!(checked, AdvisoryCheck::NotRun(_)), "{checked:?}");
        let report = checked.report("crates");
        assert!(report.starts_with("crates: NOT RUN") && report.contains(database), "{report}");
        for other in [AdvisoryCheck::Clean, AdvisoryCheck::Vulnerable("RUSTSEC-1".to_owned())] {
            assert!(!other.report("crates").contains("NOT RUN"), "{other:?}");
        }
    }

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
