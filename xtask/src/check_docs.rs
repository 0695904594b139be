//! Every test that the docs name must exist, and the proof's page must match the ledger.

use std::collections::HashSet;
use std::path::Path;

use anyhow::Context;

use crate::ledger::Ledger;
use crate::page;

/// Pages that name tests.
const PAGES: [&str; 3] = ["docs/traps.md", "docs/hazards.md", "docs/security-review.md"];

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
    let mut words = HashSet::new();
    collect_words(Path::new("crates"), &mut words)?;
    let mut complete = true;
    for name in named.iter().filter(|name| !words.contains(*name)) {
        eprintln!("check-docs: the docs name a test {name}, which does not exist");
        complete = false;
    }
    page::check(&Ledger::read()?)?;
    Ok(complete)
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

/// Every identifier in the Rust files below a folder.
fn collect_words(folder: &Path, words: &mut HashSet<String>) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            collect_words(&path, words)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            let found = text.split(|at: char| at != '_' && !at.is_ascii_alphanumeric());
            words.extend(found.filter(|word| is_test_name(word)).map(str::to_owned));
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
}
