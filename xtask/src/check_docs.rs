//! Every test that the docs name must exist, the security review's table must name every test of a finding, and the proof's page must
//! match the ledger.

use std::collections::{BTreeSet, HashSet};
use std::path::Path;

use anyhow::Context;

use crate::ledger::Ledger;
use crate::page;

/// Pages that name tests.
const PAGES: [&str; 3] = ["docs/traps.md", "docs/hazards.md", REVIEW_PAGE];

const REVIEW_PAGE: &str = "docs/security-review.md";

/// Folders with tests.
const CODE: [&str; 2] = ["crates", "xtask"];

/// What the name of a test begins with that a page names; a number of two digits follows.
const PREFIXES: [&str; 3] = ["trap_", "finding_", "r"];

pub(crate) fn main() -> anyhow::Result<bool> {
    let mut named = Vec::new();
    for path in PAGES {
        let text = std::fs::read_to_string(path).context(path)?;
        named.extend(named_tests(&text).map(str::to_owned));
    }
    named.sort_unstable();
    named.dedup();
    let (mut words, mut findings) = (HashSet::new(), BTreeSet::new());
    for folder in CODE {
        read_sources(Path::new(folder), &mut |text| {
            words.extend(words_of(text).filter(|word| is_test_name(word)).map(str::to_owned));
            findings.extend(finding_tests(text).map(str::to_owned));
        })?;
    }
    let missing = named.iter().filter(|name| !words.contains(*name));
    let mut problems: Vec<_> =
        missing.map(|name| format!("the docs name a test {name}, which does not exist")).collect();
    problems.extend(review_problems(&std::fs::read_to_string(REVIEW_PAGE)?, &findings));
    problems.iter().for_each(|problem| eprintln!("check-docs: {problem}"));
    page::check(&Ledger::read()?)?;
    Ok(problems.is_empty())
}

/// How the table of the security review differs from the tests of its findings: row `NN` names every test
/// `finding_NN_…`, and no other.
fn review_problems(page: &str, findings: &BTreeSet<String>) -> Vec<String> {
    let rows = page.lines().filter_map(|line| {
        let (number, rest) = line.strip_prefix("| ")?.split_once(" |")?;
        Some((number.parse::<u8>().ok()?, rest))
    });
    let mut listed = BTreeSet::new();
    let mut problems = Vec::new();
    for (number, rest) in rows {
        for name in named_tests(rest).filter(|name| name.starts_with("finding_")) {
            if !name.starts_with(&format!("finding_{number:02}_")) {
                problems.push(format!("{REVIEW_PAGE}: row {number} names {name}, a test of another finding"));
            } else if !findings.contains(name) {
                problems.push(format!("{REVIEW_PAGE}: row {number} names {name}, which is no test"));
            }
            listed.insert(name);
        }
    }
    let unlisted = findings.iter().filter(|name| !listed.contains(name.as_str()));
    problems.extend(unlisted.map(|name| format!("{REVIEW_PAGE}: no row names the test {name}")));
    problems
}

/// Names such as `trap_07_x`, `finding_15_z` and `r01_y` between back-ticks.
fn named_tests(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2).filter(|word| is_test_name(word))
}

fn is_test_name(word: &str) -> bool {
    let Some(rest) = PREFIXES.iter().find_map(|prefix| word.strip_prefix(prefix)) else { return false };
    let mut bytes = rest.bytes();
    let numbered =
        bytes.by_ref().take(2).filter(u8::is_ascii_digit).count() == 2 && bytes.next() == Some(b'_');
    numbered
        && rest.len() > 3
        && rest.bytes().all(|at| at.is_ascii_lowercase() || at.is_ascii_digit() || at == b'_')
}

/// The identifiers of a source text.
fn words_of(text: &str) -> impl Iterator<Item = &str> {
    text.split(|at: char| at != '_' && !at.is_ascii_alphanumeric())
}

/// The functions `finding_NN_…` of a source text.
fn finding_tests(text: &str) -> impl Iterator<Item = &str> {
    let functions = text.split("fn ").skip(1).filter_map(|rest| words_of(rest).next());
    functions.filter(|name| name.starts_with("finding_") && is_test_name(name))
}

/// Reads every Rust file below a folder.
fn read_sources(folder: &Path, read: &mut impl FnMut(&str)) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            read_sources(&path, read)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            read(&std::fs::read_to_string(&path).with_context(|| path.display().to_string())?);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_tests_are_distinguished_from_other_code() {
        let text = "see `trap_11_grows` and `r13_one_renewal`, not trap_12_x or `trap_1_x`, `r13`, `renew_now`, `trap_11_`";
        assert_eq!(named_tests(text).collect::<Vec<_>>(), ["trap_11_grows", "r13_one_renewal"]);
        let text =
            "`finding_15_the_log_is_bounded`, not `finding_5_x`, `finding_15_`, finding_15_y or `finding_15`";
        assert_eq!(named_tests(text).collect::<Vec<_>>(), ["finding_15_the_log_is_bounded"]);
    }

    #[test]
    fn the_table_of_the_review_names_every_test_in_its_row() {
        // Not as one text: the check would take these for tests of this workspace.
        let code = "async FN finding_01_a() {}\n#[test]\nFN finding_02_b() { finding_03_called(); }\nFN finding_2_c() {}";
        let code = code.replace("FN", "fn");
        let tests: BTreeSet<_> = finding_tests(&code).map(str::to_owned).collect();
        assert_eq!(tests.iter().collect::<Vec<_>>(), ["finding_01_a", "finding_02_b"]);
        let problems = |page: &str| review_problems(page, &tests);
        let good = "| # | what | tests |\n|---|---|---|\n| 1 | x | `finding_01_a` |\n| 2 | y | `finding_02_b`, `web/x` |\n";
        assert_eq!(problems(good), Vec::<String>::new());
        for (from, to, named) in [
            ("`finding_02_b`, ", "", "no row names the test finding_02_b"),
            ("| 2 |", "| 4 |", "row 4 names finding_02_b, a test of another finding"),
            (
                "`finding_01_a`",
                "`finding_01_a`, `finding_01_z`",
                "row 1 names finding_01_z, which is no test",
            ),
        ] {
            let found = problems(&good.replace(from, to));
            assert!(found.len() == 1 && found[0].contains(named), "{found:?}");
        }
    }
}
