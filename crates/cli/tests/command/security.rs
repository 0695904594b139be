//! Text and files of others on the user's machine: findings 18, 19, 20 and 26 of the security review.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests, and what they share")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::fixture::{Fixture, exit_code, stderr_of, stdout_of};

/// Runs a text in a shell, with a `leasehold` that only notes its arguments.
fn paste(fixture: &Fixture, text: &str) -> String {
    std::fs::create_dir_all(fixture.path("bin")).unwrap();
    fixture.write("bin/leasehold", "#!/bin/sh\nprintf '%s\\n' \"$@\" > pasted\n");
    std::fs::set_permissions(fixture.path("bin/leasehold"), PermissionsExt::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", fixture.path("bin").display(), std::env::var("PATH").unwrap());
    Command::new("/bin/sh")
        .args(["-c", text])
        .env("PATH", path)
        .current_dir(fixture.path("."))
        .status()
        .unwrap();
    fixture.read("pasted")
}

#[test]
fn finding_18_a_copied_command_runs_nothing_else() {
    let fixture = Fixture::sqlite();
    let names = [
        "x;touch$IFS\"ran\"",
        "$(touch$IFS'ran')",
        "`touch$IFS\"ran\"`",
        "x'|touch$IFS\"ran\"#",
        "~&&touch$IFS\"ran\"",
    ];
    for (at, name) in names.into_iter().enumerate() {
        let token = format!("token-{at}");
        let taken = fixture.run(&["acquire", name, "--token-file", &token]);
        assert_eq!(exit_code(&taken), 0, "{name}: {}", stderr_of(&taken));
        let busy = fixture.run(&["run", "-n", name, "true"]);
        let message = stderr_of(&busy);
        let command = message.split_once("see `").unwrap().1.trim_end().strip_suffix('`').unwrap();
        assert_eq!(paste(&fixture, command), format!("show\n{name}\n"), "{message}");
        assert!(!fixture.path("ran").exists(), "{command}");
        // What `acquire` prints is for `eval`.
        let printed = stdout_of(&taken);
        assert_eq!(
            paste(&fixture, &format!("{printed}\nleasehold \"$LEASEHOLD_NAME\"")),
            format!("{name}\n")
        );
        assert!(!fixture.path("ran").exists(), "{printed}");
    }
    // A name cannot become an option either.
    assert_eq!(exit_code(&fixture.run(&["acquire", "--token-file", "dash", "--", "--store=memory:"])), 0);
    let busy = stderr_of(&fixture.run(&["run", "-n", "--", "--store=memory:", "true"]));
    assert!(busy.contains("`leasehold show -- '--store=memory:'`"), "{busy}");
}

/// Answers every request with one document, as a hostile or broken daemon might.
fn serve(status: &'static str, document: Value) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let kind = if status.starts_with("200") { "application/json" } else { "application/problem+json" };
    let answer = move |mut stream: TcpStream| -> std::io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        loop {
            let (mut line, mut length) = (String::new(), 0);
            loop {
                line.clear();
                if reader.read_line(&mut line)? == 0 {
                    return Ok(());
                }
                if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap_or(0);
                }
                if line == "\r\n" {
                    break;
                }
            }
            reader.read_exact(&mut vec![0; length])?;
            let body = document.to_string();
            write!(
                stream,
                "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            )?;
        }
    };
    let answer = std::sync::Arc::new(answer);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answer = std::sync::Arc::clone(&answer);
            std::thread::spawn(move || answer(stream));
        }
    });
    url
}

const HOSTILE: &str = "\u{1b}]0;pwned\u{7}\u{1b}[2J\u{9b}31m\u{202e}all is well\r";

fn assert_harmless(what: &str, text: &str) {
    let bad = text.chars().find(|ch| (ch.is_control() && *ch != '\n') || matches!(ch, '\u{202e}'));
    assert_eq!(bad, None, "{what}: {text:?}");
}

#[test]
fn finding_19_output_of_a_command_cannot_control_the_terminal() {
    let fixture = Fixture::sqlite();
    let script = format!("printf '%b' '{}' >&2; exit 1", "\\033]0;pwned\\007\\033[2J\\033[31mall is well");
    let submitted =
        fixture.run(&["job", "submit", "--attempts", "1", "--id", "hostile", "--", "sh", "-c", &script]);
    assert_eq!(exit_code(&submitted), 0, "{}", stderr_of(&submitted));
    let mut replica = fixture.start(&["plane", "replica"]);
    crate::fixture::eventually("the job to fail", || {
        stdout_of(&fixture.run(&["job", "get", "hostile", "-o", "json"])).contains("FAILED")
    });
    replica.signal(rustix::process::Signal::TERM);
    replica.wait_exit_code();
    let shown = stdout_of(&fixture.run(&["job", "get", "hostile"]));
    assert!(shown.contains("\\u001b]0;pwned\\u0007\\u001b[2J"), "{shown}");
    assert_harmless("job get", &shown);
    let json: Value =
        serde_json::from_str(&stdout_of(&fixture.run(&["job", "get", "hostile", "-o", "json"]))).unwrap();
    assert!(json.to_string().contains("\\u001b]0;pwned"), "JSON has the text as it is: {json}");
}

