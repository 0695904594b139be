//! A shell that lives as long as a page, so variables of one line are visible to the next.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use crate::fixture::{Fixture, RunningProcess, eventually};

/// Printed after each line, followed by its exit code.
const END_MARKER: &str = "@@ended";

pub(crate) struct Shell {
    pub(crate) fixture: Fixture,
    bash: Child,
    typed: ChildStdin,
    out: PathBuf,
    seen: usize,
    /// `leasehold dev` and `serve` run until the end of the page, outside the shell.
    servers: Vec<RunningProcess>,
    /// The real port that replaces the page's port.
    port: Option<String>,
}

/// Writes an executable script into the page's folder.
pub(crate) fn write_script(fixture: &Fixture, name: &str, body: &str) {
    if let Some((folder, _)) = name.rsplit_once('/') {
        fs::create_dir_all(fixture.path(folder)).unwrap();
    }
    fixture.write(name, &format!("#!/bin/sh\n{body}\n"));
    fs::set_permissions(fixture.path(name), PermissionsExt::from_mode(0o755)).unwrap();
}

impl Shell {
    pub(crate) fn new(fixture: Fixture, store: Option<String>) -> Self {
        let out = fixture.path("typed.out");
        let file = File::create(&out).unwrap();
        let bin = Path::new(env!("CARGO_BIN_EXE_leasehold")).parent().unwrap();
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new("bash");
        for (key, value) in fixture.command(&[]).get_envs() {
            match value {
                Some(value) => command.env(key, value),
                None => command.env_remove(key),
            };
        }
        command
            .env("PATH", format!("{}:{path}", bin.display()))
            .env("NO_COLOR", "1")
            .current_dir(fixture.path("."));
        match store {
            Some(store) => command.env("LEASEHOLD_STORE", store),
            // The default of a user without configuration.
            None => command.env_remove("LEASEHOLD_STORE"),
        };
        let mut bash =
            command.stdin(Stdio::piped()).stdout(file.try_clone().unwrap()).stderr(file).spawn().unwrap();
        let typed = bash.stdin.take().unwrap();
        Self { fixture, bash, typed, out, seen: 0, servers: Vec::new(), port: None }
    }

    /// Runs a line to its end. Returns its exit code and output, with local paths and ports replaced by the
    /// page's.
    pub(crate) fn run_line(&mut self, line: &str) -> (i32, String) {
        let words: Vec<&str> = line.split_whitespace().collect();
        if matches!(words[..], ["leasehold", "dev" | "serve", ..]) {
            return self.start_server(&words[1..]);
        }
        let line = match &self.port {
            Some(port) => line.replace("7420", port),
            None => line.to_owned(),
        };
        // Standard input from /dev/null: a command must not read the next line of the page.
        write!(self.typed, "{{ {line}\n}} </dev/null; printf '\\n{END_MARKER} %d\\n' $?\n").unwrap();
        let mut ended = None;
        eventually(&format!("the end of {line}"), || {
            let all = fs::read_to_string(&self.out).unwrap();
            let new = &all[self.seen..];
            ended = new.split_once(&format!("\n{END_MARKER} ")).and_then(|(printed, code)| {
                let code = code.split_once('\n')?.0;
                Some((code.parse().unwrap(), printed.to_owned(), all.len()))
            });
            ended.is_some() || self.bash.try_wait().unwrap().is_some()
        });
        let (code, printed, seen) =
            ended.unwrap_or_else(|| panic!("{line}: the shell is gone: {}", self.full_output()));
        self.seen = seen;
        (code, self.as_on_page(&printed))
    }

    fn full_output(&self) -> String {
        fs::read_to_string(&self.out).unwrap()
    }

    /// Replaces local paths and ports by those of the page.
    fn as_on_page(&self, printed: &str) -> String {
        let home = self.fixture.path("").display().to_string();
        let printed = printed.replace(home.trim_end_matches('/'), "/home/me").replace('\r', "");
        match &self.port {
            Some(port) => printed.replace(port, "7420"),
            None => printed,
        }
    }

    /// Starts a daemon on a free port instead of the page's.
    fn start_server(&mut self, words: &[&str]) -> (i32, String) {
        let mut words: Vec<String> =
            words.iter().map(|word| word.replace("0.0.0.0:7420", "127.0.0.1:0")).collect();
        if !words.iter().any(|word| word == "--listen") {
            words.extend(["--listen".to_owned(), "127.0.0.1:0".to_owned()]);
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let server = self.fixture.start_with(&words, |command| {
            command.env_remove("LEASEHOLD_STORE");
        });
        let mut port = String::new();
        eventually("the daemon's address", || {
            let message = server.stdout() + &server.stderr();
            let behind = message.split_once("//127.0.0.1:").map(|(_, behind)| behind.to_owned());
            port = behind.unwrap_or_default().chars().take_while(char::is_ascii_digit).collect();
            !port.is_empty() && message.ends_with('\n')
        });
        self.port = Some(port);
        let message = server.stdout();
        self.servers.push(server);
        (0, self.as_on_page(&message))
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // The shell first kills its background jobs, then exits.
        let _ = writeln!(self.typed, "kill $(jobs -p) 2>/dev/null; wait; exit");
        let _ = self.bash.wait();
    }
}
