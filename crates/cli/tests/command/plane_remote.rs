//! The plane's verbs through a daemon's URL, compared with the same verbs on the store.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::process::Output;

use crate::fixture::{Fixture, RunningProcess, StoppedProcess, eventually, exit_code, stderr_of, stdout_of};
use serde_json::Value;

const WORKFLOW: &str = "name = \"w\"\n\
    [[step]]\nid = \"ask\"\napproval = \"well?\"\n\
    [[step]]\nid = \"go\"\nneeds = [\"ask\"]\nexec = [\"true\"]\n";

/// Starts `leasehold` with these arguments and waits for its address.
fn daemon(fixture: &Fixture, words: &[&str]) -> (RunningProcess, String) {
    let running = fixture.start(words);
    let mut address = String::new();
    eventually("the daemon's address", || {
        let message = running.stdout() + &running.stderr();
        let url = message.split([' ', ',', '\n']).find(|word| word.starts_with("http://"));
        address = url.unwrap_or_default().to_owned();
        message.ends_with('\n') && !address.is_empty()
    });
    (running, address)
}

/// A plane with a replica, accessed directly or through a daemon.
struct PlaneUnderTest {
    dev: RunningProcess,
    behind: Fixture,
    front: Fixture,
}

impl PlaneUnderTest {
    fn new(through_daemon: bool) -> Self {
        let behind = Fixture::sqlite();
        let (dev, url) = daemon(&behind, &["dev", "--listen", "127.0.0.1:0"]);
        let front = Fixture::with_store(if through_daemon { &url } else { behind.store() });
        front.write("w.toml", WORKFLOW);
        front.write("bad.toml", "name = \"w\"\n[[step]]\nid = \"a\"\n");
        Self { dev, behind, front }
    }

    /// Runs a command. Without a daemon the command itself is the writer, so it gets a fixed holder name.
    fn run(&self, words: &[&str]) -> Output {
        self.front.run(&[&["--holder", "plane"], words].concat())
    }

    fn masked(&self, text: &str) -> String {
        masked(text, &format!(":{}", self.dev.child.id()))
    }

    fn state(&self, kind: &str, id: &str) -> Value {
        let shown = stdout_of(&self.run(&[kind, "get", id, "-o", "json"]));
        serde_json::from_str::<Value>(&shown).map_or(Value::Null, |shown| shown["state"].clone())
    }
}