#[test]
fn finding_19_a_daemons_answers_cannot_control_the_terminal() {
    let problem =
        json!({"type": "about:blank", "title": "no", "status": 403, "code": "forbidden", "detail": HOSTILE});
    let url = serve("403 Forbidden", problem);
    let fixture = Fixture::with_store(&url);
    for args in [
        &["list"][..],
        &["show", "x"],
        &["acquire", "x", "--token-file", "t"],
        &["job", "get", "x"],
        &["policy", "show"],
        &["policy", "history"],
        &["doctor"],
        &["dashboard"],
    ] {
        let output = fixture.run(args);
        assert!(exit_code(&output) != 0, "{args:?}");
        let shown = format!("{}{}", stdout_of(&output), stderr_of(&output));
        assert!(shown.contains("\\u202eall is well"), "{args:?}: {shown}");
        assert_harmless(&format!("{args:?}"), &stderr_of(&output));
        assert_harmless(&format!("{args:?}"), &stdout_of(&output));
    }
    // The link is printed for programs, as it is: it may hold nothing but a code.
    let url = serve("200 OK", json!({ "code": format!("0123{HOSTILE}") }));
    let link = Fixture::with_store(&url).run(&["dashboard"]);
    assert_eq!((exit_code(&link), stdout_of(&link).as_str()), (2, ""), "{}", stderr_of(&link));
    assert!(stderr_of(&link).contains("no dashboard code"), "{}", stderr_of(&link));
    let change = json!({"at": HOSTILE, "class": HOSTILE, "change": HOSTILE});
    let url = serve("200 OK", json!({ "changes": [change] }));
    let history = Fixture::with_store(&url).run(&["policy", "history"]);
    assert!(
        stdout_of(&history).contains("\\u001b]0;pwned"),
        "{} {}",
        stdout_of(&history),
        stderr_of(&history)
    );
    assert_harmless("policy history", &stdout_of(&history));
    let json = Fixture::with_store(&url).run(&["policy", "history", "-o", "json"]);
    let parsed: Value = serde_json::from_str(&stdout_of(&json)).unwrap();
    assert_eq!(parsed["changes"][0]["change"], HOSTILE, "the same document, escaped");
    assert_harmless("policy history -o json", &stdout_of(&json));
}

#[test]
fn finding_19_leases_of_a_daemon_are_checked() {
    for (holder, class) in
        [(HOSTILE, "scheduler"), ("web-1:7", HOSTILE), ("a b", "scheduler"), ("web-1:7", "A")]
    {
        let lock = json!({"name": "job:1", "held": true, "holder": holder, "class": class, "fence": "7", "remaining_ms": 5});
        let url = serve("200 OK", json!({ "locks": [lock], "truncated": false }));
        let listed = Fixture::with_store(&url).run(&["list"]);
        assert_eq!(exit_code(&listed), 2, "{holder:?} {class:?}: {}", stdout_of(&listed));
        assert!(stderr_of(&listed).contains("makes no sense"), "{}", stderr_of(&listed));
        let url = serve("200 OK", lock);
        assert_eq!(exit_code(&Fixture::with_store(&url).run(&["show", "job:1"])), 2, "{holder:?} {class:?}");
    }
}

/// A new verb must not print text of others past the module that escapes it.
#[test]
fn finding_19_only_one_module_opens_standard_output() {
    let source = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut folders = vec![source.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.file_name().unwrap() != "output.rs" && path.extension().unwrap_or_default() == "rs"
            {
                let text = std::fs::read_to_string(&path).unwrap();
                for way in ["io::stdout(", "anstream::stdout", " print!(", "println!(", "eprint"] {
                    assert!(!text.contains(way), "{} uses {way}: use crate::output", path.display());
                }
                let file = path.strip_prefix(&source).unwrap().to_str().unwrap();
                // `stderr().is_terminal()` prints nothing.
                let errors =
                    text.matches("io::stderr(").count() - text.matches("io::stderr().is_terminal(").count();
                let allowed = if file == "log.rs" { 2 } else { usize::from(file == "message.rs") };
                assert_eq!(errors, allowed, "{file} opens standard error: use crate::message");
                // Each of these prints only text of this program, checked names, or secrets that it has made.
                let raw = [
                    "acquire.rs",
                    "complete.rs",
                    "dashboard.rs",
                    "dev.rs",
                    "lease.rs",
                    "man.rs",
                    "serve/token.rs",
                ];
                let uses_raw = text.contains("script_stdout(");
                assert_eq!(
                    uses_raw,
                    raw.contains(&file),
                    "{file}: script_stdout() is not for text of others"
                );
                let filters = ["advise/mod.rs", "plane/print.rs"];
                assert_eq!(text.contains("filter_stdout("), filters.contains(&file), "{file}");
            }
        }
    }
}

