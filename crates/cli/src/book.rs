//! Every `leasehold` command that the book or the README shows is one that the program takes.

use std::path::{Path, PathBuf};

use clap::CommandFactory;

use crate::args::Cli;

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

/// The commands of a page's shell blocks, a line each; long ones are joined.
fn lines(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut inside: Option<bool> = None;
    let mut begun = String::new();
    for line in text.lines() {
        let line = line.trim_start();
        if let Some(language) = line.strip_prefix("```") {
            inside = match (inside, language.trim()) {
                (None, "sh") => Some(false),
                (None, "console") => Some(true),
                (None, _) => None,
                (Some(_), _) => None,
            };
            continue;
        }
        let Some(console) = inside else { continue };
        if line == "? 2" {
            // A refusal on purpose: the transcript is run, and says so.
            found.pop();
            continue;
        }
        let command = match console {
            // In a transcript only what is typed counts, and what goes on from it.
            true if begun.is_empty() => line.strip_prefix("$ "),
            true => Some(line.strip_prefix("> ").unwrap_or(line)),
            false => Some(line),
        };
        let Some(command) = command else { continue };
        match command.strip_suffix('\\') {
            Some(part) => begun += part,
            None => found.push(std::mem::take(&mut begun) + command),
        }
    }
    found
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
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
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
