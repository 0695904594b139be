//! The book: every page is in its table of contents, every link leads somewhere, and every `leasehold` command that it or the README shows
//! is one that the program takes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::CommandFactory;

use crate::args::Cli;

// The tests that run them read them the same way.
#[path = "../tests/command/book/lines.rs"]
mod shown;

/// The commands of a page that are meant to be taken.
fn lines(text: &str) -> Vec<String> {
    let shown = shown::lines(text).into_iter();
    // 2 is a refusal on purpose: the transcript is run, and says so.
    shown
        .filter(|line| line.code != 2)
        .map(|line| line.command)
        .collect()
}

/// The commands within a page's sentences; `…`, `[…]` and the like make it a pattern, not a command.
fn mentioned(text: &str) -> Vec<String> {
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

/// The simple commands of a line, as words: enough of a shell's grammar for documentation.
fn commands(line: &str) -> Vec<Vec<String>> {
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
                // What stands in it is a command of its own; to the outer one it is some word.
                let rest: String = chars.clone().collect();
                let inner = rest.split(')').next().unwrap_or_default().to_owned();
                // And its closing bracket.
                (0..=inner.chars().count()).for_each(|_| {
                    chars.next();
                });
                let outer = all.pop().unwrap();
                all.extend(commands(&inner));
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

/// The words for the program, without what the shell keeps to itself; `None` for other programs.
fn ours(words: &[String]) -> Option<Vec<String>> {
    let assigned = |word: &&String| word.contains('=') && !word.starts_with('-');
    let mut words = words.iter().skip_while(assigned).peekable();
    let program = words.next()?;
    match program.as_str() {
        "leasehold" => {}
        // As the README does, where nothing is installed yet; other packages' programs are theirs.
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
fn every_command_of_the_book_is_taken() {
    let root = root();
    let mut files = vec![root.join("README.md")];
    pages(&root.join("docs"), &mut files);
    let (mut tried, mut refused) = (0, Vec::new());
    for file in files {
        for line in lines(&std::fs::read_to_string(&file).unwrap()) {
            for words in commands(&line).iter().filter_map(|words| ours(words)) {
                tried += 1;
                let Err(error) = Cli::command().try_get_matches_from(&words) else {
                    continue;
                };
                // Help is an answer; and what a value must look like is not known of a placeholder.
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
    let root = root();
    let mut files = vec![
        root.join("README.md"),
        root.join("CONTRIBUTING.md"),
        root.join("CHANGELOG.md"),
    ];
    pages(&root.join("docs"), &mut files);
    let mut tried = 0;
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        for words in mentioned(&text).iter().flat_map(|line| commands(line)) {
            let Some(words) = ours(&words) else { continue };
            tried += 1;
            // It may leave out what a reader must add.
            if let Err(error) = Cli::command().try_get_matches_from(&words) {
                let known = !matches!(error.kind(), InvalidSubcommand | UnknownArgument);
                assert!(known, "{}: {}\n{error}", file.display(), words.join(" "));
            }
        }
    }
    assert!(tried > 50, "only {tried} were found");
}

#[test]
fn every_example_in_the_help_is_taken() {
    fn walk(command: &clap::Command, tried: &mut usize) {
        let help = command.get_after_long_help().or(command.get_after_help());
        let text = help.map(ToString::to_string).unwrap_or_default();
        let examples = text
            .lines()
            .map(str::trim)
            .filter(|line| line.contains("leasehold "));
        // What it does stands behind it.
        let examples = examples.map(|line| line.split_once("  ").map_or(line, |(command, _)| command));
        for words in examples.flat_map(commands).filter_map(|words| ours(&words)) {
            *tried += 1;
            use clap::error::ErrorKind::{DisplayHelp, ValueValidation};
            if let Err(error) = Cli::command().try_get_matches_from(&words) {
                let placeholder = matches!(error.kind(), DisplayHelp | ValueValidation);
                assert!(placeholder, "{}\n{error}", words.join(" "));
            }
        }
        command.get_subcommands().for_each(|sub| walk(sub, tried));
    }
    let mut tried = 0;
    walk(&Cli::command(), &mut tried);
    assert!(tried > 20, "only {tried} were found");
}

#[test]
fn a_command_that_is_not_taken_is_found() {
    let found = |line: &str| {
        commands(line)
            .iter()
            .filter_map(|words| ours(words))
            .collect::<Vec<_>>()
    };
    let words = |line: &str| found(line).concat().join(" ");
    assert_eq!(
        words("A=1 leasehold run x -- sh -c 'a; b' > out 2>&1 # why"),
        "leasehold run x -- sh -c a; b"
    );
    assert_eq!(
        found("eval \"$(leasehold acquire d)\"; leasehold release").len(),
        2
    );
    assert_eq!(words("cargo run -q -- show demo"), "leasehold show demo");
    assert!(
        Cli::command()
            .try_get_matches_from(&found("leasehold frobnicate x")[0])
            .is_err()
    );
    assert_eq!(
        lines("```console\n$ leasehold \\\n> show x\nx free\n```\n```text\nleasehold y\n```"),
        ["leasehold show x"]
    );
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
