//! The book: every page is in its table of contents, and every link leads somewhere.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

fn pages(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            pages(&path, into);
        } else if path.extension().is_some_and(|ending| ending == "md") {
            into.push(path);
        }
    }
}

/// The targets of a page's links, code left out.
fn links(text: &str) -> Vec<String> {
    let mut prose = String::new();
    let mut code = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            code = !code;
        } else if !code {
            // Every second piece stands between backticks.
            line.split('`').step_by(2).for_each(|piece| prose += piece);
            prose.push('\n');
        }
    }
    let targets = prose.split("](").skip(1);
    targets
        .filter_map(|rest| rest.split_once(')').map(|(target, _)| target.to_owned()))
        .collect()
}

/// A heading as links name it.
fn anchor(heading: &str) -> String {
    let text = heading
        .trim_start_matches('#')
        .trim()
        .to_lowercase()
        .replace(' ', "-");
    text.chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_'))
        .collect()
}

#[test]
fn every_page_is_in_the_table_of_contents() {
    let docs = root().join("docs");
    let summary = std::fs::read_to_string(docs.join("SUMMARY.md")).unwrap();
    let listed: Vec<_> = links(&summary).iter().map(|link| docs.join(link)).collect();
    let known: BTreeSet<_> = listed.iter().cloned().collect();
    assert_eq!(known.len(), listed.len(), "a page is listed twice");
    let mut there = Vec::new();
    pages(&docs, &mut there);
    there.retain(|page| !page.ends_with("SUMMARY.md"));
    let there: BTreeSet<_> = there.into_iter().collect();
    let missing: Vec<_> = there.symmetric_difference(&known).collect();
    assert!(missing.is_empty(), "not on both sides: {missing:?}");
}

#[test]
fn every_link_leads_somewhere() {
    let root = root();
    let mut all: Vec<_> = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"]
        .iter()
        .map(|page| root.join(page))
        .collect();
    pages(&root.join("docs"), &mut all);
    let mut broken = Vec::new();
    let mut followed = 0;
    for page in &all {
        let text = std::fs::read_to_string(page).unwrap();
        for link in links(&text) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            followed += 1;
            let (file, place) = link.split_once('#').unwrap_or((&link, ""));
            let target = match file {
                "" => page.clone(),
                _ => page.parent().unwrap().join(file),
            };
            let found = target.exists();
            let inside = place.is_empty()
                || found
                    && std::fs::read_to_string(&target)
                        .unwrap()
                        .lines()
                        .any(|line| line.starts_with('#') && anchor(line) == place);
            if !found || !inside {
                broken.push(format!("{}: {link}", page.strip_prefix(&root).unwrap().display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
    assert!(followed > 50, "only {followed} links were found");
}