/// Masks the parts that may differ between two planes: times, fences, principals, and the serving process.
fn masked(text: &str, server: &str) -> String {
    if let Ok(mut document) = serde_json::from_str::<Value>(text)
        && (document.is_object() || document.is_array())
    {
        mask(&mut document, server);
        return format!("{document:#}");
    }
    let age = |word: &&str| {
        let digits = word.trim_end_matches(char::is_alphabetic);
        !digits.is_empty() && digits != *word && digits.bytes().all(|byte| byte.is_ascii_digit())
    };
    let long = |word: &str| word.len() > 9 && word.bytes().all(|byte| byte.is_ascii_digit());
    let line = |line: &str| {
        // Column widths depend on their content, and an age may have two words.
        let words = line.split_whitespace().filter(|word| !age(word));
        let words = words.map(|word| if long(word) { "#" } else { word });
        mask_server_name(&words.collect::<Vec<_>>().join(" "), server)
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// Replaces the daemon's name by the holder name that is used without a daemon.
fn mask_server_name(text: &str, server: &str) -> String {
    let words = text.split(' ');
    let words = words.map(|word| if word.ends_with(server) { "plane" } else { word });
    words.collect::<Vec<_>>().join(" ")
}

fn mask(value: &mut Value, server: &str) {
    match value {
        Value::Object(fields) => {
            fields.remove("self_approval");
            for (name, field) in fields {
                let principal = ["principal", "submitted_by", "started_by", "requesters", "repairers"]
                    .contains(&name.as_str());
                if principal || name.ends_with("_ms") || name == "fence" && !field.is_null() {
                    *field = "#".into();
                }
                mask(field, server);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| mask(item, server)),
        Value::String(text) => *text = mask_server_name(text, server),
        _ => {}
    }
}

/// Runs the same command directly and through a daemon, and compares output, errors and exit codes.
struct ComparedPlanes {
    stored: PlaneUnderTest,
    served: PlaneUnderTest,
}

impl ComparedPlanes {
    fn new() -> Self {
        Self { stored: PlaneUnderTest::new(false), served: PlaneUnderTest::new(true) }
    }

    fn assert_same(&self, words: &[&str], ends: i32) -> (String, String) {
        let all = [&self.stored, &self.served].map(|world| {
            let out = world.run(words);
            assert_eq!(exit_code(&out), ends, "{words:?}: {}{}", stdout_of(&out), stderr_of(&out));
            assert!(stderr_of(&out).lines().count() <= 3, "{}", stderr_of(&out));
            (world.masked(&stdout_of(&out)), world.masked(&stderr_of(&out)))
        });
        assert_eq!(all[0], all[1], "store and daemon");
        all[1].clone()
    }

    fn snapshot_of(&self, job: &str) -> String {
        let shown = self.assert_same(&["job", "get", job, "-o", "json"], 0).0;
        serde_json::from_str::<Value>(&shown).unwrap()["snapshot"].as_str().unwrap().to_owned()
    }

    fn until(&self, kind: &str, id: &str, state: &str) {
        for world in [&self.stored, &self.served] {
            eventually(&format!("{kind} {id} to be {state}"), || world.state(kind, id) == state);
        }
    }
}

#[test]
fn jobs_and_approvals_are_the_same_through_a_daemon() {
    let both = ComparedPlanes::new();
    let submit = ["job", "submit", "--key", "k", "--", "sh", "-c", "echo hi"];
    let first = [&submit[..2], &["--id", "one"], &submit[2..]].concat();
    assert_eq!(both.assert_same(&first, 0), ("one".into(), String::new()));
    both.until("job", "one", "SUCCEEDED");
    let (id, told) = both.assert_same(&submit, 0);
    assert_eq!(id, "one", "the same key is the same job");
    assert!(told.contains("submitted before and is SUCCEEDED"), "{told}");
    let (_, told) = both.assert_same(&["job", "submit", "--id", "one", "--", "false"], 1);
    assert!(told.starts_with("leasehold: different_job: job one"), "{told}");
    let (table, _) = both.assert_same(&["job", "get", "one"], 0);
    assert!(
        table.starts_with("one SUCCEEDED attempt 1 of 3") && table.contains("RUNNING plane #"),
        "{table}"
    );
    let (json, _) = both.assert_same(&["job", "get", "one", "-o", "json"], 0);
    assert!(json.contains("\"output\": \"hi\\n\"") && json.contains("\"history\": ["), "{json}");
    for form in ["table", "wide", "json", "jsonl", "name"] {
        let (listed, _) = both.assert_same(&["job", "list", "--state", "succeeded", "-o", form], 0);
        assert!(listed.contains("one"), "{listed}");
    }

    // A dead job, replayed once.
    both.assert_same(&["job", "submit", "--id", "bad", "--attempts", "1", "--", "false"], 0);
    both.until("job", "bad", "FAILED");
    let (story, _) = both.assert_same(&["job", "get", "bad"], 0);
    assert!(story.contains("given up: exit status: 1"), "{story}");
    for world in [&both.stored, &both.served] {
        let twice = [0, 1].map(|_| world.run(&["job", "retry", "bad"]));
        assert_eq!(twice.each_ref().map(exit_code), [0, 0], "{}", stderr_of(&twice[0]));
        let ids = twice.each_ref().map(stdout_of);
        assert_eq!(ids[0], ids[1], "asked twice, it is one new job");
        let id = ids[0].trim();
        assert!(!id.is_empty() && id != "bad", "{id}");
        eventually("the new job's end", || world.state("job", id) == "FAILED");
    }
    let (_, told) = both.assert_same(&["job", "retry", "one"], 1);
    assert!(told.starts_with("leasehold: not_dead: "), "{told}");

    // A person decides about the snapshot they have seen.
    let asked =
        ["job", "submit", "--id", "asked", "--requires-approval", "--payload", "{\"n\": 1}", "--", "true"];
    both.assert_same(&asked, 0);
    for form in ["table", "json", "jsonl", "name"] {
        let (listed, _) = both.assert_same(&["approval", "list", "-o", form], 0);
        assert!(listed.contains("asked"), "{listed}");
    }
    let decide = |verb: &str, more: &[&str], ends: i32| {
        let words = ["approval", verb, "asked", "--by", "ann", "--reason", "seen"];
        both.assert_same(&[&words[..], more].concat(), ends).1
    };
    let told = decide("approve", &[], 2);
    assert!(told.contains("JOB@SNAPSHOT") && told.contains("approval list -o name"), "{told}");
    let snapshot = both.snapshot_of("asked");
    let told = decide("repair", &["--snapshot", &snapshot, "--payload", "{\"n\": 2}"], 0);
    let snapshot = told.rsplit(' ').next().unwrap().to_owned();
    let told = decide("approve", &["--snapshot", "0000000000000000"], 1);
    assert!(told.starts_with("leasehold: stale_snapshot: "), "{told}");
    decide("approve", &["--snapshot", &snapshot], 0);
    both.until("job", "asked", "SUCCEEDED");
    let told = decide("reject", &["--snapshot", &snapshot], 1);
    assert!(told.starts_with("leasehold: already_approved: job asked was approved by ann"), "{told}");
    both.assert_same(&["job", "submit", "--id", "no", "--requires-approval", "--", "true"], 0);
    let (listed, _) = both.assert_same(&["approval", "list", "-o", "name"], 0);
    assert_eq!(listed, format!("no@{}", both.snapshot_of("no")));
    both.assert_same(&["approval", "reject", &listed, "--by", "ann", "--reason", "no need"], 0);
    both.assert_same(&["job", "get", "no"], 0);

    // Cancelled while waiting, while running, and too late.
    both.assert_same(&["job", "submit", "--id", "pulled", "--pull", "t", "--resource", "r"], 0);
    both.until("job", "pulled", "DISPATCHED");
    let (listed, _) = both.assert_same(&["job", "list", "--topic", "t", "-o", "name"], 0);
    assert_eq!(listed, "pulled");
    for _ in 0..2 {
        let (_, told) = both.assert_same(&["job", "cancel", "pulled", "--reason", "enough"], 0);
        assert_eq!(told, "leasehold: pulled is cancelled");
    }
    both.assert_same(&["job", "submit", "--id", "long", "--", "sh", "-c", "echo > began; exec sleep 600"], 0);
    for world in [&both.stored, &both.served] {
        eventually("the long job", || world.behind.path("began").exists());
    }
    let (_, told) = both.assert_same(&["job", "cancel", "long"], 0);
    assert!(told.contains("its owner was asked to stop"), "{told}");
    both.until("job", "long", "CANCELLED");
    let (_, told) = both.assert_same(&["job", "cancel", "one"], 1);
    assert_eq!(told, "leasehold: terminal: job one has ended as SUCCEEDED");

    // Impossible requests.
    for (words, ends, wanted) in [
        (&["job", "get", "nobody"][..], 1, "not_found: there is no job nobody"),
        (&["job", "cancel", "nobody"], 1, "not_found: "),
        (&["approval", "approve", "nobody@0", "--by", "a", "--reason", "b"], 1, "not_found: "),
        (&["approval", "approve", "x@0", "--by", "a", "--reason", " "], 2, "reason"),
        (&["job", "submit", "--attempts", "0", "--", "x"], 2, "attempts \"0\": must be from 1 to 100"),
        (&["job", "submit", "--class", "nope", "--", "x"], 2, "there is no such class"),
        (&["job", "submit", "--payload", "{", "--", "x"], 2, "--payload is not JSON"),
        (&["job", "submit"], 2, "there is no command to run"),
        (&["job", "submit", "--id", "x"], 2, "after `--`, e.g. "),
    ] {
        if wanted == "reason" {
            // The order of the two checks may differ; the error must be reported in both.
            for world in [&both.stored, &both.served] {
                let out = world.run(words);
                assert!(exit_code(&out) == 2 && stderr_of(&out).contains(wanted), "{}", stderr_of(&out));
            }
            continue;
        }
        let (_, told) = both.assert_same(words, ends);
        assert!(told.contains(wanted), "{told}");
    }
}

#[test]
fn workflows_are_the_same_through_a_daemon() {
    let both = ComparedPlanes::new();
    for _ in 0..2 {
        let (_, told) = both.assert_same(&["workflow", "apply", "w.toml"], 0);
        assert_eq!(told, "leasehold: w has 2 steps, version 1");
    }
    let (_, told) = both.assert_same(&["workflow", "apply", "bad.toml"], 2);
    assert!(told.contains("bad.toml:2") && told.contains("exactly one of exec"), "{told}");
    both.assert_same(&["workflow", "apply", "missing.toml"], 2);
    let start = ["workflow", "start", "w", "--id", "r", "--key", "k", "--input", "{\"n\": 1}"];
    assert_eq!(both.assert_same(&start, 0).0, "r");
    assert_eq!(both.assert_same(&["workflow", "start", "w", "--key", "k"], 0).0, "r");
    let (_, told) = both.assert_same(&["workflow", "start", "nothing"], 1);
    assert!(told.starts_with("leasehold: not_found: "), "{told}");
    for world in [&both.stored, &both.served] {
        eventually("the question", || {
            stdout_of(&world.run(&["approval", "list", "-o", "name"])).starts_with("r.ask.1@")
        });
    }
    both.until("workflow", "r", "RUNNING");
    for form in ["table", "json", "jsonl", "name"] {
        both.assert_same(&["workflow", "list", "-o", form], 0);
    }
    // A watcher runs during the decision.
    let watching = [&both.stored, &both.served].map(|world| world.front.start(&["workflow", "watch", "r"]));
    for running in &watching {
        eventually("the beginning", || running.stdout().contains("ask running"));
    }
    let waiting = format!("r.ask.1@{}", both.snapshot_of("r.ask.1"));
    both.assert_same(&["approval", "approve", &waiting, "--by", "ann", "--reason", "go"], 0);
    let watched = watching.map(|mut running| {
        assert_eq!(running.wait_exit_code(), 0, "{}", running.stderr());
        running.stdout()
    });
    assert_eq!(watched[0], watched[1]);
    let once = watched[1].lines().filter(|line| line.contains("ask running"));
    assert_eq!(once.count(), 1, "each event once: {}", watched[1]);
    let (shown, _) = both.assert_same(&["workflow", "get", "r"], 0);
    assert!(shown.contains("r w SUCCEEDED") && shown.contains("go done 1 r.go.1"), "{shown}");
    both.assert_same(&["workflow", "get", "r", "-o", "json"], 0);
    both.assert_same(&["workflow", "watch", "r"], 0);
    let (_, told) = both.assert_same(&["workflow", "cancel", "r"], 1);
    assert_eq!(told, "leasehold: terminal: run r has ended as SUCCEEDED");
    let (_, told) = both.assert_same(&["workflow", "rerun", "r", "--from", "nothing"], 1);
    assert!(told.contains("no_such_step: run r has no step nothing; it has ask, go"), "{told}");
    both.assert_same(&["workflow", "rerun", "r", "--from", "go"], 0);
    for world in [&both.stored, &both.served] {
        eventually("the second attempt", || {
            world.masked(&stdout_of(&world.run(&["workflow", "get", "r"]))).contains("go done 2 r.go.2")
        });
    }
    assert_eq!(both.assert_same(&["workflow", "start", "w", "--id", "off"], 0).0, "off");
    let (_, told) = both.assert_same(&["workflow", "cancel", "off", "--reason", "enough"], 0);
    assert_eq!(told, "leasehold: off will be cancelled");
    both.until("workflow", "off", "CANCELLED");
    both.assert_same(&["workflow", "watch", "nobody"], 1);
    for world in [&both.stored, &both.served] {
        assert_eq!(exit_code(&world.run(&["workflow", "watch", "off"])), 1, "it did not end well");
    }
}

/// Asserts the form of an error: what failed, why, what to do; at most three lines and no log lines.
fn assert_error_form(out: &Output, wanted: &[&str]) {
    let told = stderr_of(out);
    assert_eq!(exit_code(out), 2, "{}{told}", stdout_of(out));
    assert!((1..=3).contains(&told.lines().count()), "{told}");
    assert!(told.lines().all(|line| line.starts_with("leasehold: ")), "{told}");
    assert!(wanted.iter().all(|part| told.contains(part)), "{wanted:?}: {told}");
}

#[test]
fn a_missing_right_is_named_in_the_error() {
    let behind = Fixture::sqlite();
    let mut fronts = Vec::new();
    for (name, grants) in [
        ("reader", &["read:job", "read:run"][..]),
        (
            "holder",
            &["submit:job", "submit:topic", "approve:job", "submit:run", "submit:workflow", "submit:org"],
        ),
        ("boss", &["admin:job", "admin:topic", "admin:workflow", "hold:res"]),
    ] {
        let mut words = vec!["token", "new", name, "--file", "tokens.toml"];
        words.extend(grants.iter().flat_map(|&grant| ["--grant", grant]));
        let made = behind.run(&words);
        assert_eq!(exit_code(&made), 0, "{}", stderr_of(&made));
        let file = behind.path(name);
        behind.write(name, &stdout_of(&made));
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        fronts.push((file.display().to_string(), stdout_of(&made).trim().to_owned()));
    }
    let words = [
        "serve",
        "--plane",
        "--admission",
        "1",
        "--listen",
        "127.0.0.1:0",
        "--tokens",
        "tokens.toml",
        "--state",
        "state",
    ];
    let (_serve, url) = daemon(&behind, &words);
    let nobody = Fixture::with_store(&url);
    let [reader, holder, boss] = [0, 1, 2].map(|at: usize| {
        let front = Fixture::with_store(format!("{url}?token_file={}", fronts[at].0));
        front.write("w.toml", WORKFLOW);
        front
    });
    let submit = ["job", "submit", "--id", "a", "--", "true"];
    let pull = ["job", "submit", "--id", "p", "--pull", "t"];
    let apply = ["workflow", "apply", "w.toml"];
    let decide = ["approval", "approve", "a@0", "--by", "ann", "--reason", "seen"];

    assert_error_form(
        &nobody.run(&["job", "list"]),
        &["cannot list the jobs", "does not know you", "right read on job", "token_file"],
    );
    assert_eq!(exit_code(&reader.run(&["job", "list"])), 0);
    for (who, words, wanted) in [
        (&reader, &pull[..], "right submit on job:p"),
        (&reader, &submit, "right command on job:a"),
        (&reader, &["job", "cancel", "a"], "right submit on job:a"),
        (&reader, &["job", "retry", "a"], "right submit on job:a"),
        (&reader, &decide, "right approve on job:a"),
        (&reader, &["workflow", "start", "w", "--id", "r"], "right submit on run:r"),
        (&reader, &["workflow", "cancel", "r"], "right submit on run:r"),
        (&reader, &["workflow", "rerun", "r", "--from", "go"], "right submit on run:r"),
        (&holder, &submit, "right command on job:a"),
        (&holder, &["job", "submit", "--", "true"], "right command on job:"),
        (&holder, &apply, "--grant define:workflow:w"),
        // Not the right of the route, but one that the workflow takes besides.
        (&boss, &["workflow", "start", "w", "--id", "r"], "right submit on run:r"),
    ] {
        let words: Vec<_> = words
            .iter()
            .map(|word| word.replace("w.toml", &boss.path("w.toml").display().to_string()))
            .collect();
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        assert_error_form(&who.run(&words), &["no right", wanted]);
    }
    assert_error_form(
        &holder.run(&["job", "submit", "--id", "q", "--pull", "t", "--resource", "x"]),
        &["no right to hold res:default:x"],
    );

    assert_eq!(exit_code(&holder.run(&pull)), 0);
    let held = [&submit[..2], &["--requires-approval"], &submit[2..]].concat();
    assert_eq!(exit_code(&boss.run(&held)), 0);
    let listed = stdout_of(&boss.run(&["approval", "list", "-o", "name"]));
    let decide = [&decide[..2], &[listed.trim()], &decide[3..]].concat();
    let own = boss.run(&decide);
    assert_eq!(exit_code(&own), 1, "{}", stderr_of(&own));
    assert!(stderr_of(&own).contains("self_approval: you submitted job a"), "{}", stderr_of(&own));
    assert_eq!(exit_code(&holder.run(&decide)), 0);
    let again = boss.run(&decide);
    assert_eq!(exit_code(&again), 1);
    assert!(
        stderr_of(&again).contains("approved by ann (through holder) already: seen"),
        "{}",
        stderr_of(&again)
    );
    assert_eq!(exit_code(&boss.run(&apply)), 0);
    assert_eq!(exit_code(&holder.run(&["workflow", "start", "w", "--id", "r"])), 0);
    let full = holder.run(&["workflow", "start", "w"]);
    assert_eq!(exit_code(&full), 1, "{}", stderr_of(&full));
    assert!(
        stderr_of(&full).starts_with("leasehold: limit_reached: default has 1 runs under way"),
        "{}",
        stderr_of(&full)
    );
    // No output contains a token.
    for out in [&again, &full, &nobody.run(&submit), &reader.run(&submit)] {
        assert!(fronts.iter().all(|(_, token)| !stderr_of(out).contains(token)));
    }
}

#[test]
fn a_daemon_without_a_plane_or_a_response_is_reported() {
    let behind = Fixture::sqlite();
    let words = ["serve", "--listen", "127.0.0.1:0", "--state", "state"];
    let (mut serve, url) = daemon(&behind, &words);
    let front = Fixture::with_store(&url);
    front.write("w.toml", WORKFLOW);
    // Also for verbs that answer *not found* with exit code 1.
    for words in [
        &["job", "list"][..],
        &["job", "get", "x"],
        &["job", "submit", "--", "true"],
        &["workflow", "apply", "w.toml"],
        &["workflow", "watch", "x"],
        &["approval", "list"],
    ] {
        assert_error_form(&front.run(words), &["serves no control plane", "serve --plane"]);
    }
    let kept = format!("sqlite:{}", behind.path("elsewhere.db").display());
    assert_error_form(
        &front.run(&["job", "list", "--plane-store", &kept]),
        &["--plane-store", "does not go with a daemon", "leave it out"],
    );
    assert_error_form(
        &behind.run(&["job", "list", "--plane-store", &url]),
        &["names a daemon", "--store http://"],
    );

    // The server accepts connections but never responds.
    front.write_user_config("timeout = \"300ms\"\n");
    let frozen = StoppedProcess::new(serve.pid());
    assert_error_form(
        &front.run(&["job", "list"]),
        &["cannot list the jobs", "no answer in 300ms", "nothing was changed"],
    );
    drop(frozen);
    serve.signal(rustix::process::Signal::KILL);
    serve.wait_exit_code();
    for words in [
        &["job", "submit", "--", "true"][..],
        &["workflow", "list"],
        &["workflow", "watch", "x"],
        &["approval", "reject", "x@0", "--by", "a", "--reason", "b"],
    ] {
        assert_error_form(&front.run(words), &["cannot ", &url, "Connection refused", "leasehold doctor"]);
    }
}

/// An unreachable store is reported once, with the verb that failed.
#[test]
fn an_unresponsive_store_is_reported_once_with_advice() {
    let fixture = Fixture::with_store("redis://127.0.0.1:1");
    for words in [&["approval", "approve", "x@0", "--by", "a", "--reason", "b"][..], &["job", "list"]] {
        assert_error_form(&fixture.run(words), &["cannot ", "redis://127.0.0.1:1", "leasehold doctor"]);
    }
}