#[test]
fn finding_20_a_planted_link_leads_no_write_elsewhere() {
    let fixture = Fixture::sqlite();
    fixture.write("private", "secret");
    std::fs::set_permissions(fixture.path("private"), PermissionsExt::from_mode(0o600)).unwrap();
    let untouched = || {
        let mode = std::fs::metadata(fixture.path("private")).unwrap().permissions().mode() & 0o777;
        assert_eq!((fixture.read("private").as_str(), mode), ("secret", 0o600));
    };
    // The temporary name once was made of the process id, so every id gets a link.
    std::fs::create_dir(fixture.path("shared")).unwrap();
    let plant = |file: &str| std::os::unix::fs::symlink(fixture.path("private"), fixture.path(file)).unwrap();
    let child = fixture.command(&["run", "--metrics-file", "shared/x.prom", "x", "true"]);
    // The shell knows its own process id, and `exec` keeps it.
    let script = "ln -s ../private shared/.x.prom.$$; exec \"$@\"";
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", script, "sh"]).arg(child.get_program()).args(child.get_args());
    for (key, value) in child.get_envs() {
        match value {
            Some(value) => shell.env(key, value),
            None => shell.env_remove(key),
        };
    }
    let output = shell.current_dir(fixture.path(".")).stdin(Stdio::null()).output().unwrap();
    assert_eq!(exit_code(&output), 0, "{}", stderr_of(&output));
    untouched();
    assert!(fixture.read("shared/x.prom").contains("leasehold_"));
    let mode = std::fs::metadata(fixture.path("shared/x.prom")).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o644, "the collector is another user");

    // The file itself is a link: it is replaced, not followed.
    plant("shared/linked.prom");
    let output = fixture.run(&["run", "--metrics-file", "shared/linked.prom", "x", "true"]);
    assert_eq!(exit_code(&output), 0, "{}", stderr_of(&output));
    untouched();
    plant("shared/t");
    assert_eq!(exit_code(&fixture.run(&["acquire", "y", "--token-file", "shared/t"])), 2);
    untouched();
    assert_eq!(exit_code(&fixture.run(&["acquire", "y", "--token-file", "shared/real"])), 0);
    plant("shared/real.new");
    assert_eq!(exit_code(&fixture.run(&["renew", "--ttl", "2m", "--token-file", "shared/real"])), 0);
    untouched();
    for (option, file) in [("--svg", "shared/plot.svg"), ("--html", "shared/page.html")] {
        plant(file);
        let output = fixture.run(&["advise", "--p99", "5s", option, file]);
        assert!(exit_code(&output) < 2, "{}", stderr_of(&output));
        untouched();
        assert!(fixture.read(file).contains('<'));
    }
    let names: Vec<_> =
        std::fs::read_dir(fixture.path("shared")).unwrap().map(|one| one.unwrap().file_name()).collect();
    let left = names.iter().filter(|name| name.to_string_lossy().starts_with('.')).count();
    assert_eq!(left, 1, "only the planted one stays: {names:?}");
}

#[test]
fn finding_26_a_look_alike_is_refused_and_an_old_one_can_be_ended() {
    let fixture = Fixture::sqlite();
    assert_eq!(exit_code(&fixture.run(&["acquire", "job:1", "--token-file", "t"])), 0);
    for hidden in ['\u{fe0f}', '\u{3164}', '\u{2800}', '\u{34f}'] {
        let name = format!("job:1{hidden}");
        let code = format!("U+{:04X}", u32::from(hidden));
        for args in [
            &["acquire", &name, "--token-file", "u"][..],
            &["run", &name, "touch", "ran"],
            &["elect", &name, "touch", "ran"],
        ] {
            let refused = fixture.run(args);
            assert!(matches!(exit_code(&refused), 2 | 125), "{args:?}: {}", stderr_of(&refused));
            assert!(stderr_of(&refused).contains(&code), "{args:?}: {}", stderr_of(&refused));
        }
    }
    let refused = fixture.run(&["--holder", "we\u{202e}b", "acquire", "job:2", "--token-file", "u"]);
    assert_eq!(exit_code(&refused), 2);
    assert!(stderr_of(&refused).contains("U+202E"), "{}", stderr_of(&refused));
    assert!(!fixture.path("ran").exists() && !fixture.path("u").exists());

    // A lease that was granted before the rule.
    let old = "job:1\u{fe0f}";
    let database = rusqlite::Connection::open(fixture.path("locks.db")).unwrap();
    assert_eq!(database.execute("UPDATE leases SET name = ?1 WHERE name = 'job:1'", [old]).unwrap(), 1);
    fixture.write("t", &fixture.read("t").replace("job:1", old));
    let listed = fixture.run(&["list"]);
    assert!(stdout_of(&listed).contains("job:1\\ufe0f"), "{}", stdout_of(&listed));
    assert_eq!(stdout_of(&fixture.run(&["list", "-o", "name"])), format!("{old}\n"));
    assert_eq!(exit_code(&fixture.run(&["show", old])), 0);
    let renewed = fixture.run(&["renew", "--token-file", "t"]);
    assert_eq!(exit_code(&renewed), 0, "{}", stderr_of(&renewed));
    let broken = fixture.run(&["break", old, "--reason", "look-alike", "--force", "--wait", "0s"]);
    assert_eq!(exit_code(&broken), 0, "{}", stderr_of(&broken));
    assert_eq!(exit_code(&fixture.run(&["show", old])), 1);
}

