//! Tests of the documentation.
//!
//! Every page is in the table of contents, and every link has a target. The parser accepts every
//! `leasehold` command in the book, the README and the help texts.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use leasehold_cli::testing::definition;

use crate::book::page_commands;

/// The commands of a page that must be accepted.
fn accepted_commands(text: &str) -> Vec<String> {
    let shown = page_commands(text).into_iter();
    // Exit code 2 marks a refusal on purpose: the transcript shows it.
    shown.filter(|line| line.expected_code != 2).map(|line| line.command).collect()
}

/// The commands inside a page's sentences; `…`, `[…]` and the like mark a pattern, not a command.
fn mentioned_commands(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut code = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            code = !code;
        } else if !code {
            let quoted = line.split('`').skip(1).step_by(2);
            let whole = quoted.filter(|text| {
                text.starts_with("leasehold ")
                    && !text.contains(" VERB")
                    && !text.contains(['…', '[', '|', '*', '{'])
            });
            found.extend(whole.map(str::to_owned));
        }
    }
    found
}

fn repository_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn collect_pages(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect_pages(&path, into);
        } else if path.extension().is_some_and(|ending| ending == "md") {
            into.push(path);
        }
    }
}

/// Splits a shell line into simple commands; knows enough of the grammar for the documentation.
fn split_commands(line: &str) -> Vec<Vec<String>> {
    let mut all = vec![Vec::new()];
    let (mut word, mut any) = (String::new(), false);
    let mut quote: Option<char> = None;
    let mut chars = line.chars().peekable();
    let end_word = |word: &mut String, any: &mut bool, all: &mut Vec<Vec<String>>| {
        if std::mem::take(any) {
            let last = all.last_mut().unwrap();
            last.push(std::mem::take(word));
        }
    };
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (Some('\''), _) => word.push(c),
            (_, '$') if chars.peek() == Some(&'(') => {
                chars.next();
                // The inner text is a command of its own; for the outer one it is an arbitrary word.
                let rest: String = chars.clone().collect();
                let inner = rest.split(')').next().unwrap_or_default().to_owned();
                // Including the closing bracket.
                (0..=inner.chars().count()).for_each(|_| {
                    chars.next();
                });
                let outer = all.pop().unwrap();
                all.extend(split_commands(&inner));
                all.push(outer);
                word.push('x');
                any = true;
            }
            (Some(_), _) => word.push(c),
            (None, '\'' | '"') => {
                quote = Some(c);
                any = true;
            }
            (None, '#') if !any => break,
            (None, ';' | '|' | '&' | ')') => {
                end_word(&mut word, &mut any, &mut all);
                all.push(Vec::new());
            }
            (None, '(') if !any => {}
            (None, c) if c.is_whitespace() => end_word(&mut word, &mut any, &mut all),
            (None, c) => {
                word.push(c);
                any = true;
            }
        }
    }
    end_word(&mut word, &mut any, &mut all);
    all
}

/// The arguments for leasehold, without assignments and redirections; `None` for other programs.
fn own_arguments(words: &[String]) -> Option<Vec<String>> {
    let assigned = |word: &&String| word.contains('=') && !word.starts_with('-');
    let mut words = words.iter().skip_while(assigned).peekable();
    let program = words.next()?;
    match program.as_str() {
        "leasehold" => {}
        // The README uses `cargo run` before anything is installed. Other packages' binaries are not ours.
        "cargo" if words.next()? == "run" => {
            let before: Vec<_> = words.by_ref().take_while(|word| *word != "--").collect();
            if before.iter().any(|word| *word == "-p" || *word == "--example") {
                return None;
            }
        }
        _ => return None,
    }
    let mut kept = vec!["leasehold".to_owned()];
    while let Some(word) = words.next() {
        match word.trim_start_matches(|c: char| c.is_ascii_digit()) {
            ">" | ">>" | "<" => drop(words.next()),
            redirected if redirected.starts_with(['>', '<']) => {}
            _ => kept.push(word.clone()),
        }
    }
    Some(kept)
}

