//! Runs the commands of the book, line by line, in one shell and on one store per page. The output is
//! compared with that of the transcripts.
//!
//! `transcripts.rs` runs the transcripts of `docs/cli` and of the first steps; this module runs their
//! lists of commands, and all other pages.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod lines;
mod pages;
mod shell;

use std::path::{Path, PathBuf};

use lines::PageCommand;
pub(crate) use lines::page_commands;
use shell::Shell;

use crate::fixture::Fixture;

/// A text in a line and its replacement for the test.
type LineReplacement = (&'static str, String);

/// A page of the book and its test set-up.
pub(crate) struct Page {
    /// Relative to `docs`.
    path: &'static str,
    fixture: Fixture,
    changes: Vec<LineReplacement>,
    /// Prefixes of lines that are not run here, with the place that runs them.
    tested_elsewhere: &'static [(&'static str, &'static str)],
    /// The store of the page's commands; `None` for the default of a user without configuration.
    store: Option<String>,
}

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

impl Page {
    fn new(path: &'static str) -> Self {
        let fixture = Fixture::sqlite();
        // Programs that readers have and the book only mentions.
        for program in ["nightly", "nightly-report", "work", "pay", "build", "roll", "step-one", "step-two"] {
            shell::write_script(&fixture, program, "echo \"$0 $LEASEHOLD_NAME\" >> ran");
        }
        Self { path, fixture, changes: Vec::new(), tested_elsewhere: &[], store: None }
    }

    /// Writes the page's first `toml` blocks under these names, in order, for its commands to use.
    fn with_files(self, named: &[&str]) -> Self {
        let text = std::fs::read_to_string(docs().join(self.path)).unwrap();
        let blocks: Vec<&str> = text.split("```toml\n").skip(1).collect();
        assert!(blocks.len() >= named.len(), "{}: no such blocks", self.path);
        for (name, block) in named.iter().zip(blocks) {
            self.fixture.write(name, block.split("```").next().unwrap());
        }
        self
    }

    fn replace(mut self, from: &'static str, to: impl Into<String>) -> Self {
        self.changes.push((from, to.into()));
        self
    }

    fn tested_elsewhere(mut self, lines: &'static [(&'static str, &'static str)]) -> Self {
        self.tested_elsewhere = lines;
        self
    }

    fn with_store(mut self, store: impl Into<String>) -> Self {
        self.store = Some(store.into());
        self
    }

    /// Runs every line and returns the shell for further checks.
    fn run(mut self) -> Shell {
        let text = std::fs::read_to_string(docs().join(self.path)).unwrap();
        let mut shown = page_commands(&text);
        if has_tested_transcripts(self.path) {
            shown.retain(|line| !line.transcript);
        }
        for (start, _) in self.tested_elsewhere {
            let before = shown.len();
            shown.retain(|line| !line.command.starts_with(start));
            assert!(shown.len() < before, "{}: no line begins with {start:?}", self.path);
        }
        assert!(!shown.is_empty() || !self.tested_elsewhere.is_empty(), "{}: nothing to run", self.path);
        for (from, _) in &self.changes {
            assert!(
                shown.iter().any(|line| line.command.contains(from)),
                "{}: no line has {from:?}",
                self.path
            );
        }
        let mut shell =
            Shell::new(std::mem::replace(&mut self.fixture, Fixture::sqlite()), self.store.take());
        for line in &shown {
            let mut command = line.command.clone();
            for (from, to) in &self.changes {
                command = command.replace(from, to);
            }
            self.run_command(&mut shell, line, &command);
        }
        shell
    }

    fn run_command(&self, shell: &mut Shell, line: &PageCommand, command: &str) {
        let (code, printed) = shell.run_line(command);
        assert_eq!(code, line.expected_code, "{}: {command}\n{printed}", self.path);
        if line.transcript {
            let same = |(shown, seen): (&String, &str)| outputs_match(shown, seen);
            let all = line.expected_output.iter().zip(printed.lines()).all(same);
            let count = line.expected_output.len();
            assert!(
                all && printed.lines().count() >= count,
                "{}: {command}\nthe page has:\n{}\nseen:\n{printed}",
                self.path,
                line.expected_output.join("\n")
            );
        }
    }
}

/// Whether `transcripts.rs` runs the transcripts of this page.
fn has_tested_transcripts(path: &str) -> bool {
    path.starts_with("cli/") || path == "guide/first-steps.md"
}

/// Compares without numbers and tokens, which differ between runs; `…` matches anything.
fn outputs_match(shown: &str, seen: &str) -> bool {
    let (shown, seen) = (mask_numbers(shown), mask_numbers(seen));
    let mut rest = seen.as_str();
    let mut pieces = shown.split('…');
    let Some(first) = pieces.next().and_then(|piece| rest.strip_prefix(piece)) else {
        return false;
    };
    rest = first;
    let mut open = false;
    for piece in pieces {
        let Some((_, after)) = rest.split_once(piece) else {
            return false;
        };
        open = piece.is_empty();
        rest = after;
    }
    open || rest.is_empty()
}

/// Replaces each number by `0` and each token by `T`.
fn mask_numbers(text: &str) -> String {
    let mut out = String::new();
    for word in text.split_inclusive(|c: char| !c.is_ascii_alphanumeric()) {
        let (body, end) = match word.char_indices().next_back() {
            Some((at, last)) if !last.is_ascii_alphanumeric() => word.split_at(at),
            _ => (word, ""),
        };
        match body {
            _ if body.len() == 32 && body.bytes().all(|byte| byte.is_ascii_hexdigit()) => out.push('T'),
            _ => {
                let digits = body.len() - body.trim_start_matches(|c: char| c.is_ascii_digit()).len();
                if digits > 0 {
                    out.push('0');
                }
                out += &body[digits..];
            }
        }
        out += end;
    }
    // A number with a fraction counts as one number.
    out.replace("0.0", "0")
}

#[test]
fn different_output_is_detected() {
    assert!(outputs_match("held for 59.9s, fence 17…", "held for 7s, fence 18, and more"));
    assert!(outputs_match("t: 755a112a31ee06fd9984c02c43df7eed", "t: 155a112a31ee06fd9984c02c43df7eea"));
    assert!(!outputs_match("HTTP/1.1 409 Conflict", "HTTP/1.1 200 OK"));
    assert!(!outputs_match("{\"released\":true}", "{\"released\":false}"));
    assert!(!outputs_match("a b", "a b c"));
}

#[test]
fn every_page_with_commands_is_run() {
    fn walk(folder: &Path, into: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, into);
            } else if path.extension().is_some_and(|ending| ending == "md") {
                into.push(path);
            }
        }
    }
    let mut files = Vec::new();
    walk(&docs(), &mut files);
    for file in files {
        let path = file.strip_prefix(docs()).unwrap().to_str().unwrap();
        // Decision records are dated and show the commands of their time.
        if path.starts_with("adr/") {
            continue;
        }
        let mut shown = page_commands(&std::fs::read_to_string(&file).unwrap());
        if has_tested_transcripts(path) {
            shown.retain(|line| !line.transcript);
        }
        assert!(
            shown.is_empty() || pages::TESTED_PAGES.contains(&path),
            "docs/{path} has commands that nothing runs: give it a test in book/pages.rs"
        );
    }
}
