//! The commands of the book, run: page by page, line by line, in a shell, on a store of the page's own. What a transcript prints is compared.
//!
//! The transcripts of `docs/cli` and of the first steps are run by `transcripts.rs`; here are their lists of commands, and all other pages.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod lines;
mod pages;
mod shell;

use std::path::{Path, PathBuf};

use lines::{Line, lines};
use shell::Shell;

use crate::stage::Stage;

/// What is changed in a line before it is typed, and why.
type Change = (&'static str, String);

/// How a page is run.
pub(crate) struct Page {
    /// Below `docs`.
    path: &'static str,
    stage: Stage,
    changes: Vec<Change>,
    /// Beginnings of lines that are run elsewhere, and where.
    elsewhere: &'static [(&'static str, &'static str)],
    /// Where everything begins; the store of the page's commands if it is a daemon's address.
    store: Option<String>,
}

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

impl Page {
    fn new(path: &'static str) -> Self {
        let stage = Stage::sqlite();
        // What users have and the book only names.
        for program in [
            "nightly",
            "nightly-report",
            "work",
            "pay",
            "build",
            "roll",
            "step-one",
            "step-two",
        ] {
            shell::program(&stage, program, "echo \"$0 $LEASEHOLD_NAME\" >> ran");
        }
        Self {
            path,
            stage,
            changes: Vec::new(),
            elsewhere: &[],
            store: None,
        }
    }

    /// Its file blocks of this language, by the name in their first line (`# deploy.toml`), are there for its commands.
    fn with_files(self, named: &[&str]) -> Self {
        let text = std::fs::read_to_string(docs().join(self.path)).unwrap();
        let blocks: Vec<&str> = text.split("```toml\n").skip(1).collect();
        assert!(blocks.len() >= named.len(), "{}: no such blocks", self.path);
        for (name, block) in named.iter().zip(blocks) {
            self.stage.write(name, block.split("```").next().unwrap());
        }
        self
    }

    fn change(mut self, from: &'static str, to: impl Into<String>) -> Self {
        self.changes.push((from, to.into()));
        self
    }

    fn elsewhere(mut self, lines: &'static [(&'static str, &'static str)]) -> Self {
        self.elsewhere = lines;
        self
    }

    fn on(mut self, store: impl Into<String>) -> Self {
        self.store = Some(store.into());
        self
    }

    /// Types every line, and answers the shell for a last look.
    fn run(mut self) -> Shell {
        let text = std::fs::read_to_string(docs().join(self.path)).unwrap();
        let mut shown = lines(&text);
        if transcribed(self.path) {
            shown.retain(|line| !line.transcript);
        }
        for (start, _) in self.elsewhere {
            let before = shown.len();
            shown.retain(|line| !line.command.starts_with(start));
            assert!(
                shown.len() < before,
                "{}: no line begins with {start:?}",
                self.path
            );
        }
        assert!(
            !shown.is_empty() || !self.elsewhere.is_empty(),
            "{}: nothing to run",
            self.path
        );
        for (from, _) in &self.changes {
            assert!(
                shown.iter().any(|line| line.command.contains(from)),
                "{}: no line has {from:?}",
                self.path
            );
        }
        let mut shell = Shell::new(
            std::mem::replace(&mut self.stage, Stage::sqlite()),
            self.store.take(),
        );
        for line in &shown {
            let mut command = line.command.clone();
            for (from, to) in &self.changes {
                command = command.replace(from, to);
            }
            self.one(&mut shell, line, &command);
        }
        shell
    }

    fn one(&self, shell: &mut Shell, line: &Line, command: &str) {
        let (code, printed) = shell.types(command);
        assert_eq!(code, line.code, "{}: {command}\n{printed}", self.path);
        if line.transcript {
            let same = |(shown, seen): (&String, &str)| alike(shown, seen);
            let all = line.printed.iter().zip(printed.lines()).all(same);
            let count = line.printed.len();
            assert!(
                all && printed.lines().count() >= count,
                "{}: {command}\nthe page has:\n{}\nseen:\n{printed}",
                self.path,
                line.printed.join("\n")
            );
        }
    }
}

/// Are the page's transcripts run by `transcripts.rs`?
fn transcribed(path: &str) -> bool {
    path.starts_with("cli/") || path == "guide/first-steps.md"
}

/// Numbers and tokens differ from run to run; `…` stands for anything.
fn alike(shown: &str, seen: &str) -> bool {
    let (shown, seen) = (plain(shown), plain(seen));
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

/// Each number as `0`, each token as `T`.
fn plain(text: &str) -> String {
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
    // One number, with a fraction or without.
    out.replace("0.0", "0")
}

#[test]
fn a_page_that_prints_something_else_is_found() {
    assert!(alike(
        "held for 59.9s, fence 17…",
        "held for 7s, fence 18, and more"
    ));
    assert!(alike(
        "t: 755a112a31ee06fd9984c02c43df7eed",
        "t: 155a112a31ee06fd9984c02c43df7eea"
    ));
    assert!(!alike("HTTP/1.1 409 Conflict", "HTTP/1.1 200 OK"));
    assert!(!alike("{\"released\":true}", "{\"released\":false}"));
    assert!(!alike("a b", "a b c"));
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
        // Decisions are dated: they show what was tried then.
        if path.starts_with("adr/") {
            continue;
        }
        let mut shown = lines(&std::fs::read_to_string(&file).unwrap());
        if transcribed(path) {
            shown.retain(|line| !line.transcript);
        }
        assert!(
            shown.is_empty() || pages::RUN.contains(&path),
            "docs/{path} has commands that nothing runs: give it a test in book/pages.rs"
        );
    }
}
