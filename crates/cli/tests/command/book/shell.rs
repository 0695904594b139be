//! A shell that lives as long as a page, so that what one line sets the next one has.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use crate::stage::{Running, Stage, eventually};

/// Says that a line has ended, and how.
const ENDED: &str = "@@ended";

pub(crate) struct Shell {
    pub(crate) stage: Stage,
    bash: Child,
    typed: ChildStdin,
    out: PathBuf,
    seen: usize,
    /// `leasehold dev` and `serve` hold a terminal of their own.
    servers: Vec<Running>,
    /// The port that the page names, and the one it has here.
    port: Option<String>,
}

/// An executable script in the page's folder.
pub(crate) fn program(stage: &Stage, name: &str, body: &str) {
    if let Some((folder, _)) = name.rsplit_once('/') {
        fs::create_dir_all(stage.path(folder)).unwrap();
    }
    stage.write(name, &format!("#!/bin/sh\n{body}\n"));
    fs::set_permissions(stage.path(name), PermissionsExt::from_mode(0o755)).unwrap();
}

impl Shell {
    pub(crate) fn new(stage: Stage, store: Option<String>) -> Self {
        let out = stage.path("typed.out");
        let file = File::create(&out).unwrap();
        let bin = Path::new(env!("CARGO_BIN_EXE_leasehold")).parent().unwrap();
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new("bash");
        for (key, value) in stage.command(&[]).get_envs() {
            match value {
                Some(value) => command.env(key, value),
                None => command.env_remove(key),
            };
        }
        command
            .env("PATH", format!("{}:{path}", bin.display()))
            .env("NO_COLOR", "1")
            .current_dir(stage.path("."));
        match store {
            Some(store) => command.env("LEASEHOLD_STORE", store),
            // As it is for a user who has set nothing.
            None => command.env_remove("LEASEHOLD_STORE"),
        };
        let mut bash = command
            .stdin(Stdio::piped())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .spawn()
            .unwrap();
        let typed = bash.stdin.take().unwrap();
        Self {
            stage,
            bash,
            typed,
            out,
            seen: 0,
            servers: Vec::new(),
            port: None,
        }
    }

    /// Types a line, waits for its end, and answers its exit code and what it printed, with the page's words for this place.
    pub(crate) fn types(&mut self, line: &str) -> (i32, String) {
        let words: Vec<&str> = line.split_whitespace().collect();
        if matches!(words[..], ["leasehold", "dev" | "serve", ..]) {
            return self.serves(&words[1..]);
        }
        let line = match &self.port {
            Some(port) => line.replace("7420", port),
            None => line.to_owned(),
        };
        // Nothing but the shell itself reads what is typed next.
        write!(
            self.typed,
            "{{ {line}\n}} </dev/null; printf '\\n{ENDED} %d\\n' $?\n"
        )
        .unwrap();
        let mut ended = None;
        eventually(&format!("the end of {line}"), || {
            let all = fs::read_to_string(&self.out).unwrap();
            let new = &all[self.seen..];
            ended = new
                .split_once(&format!("\n{ENDED} "))
                .and_then(|(printed, code)| {
                    let code = code.split_once('\n')?.0;
                    Some((code.parse().unwrap(), printed.to_owned(), all.len()))
                });
            ended.is_some() || self.bash.try_wait().unwrap().is_some()
        });
        let (code, printed, seen) =
            ended.unwrap_or_else(|| panic!("{line}: the shell is gone: {}", self.all()));
        self.seen = seen;
        (code, self.told(&printed))
    }

    fn all(&self) -> String {
        fs::read_to_string(&self.out).unwrap()
    }

    /// What is printed here, as it is printed for the reader.
    fn told(&self, printed: &str) -> String {
        let home = self.stage.path("").display().to_string();
        let printed = printed
            .replace(home.trim_end_matches('/'), "/home/me")
            .replace('\r', "");
        match &self.port {
            Some(port) => printed.replace(port, "7420"),
            None => printed,
        }
    }

    /// A daemon, on a free port instead of the page's.
    fn serves(&mut self, words: &[&str]) -> (i32, String) {
        let mut words: Vec<String> = words
            .iter()
            .map(|word| word.replace("0.0.0.0:7420", "127.0.0.1:0"))
            .collect();
        if !words.iter().any(|word| word == "--listen") {
            words.extend(["--listen".to_owned(), "127.0.0.1:0".to_owned()]);
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let server = self.stage.start_with(&words, |command| {
            command.env_remove("LEASEHOLD_STORE");
        });
        let mut port = String::new();
        eventually("the daemon's address", || {
            let said = server.stdout() + &server.stderr();
            let behind = said
                .split_once("//127.0.0.1:")
                .map(|(_, behind)| behind.to_owned());
            port = behind
                .unwrap_or_default()
                .chars()
                .take_while(char::is_ascii_digit)
                .collect();
            !port.is_empty() && said.ends_with('\n')
        });
        self.port = Some(port);
        let said = server.stdout();
        self.servers.push(server);
        (0, self.told(&said))
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // It ends what it started in the background, then itself.
        let _ = writeln!(self.typed, "kill $(jobs -p) 2>/dev/null; wait; exit");
        let _ = self.bash.wait();
    }
}