/// The right that a daemon demands stands in a command to copy.
#[test]
fn finding_18_a_demanded_grant_is_quoted() {
    let fixture = Fixture::sqlite();
    let problem = json!({"type": "about:blank", "title": "no", "status": 403, "code": "forbidden", "detail": "no",
                         "grant": "hold:x;touch$IFS'ran'\nleasehold: all is well"});
    let refused = Fixture::with_store(serve("403 Forbidden", problem)).run(&["job", "get", "x"]);
    let message = stderr_of(&refused);
    assert!(!message.contains("all is well"), "{message}");
    let command = message.split_once("with `--grant ").unwrap().1.trim_end().strip_suffix('`').unwrap();
    let pasted = paste(&fixture, &format!("leasehold {command}"));
    assert_eq!(pasted, "hold:x;touch$IFS'ran'\n", "{message}");
    assert!(!fixture.path("ran").exists());
}

/// Ids are read back by programs: through a pipe they come as they are. Earlier versions accepted this one.
#[test]
fn finding_19_ids_for_programs_are_not_escaped() {
    let fixture = Fixture::sqlite();
    assert_eq!(exit_code(&fixture.run(&["job", "submit", "--id", "a", "--pull", "t"])), 0);
    let shown = stdout_of(&fixture.run(&["job", "get", "a", "-o", "json"]));
    let mut job: Value = serde_json::from_str(&shown).unwrap();
    job.as_object_mut().unwrap().remove("history");
    job["id"] = json!("job:1\u{fe0f}");
    let submitted = Fixture::with_store(serve("200 OK", job.clone())).run(&["job", "submit", "--pull", "t"]);
    assert_eq!(stdout_of(&submitted), "job:1\u{fe0f}\n", "{}", stderr_of(&submitted));
    let url = serve("200 OK", json!({"schema_version": 1, "jobs": [job]}));
    let listed = Fixture::with_store(url).run(&["job", "list", "-o", "name"]);
    assert_eq!(stdout_of(&listed), "job:1\u{fe0f}\n", "{}", stderr_of(&listed));
}

/// A trusted folder's file may name the policy file.
#[test]
fn finding_02_a_policy_file_is_a_regular_file() {
    let fixture = Fixture::sqlite();
    let made = Command::new("mkfifo").arg(fixture.path("fifo")).status().unwrap();
    assert!(made.success());
    for file in ["/dev/zero", "fifo", "."] {
        fixture.write("leasehold.toml", &format!("policies = \"{file}\"\n"));
        assert_eq!(exit_code(&fixture.run(&["config", "trust"])), 0);
        let mut command = fixture.start(&["policy", "show"]);
        assert_eq!(command.wait_exit_code(), 2, "{file}: {}", command.stderr());
        assert!(command.stderr().contains("not a regular file"), "{file}: {}", command.stderr());
    }
}

/// A one-time link opens the dashboard for whoever reads it.
#[test]
fn finding_08_the_dashboards_link_stays_out_of_files() {
    let fixture = Fixture::sqlite();
    let mut dev = fixture.start(&["dev", "--listen", "127.0.0.1:0"]);
    crate::fixture::eventually("dev to start", || dev.stdout().contains("Three things"));
    let shown = dev.stdout();
    dev.signal(rustix::process::Signal::TERM);
    dev.wait_exit_code();
    assert!(
        shown.contains("run `leasehold --store http://127.0.0.1:") && !shown.contains("#code="),
        "{shown}"
    );
    let refused = fixture.run(&["dev", "--listen", "0.0.0.0:0"]);
    let message = stderr_of(&refused);
    assert_eq!(exit_code(&refused), 2, "{message}");
    assert!(message.contains("leasehold serve --listen 0.0.0.0:0 --tokens"), "{message}");
}
