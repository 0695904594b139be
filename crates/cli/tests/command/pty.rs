//! Tests on a real terminal of 80 columns and 24 lines: TAB completion in bash, and `top`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests, and what they share")]

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use crate::fixture::{Fixture, eventually, exit_code};
use nix::pty::{Winsize, openpty};

/// A program on a pseudo-terminal, and all its output.
struct Terminal {
    child: Child,
    keyboard: File,
    shown: Arc<Mutex<String>>,
}

impl Terminal {
    fn start(mut command: Command) -> Self {
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(&size, None).unwrap();
        let end = |fd: &OwnedFd| Stdio::from(fd.try_clone().unwrap());
        command.stdin(end(&pty.slave)).stdout(end(&pty.slave)).stderr(end(&pty.slave));
        let child = command.spawn().unwrap();
        drop(command);
        drop(pty.slave);
        let (mut screen, keyboard) = (File::from(pty.master.try_clone().unwrap()), File::from(pty.master));
        let shown = Arc::<Mutex<String>>::default();
        let into = Arc::clone(&shown);
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            // Reading fails once the program has closed the terminal.
            while let Ok(read) = screen.read(&mut piece) {
                if read == 0 {
                    return;
                }
                let text = String::from_utf8_lossy(&piece[..read]).into_owned();
                into.lock().unwrap().push_str(&text);
            }
        });
        Self { child, keyboard, shown }
    }

    fn type_keys(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    fn output(&self) -> String {
        self.shown.lock().unwrap().clone()
    }

    /// Waits until the output after this position contains the text.
    fn wait_for(&self, from: usize, text: &str) {
        eventually(&format!("{text:?} on the screen"), || self.output()[from..].contains(text));
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn fixture_with_locks(names: &[&str]) -> Fixture {
    let fixture = Fixture::sqlite();
    for name in names {
        let taken = fixture.run(&["--holder", "someone", "acquire", name, "--token-file", name]);
        assert_eq!(exit_code(&taken), 0);
    }
    fixture
}

/// Bash splits words at `:`; names contain one and are completed before and after it. What was completed is one word,
/// whatever the shell makes of its characters.
#[test]
fn finding_18_bash_completes_names_as_one_word() {
    let hostile = ["sem;touch$IFS\"ran\"", "sub$(touch$IFS\"ran\")", "sta*"];
    let fixture = fixture_with_locks(&[&["job:41", "job:42", "other"][..], &hostile].concat());
    fixture.write("sta-file-a", "");
    fixture.write("sta-file-b", "");
    let mut command = Command::new("bash");
    let bin = Path::new(env!("CARGO_BIN_EXE_leasehold")).parent().unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    command
        .args(["--norc", "--noprofile", "-i"])
        .current_dir(fixture.path("."))
        .env("HOME", fixture.path("."))
        .env("PATH", format!("{}:{path}", bin.display()))
        .env("LEASEHOLD_STORE", fixture.store())
        .env("TERM", "dumb")
        .env("PS1", "ready> ");
    let mut bash = Terminal::start(command);
    bash.wait_for(0, "ready>");
    bash.type_keys("source <(leasehold completions bash); echo sour''ced\n");
    bash.wait_for(0, "sourced");
    // The typed text and the expected word.
    for (typed, whole) in [
        ("show oth\t", "other"),
        ("show jo\t", "job:4"),
        ("show job:\t", "job:4"),
        ("show job:42\t", "job:42"),
        ("break --reason x --fence 1 job:4\t1", "job:41"),
        (&format!("--store={} show job:\t", fixture.store()), "job:4"),
        ("run --class workflow-c\t", "workflow-critical"),
        ("compl\t", "completions"),
        // Names that the shell would interpret, and one that is a pattern of file names.
        ("show sem\t", "sem;touch$IFS\"ran\""),
        ("show sub\t", "sub$(touch$IFS\"ran\")"),
        ("show sta\t", "sta*"),
    ] {
        let from = bash.output().len();
        // The line is completed, then turned into a `printf` that shows its words one by one.
        bash.type_keys(&format!("leasehold {typed}\x01printf '<%s>' \x05\n"));
        bash.wait_for(from, &format!("<{whole}>"));
    }
    assert!(!fixture.path("ran").exists());
    // Both candidates if the prefix is ambiguous.
    let from = bash.output().len();
    bash.type_keys("leasehold show job:4\t\t");
    eventually("both names", || {
        let shown = bash.output()[from..].to_owned();
        shown.lines().any(|line| line.contains("41") && line.contains("42"))
            || shown.lines().any(|line| line.split_whitespace().eq(["1", "2"]))
    });
}

/// `top` on 80 by 24: shows holders, follows changes, and restores the terminal.
#[test]
fn top_on_a_small_terminal() {
    let fixture = fixture_with_locks(&[
        "job:42",
        "a-name-that-is-much-longer-than-its-column-can-ever-be-on-eighty-columns",
    ]);
    for colour in [true, false] {
        let mut command = fixture.command(&["top", "--every", "100ms"]);
        command.env("TERM", "xterm");
        if colour {
            command.env_remove("NO_COLOR");
        } else {
            command.env("NO_COLOR", "1");
        }
        let mut top = Terminal::start(command);
        for text in ["job:42", "someone", "NAME"] {
            top.wait_for(0, text);
        }
        // A new lock appears without a key press.
        assert_eq!(exit_code(&fixture.run(&["acquire", "later", "--token-file", "l"])), 0);
        top.wait_for(0, "later");
        top.type_keys("q");
        let mut status = None;
        eventually("top to end", || {
            status = top.child.try_wait().unwrap();
            status.is_some()
        });
        assert!(status.unwrap().success(), "{}", top.output());
        // The alternate screen is left.
        top.wait_for(0, "\x1b[?1049l");
        let shown = top.output();
        // All cursor positions are on the screen; colours appear only if requested.
        for place in shown.split("\x1b[").skip(1) {
            let Some(end) = place.find(|letter: char| letter.is_ascii_alphabetic()) else {
                continue;
            };
            let numbers: Vec<u32> =
                place[..end].split(';').filter_map(|number| number.parse().ok()).collect();
            match (&place[end..=end], numbers.as_slice()) {
                ("H", [row, column]) => assert!(*row <= 24 && *column <= 80, "{row};{column}"),
                ("m", codes) if !colour => {
                    let plain = |code: &u32| {
                        !(30..=49).contains(code) && !(90..=107).contains(code) || matches!(code, 39 | 49)
                    };
                    assert!(codes.iter().all(plain), "colour: {codes:?}");
                }
                _ => {}
            }
        }
        assert_eq!(exit_code(&fixture.run(&["release", "--token-file", "l"])), 0);
    }
}