#[test]
fn every_command_of_the_book_is_accepted() {
    let root = repository_root();
    let mut files = vec![root.join("README.md")];
    collect_pages(&root.join("docs"), &mut files);
    let (mut tried, mut refused) = (0, Vec::new());
    for file in files {
        for line in accepted_commands(&std::fs::read_to_string(&file).unwrap()) {
            for words in split_commands(&line).iter().filter_map(|words| own_arguments(words)) {
                tried += 1;
                let Err(error) = definition().try_get_matches_from(&words) else {
                    continue;
                };
                // Help is a valid result. A placeholder cannot pass value validation.
                use clap::error::ErrorKind::{DisplayHelp, DisplayVersion, ValueValidation};
                if !matches!(error.kind(), DisplayHelp | DisplayVersion | ValueValidation) {
                    refused.push(format!("{}: {line}\n  {error}", file.display()));
                }
            }
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
    assert!(tried > 70, "only {tried} commands were found");
}

#[test]
fn every_command_that_is_mentioned_exists() {
    use clap::error::ErrorKind::{InvalidSubcommand, UnknownArgument};
    let root = repository_root();
    let mut files = vec![root.join("README.md"), root.join("CONTRIBUTING.md"), root.join("CHANGELOG.md")];
    collect_pages(&root.join("docs"), &mut files);
    // The ledger's page records the commands of earlier commits, which those commits accepted.
    files.retain(|file| !file.ends_with("docs/proof/README.md"));
    let mut tried = 0;
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        for words in mentioned_commands(&text).iter().flat_map(|line| split_commands(line)) {
            let Some(words) = own_arguments(&words) else {
                continue;
            };
            tried += 1;
            // A mention may omit required arguments, so only unknown verbs and options count.
            if let Err(error) = definition().try_get_matches_from(&words) {
                let known = !matches!(error.kind(), InvalidSubcommand | UnknownArgument);
                assert!(known, "{}: {}\n{error}", file.display(), words.join(" "));
            }
        }
    }
    assert!(tried > 50, "only {tried} were found");
}

#[test]
fn every_example_in_the_help_is_accepted() {
    fn walk(command: &clap::Command, tried: &mut usize) {
        let help = command.get_after_long_help().or(command.get_after_help());
        let text = help.map(ToString::to_string).unwrap_or_default();
        let examples = text.lines().map(str::trim).filter(|line| line.contains("leasehold "));
        // An explanation follows after two spaces.
        let examples = examples.map(|line| line.split_once("  ").map_or(line, |(command, _)| command));
        for words in examples.flat_map(split_commands).filter_map(|words| own_arguments(&words)) {
            *tried += 1;
            use clap::error::ErrorKind::{DisplayHelp, ValueValidation};
            if let Err(error) = definition().try_get_matches_from(&words) {
                let placeholder = matches!(error.kind(), DisplayHelp | ValueValidation);
                assert!(placeholder, "{}\n{error}", words.join(" "));
            }
        }
        command.get_subcommands().for_each(|sub| walk(sub, tried));
    }
    let mut tried = 0;
    walk(&definition(), &mut tried);
    assert!(tried > 20, "only {tried} were found");
}

#[test]
fn an_invalid_command_is_detected() {
    let found =
        |line: &str| split_commands(line).iter().filter_map(|words| own_arguments(words)).collect::<Vec<_>>();
    let words = |line: &str| found(line).concat().join(" ");
    assert_eq!(
        words("A=1 leasehold run x -- sh -c 'a; b' > out 2>&1 # why"),
        "leasehold run x -- sh -c a; b"
    );
    assert_eq!(found("eval \"$(leasehold acquire d)\"; leasehold release").len(), 2);
    assert_eq!(words("cargo run -q -- show demo"), "leasehold show demo");
    assert!(definition().try_get_matches_from(&found("leasehold frobnicate x")[0]).is_err());
    assert_eq!(
        accepted_commands("```console\n$ leasehold \\\n> show x\nx free\n```\n```text\nleasehold y\n```"),
        ["leasehold show x"]
    );
}

/// The targets of a page's links, outside of code.
fn link_targets(text: &str) -> Vec<String> {
    let mut prose = String::new();
    let mut code = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            code = !code;
        } else if !code {
            // Every second piece is between backticks.
            line.split('`').step_by(2).for_each(|piece| prose += piece);
            prose.push('\n');
        }
    }
    let targets = prose.split("](").skip(1);
    targets.filter_map(|rest| rest.split_once(')').map(|(target, _)| target.to_owned())).collect()
}

/// The anchor of a heading.
fn heading_anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
    text.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect()
}

#[test]
fn every_page_is_in_the_table_of_contents() {
    let docs = repository_root().join("docs");
    let summary = std::fs::read_to_string(docs.join("SUMMARY.md")).unwrap();
    let listed: Vec<_> = link_targets(&summary).iter().map(|link| docs.join(link)).collect();
    let known: BTreeSet<_> = listed.iter().cloned().collect();
    assert_eq!(known.len(), listed.len(), "a page is listed twice");
    let mut there = Vec::new();
    collect_pages(&docs, &mut there);
    there.retain(|page| !page.ends_with("SUMMARY.md"));
    let there: BTreeSet<_> = there.into_iter().collect();
    let missing: Vec<_> = there.symmetric_difference(&known).collect();
    assert!(missing.is_empty(), "not on both sides: {missing:?}");
}

#[test]
fn every_link_has_a_target() {
    let root = repository_root();
    let mut all: Vec<_> = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"]
        .iter()
        .map(|page| root.join(page))
        .collect();
    collect_pages(&root.join("docs"), &mut all);
    let mut broken = Vec::new();
    let mut followed = 0;
    for page in &all {
        let text = std::fs::read_to_string(page).unwrap();
        for link in link_targets(&text) {
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
                        .any(|line| line.starts_with('#') && heading_anchor(line) == place);
            if !found || !inside {
                broken.push(format!("{}: {link}", page.strip_prefix(&root).unwrap().display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
    assert!(followed > 50, "only {followed} links were found");
}
