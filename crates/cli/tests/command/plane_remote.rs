//! The plane's verbs through a daemon's URL, held against the same verbs on the store.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::process::Output;

use crate::stage::{Frozen, Running, Stage, code, eventually, printed, said};
use serde_json::Value;

const WORKFLOW: &str = "name = \"w\"\n\
    [[step]]\nid = \"ask\"\napproval = \"well?\"\n\
    [[step]]\nid = \"go\"\nneeds = [\"ask\"]\nexec = [\"true\"]\n";

/// Starts `leasehold` with these words and waits for its address.
fn daemon(stage: &Stage, words: &[&str]) -> (Running, String) {
    let running = stage.start(words);
    let mut address = String::new();
    eventually("the daemon's address", || {
        let said = running.stdout() + &running.stderr();
        let url = said
            .split([' ', ',', '\n'])
            .find(|word| word.starts_with("http://"));
        address = url.unwrap_or_default().to_owned();
        said.ends_with('\n') && !address.is_empty()
    });
    (running, address)
}

/// A plane with a replica, and one way to it.
struct World {
    dev: Running,
    behind: Stage,
    front: Stage,
}

impl World {
    fn new(through_daemon: bool) -> Self {
        let behind = Stage::sqlite();
        let (dev, url) = daemon(&behind, &["dev", "--listen", "127.0.0.1:0"]);
        let front = Stage::at(if through_daemon { &url } else { behind.store() });
        front.write("w.toml", WORKFLOW);
        front.write("bad.toml", "name = \"w\"\n[[step]]\nid = \"a\"\n");
        Self { dev, behind, front }
    }

    /// Without a daemon, whoever writes has a name too.
    fn run(&self, words: &[&str]) -> Output {
        self.front.run(&[&["--holder", "plane"], words].concat())
    }

    fn masked(&self, text: &str) -> String {
        masked(text, &format!(":{}", self.dev.child.id()))
    }

    fn state(&self, kind: &str, id: &str) -> Value {
        let shown = printed(&self.run(&[kind, "get", id, "-o", "json"]));
        serde_json::from_str::<Value>(&shown).map_or(Value::Null, |shown| shown["state"].clone())
    }
}

/// What may differ from one plane to another: times, fences, and the process that serves it.
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
        // Columns are as wide as what is in them, and an age may have two words.
        let words = line.split_whitespace().filter(|word| !age(word));
        let words = words.map(|word| if long(word) { "#" } else { word });
        named(&words.collect::<Vec<_>>().join(" "), server)
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// The daemon is called like whoever writes without one.
fn named(text: &str, server: &str) -> String {
    let words = text.split(' ');
    let words = words.map(|word| if word.ends_with(server) { "plane" } else { word });
    words.collect::<Vec<_>>().join(" ")
}

fn mask(value: &mut Value, server: &str) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                if name.ends_with("_ms") || name == "fence" && !field.is_null() {
                    *field = "#".into();
                }
                mask(field, server);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| mask(item, server)),
        Value::String(text) => *text = named(text, server),
        _ => {}
    }
}

/// The same words in both worlds; what they print, say and end with must be the same, and is answered.
struct Both {
    stored: World,
    served: World,
}

impl Both {
    fn new() -> Self {
        Self {
            stored: World::new(false),
            served: World::new(true),
        }
    }

    fn same(&self, words: &[&str], ends: i32) -> (String, String) {
        let all = [&self.stored, &self.served].map(|world| {
            let out = world.run(words);
            assert_eq!(code(&out), ends, "{words:?}: {}{}", printed(&out), said(&out));
            assert!(said(&out).lines().count() <= 3, "{}", said(&out));
            (world.masked(&printed(&out)), world.masked(&said(&out)))
        });
        assert_eq!(all[0], all[1], "store and daemon");
        all[1].clone()
    }

    fn until(&self, kind: &str, id: &str, state: &str) {
        for world in [&self.stored, &self.served] {
            eventually(&format!("{kind} {id} to be {state}"), || {
                world.state(kind, id) == state
            });
        }
    }
}

#[test]
fn jobs_and_approvals_are_the_same_through_a_daemon() {
    let both = Both::new();
    let submit = ["job", "submit", "--key", "k", "--", "sh", "-c", "echo hi"];
    let first = [&submit[..2], &["--id", "one"], &submit[2..]].concat();
    assert_eq!(both.same(&first, 0), ("one".into(), String::new()));
    both.until("job", "one", "SUCCEEDED");
    let (id, told) = both.same(&submit, 0);
    assert_eq!(id, "one", "the same key is the same job");
    assert!(told.contains("submitted before and is SUCCEEDED"), "{told}");
    let (_, told) = both.same(&["job", "submit", "--id", "one", "--", "false"], 1);
    assert!(told.starts_with("leasehold: different_job: job one"), "{told}");
    let (table, _) = both.same(&["job", "get", "one"], 0);
    assert!(
        table.starts_with("one SUCCEEDED attempt 1 of 3") && table.contains("RUNNING plane #"),
        "{table}"
    );
    let (json, _) = both.same(&["job", "get", "one", "-o", "json"], 0);
    assert!(
        json.contains("\"output\": \"hi\\n\"") && json.contains("\"history\": ["),
        "{json}"
    );
    for form in ["table", "wide", "json", "jsonl", "name"] {
        let (listed, _) = both.same(&["job", "list", "--state", "succeeded", "-o", form], 0);
        assert!(listed.contains("one"), "{listed}");
    }

    // Given up, and brought back once.
    both.same(
        &["job", "submit", "--id", "bad", "--attempts", "1", "--", "false"],
        0,
    );
    both.until("job", "bad", "FAILED");
    let (story, _) = both.same(&["job", "get", "bad"], 0);
    assert!(story.contains("given up: exit status: 1"), "{story}");
    for world in [&both.stored, &both.served] {
        let twice = [0, 1].map(|_| world.run(&["job", "retry", "bad"]));
        assert_eq!(twice.each_ref().map(code), [0, 0], "{}", said(&twice[0]));
        let ids = twice.each_ref().map(printed);
        assert_eq!(ids[0], ids[1], "asked twice, it is one new job");
        let id = ids[0].trim();
        assert!(!id.is_empty() && id != "bad", "{id}");
        eventually("the new job's end", || world.state("job", id) == "FAILED");
    }
    let (_, told) = both.same(&["job", "retry", "one"], 1);
    assert!(told.starts_with("leasehold: not_dead: "), "{told}");

    // A person decides, about what they have seen.
    let asked = [
        "job",
        "submit",
        "--id",
        "asked",
        "--requires-approval",
        "--payload",
        "{\"n\": 1}",
        "--",
        "true",
    ];
    both.same(&asked, 0);
    for form in ["table", "json", "jsonl", "name"] {
        let (listed, _) = both.same(&["approval", "list", "-o", form], 0);
        assert!(listed.contains("asked"), "{listed}");
    }
    let decide = |verb: &str, more: &[&str], ends: i32| {
        let words = ["approval", verb, "asked", "--by", "ann", "--reason", "seen"];
        both.same(&[&words[..], more].concat(), ends).1
    };
    let told = decide("repair", &["--payload", "{\"n\": 2}"], 0);
    let snapshot = told.rsplit(' ').next().unwrap().to_owned();
    let told = decide("approve", &["--snapshot", "0000000000000000"], 1);
    assert!(told.starts_with("leasehold: stale_snapshot: "), "{told}");
    decide("approve", &["--snapshot", &snapshot], 0);
    both.until("job", "asked", "SUCCEEDED");
    let told = decide("reject", &[], 1);
    assert!(
        told.starts_with("leasehold: already_approved: job asked was approved by ann"),
        "{told}"
    );
    both.same(
        &["job", "submit", "--id", "no", "--requires-approval", "--", "true"],
        0,
    );
    both.same(
        &["approval", "reject", "no", "--by", "ann", "--reason", "no need"],
        0,
    );
    both.same(&["job", "get", "no"], 0);

    // Called off: waiting, at work, and too late.
    both.same(
        &[
            "job",
            "submit",
            "--id",
            "pulled",
            "--pull",
            "t",
            "--resource",
            "r",
        ],
        0,
    );
    both.until("job", "pulled", "DISPATCHED");
    let (listed, _) = both.same(&["job", "list", "--topic", "t", "-o", "name"], 0);
    assert_eq!(listed, "pulled");
    for _ in 0..2 {
        let (_, told) = both.same(&["job", "cancel", "pulled", "--reason", "enough"], 0);
        assert_eq!(told, "leasehold: pulled is cancelled");
    }
    both.same(
        &[
            "job",
            "submit",
            "--id",
            "long",
            "--",
            "sh",
            "-c",
            "echo > began; exec sleep 600",
        ],
        0,
    );
    for world in [&both.stored, &both.served] {
        eventually("the long job", || world.behind.path("began").exists());
    }
    let (_, told) = both.same(&["job", "cancel", "long"], 0);
    assert!(told.contains("its owner was told to stop"), "{told}");
    both.until("job", "long", "CANCELLED");
    let (_, told) = both.same(&["job", "cancel", "one"], 1);
    assert_eq!(told, "leasehold: terminal: job one has ended as SUCCEEDED");

    // What cannot be.
    for (words, ends, wanted) in [
        (
            &["job", "get", "nobody"][..],
            1,
            "not_found: there is no job nobody",
        ),
        (&["job", "cancel", "nobody"], 1, "not_found: "),
        (
            &["approval", "approve", "nobody", "--by", "a", "--reason", "b"],
            1,
            "not_found: ",
        ),
        (
            &["approval", "approve", "x", "--by", "a", "--reason", " "],
            2,
            "reason",
        ),
        (
            &["job", "submit", "--attempts", "0", "--", "x"],
            2,
            "attempts \"0\": must be from 1 to 100",
        ),
        (
            &["job", "submit", "--class", "nope", "--", "x"],
            2,
            "there is no such class",
        ),
        (
            &["job", "submit", "--payload", "{", "--", "x"],
            2,
            "--payload is not JSON",
        ),
        (&["job", "submit"], 2, "there is no command to run"),
        (&["job", "submit", "--id", "x"], 2, "after `--`, e.g. "),
    ] {
        if wanted == "reason" {
            // Which of the two checks comes first is each one's own; that it is told is not.
            for world in [&both.stored, &both.served] {
                let out = world.run(words);
                assert!(code(&out) == 2 && said(&out).contains(wanted), "{}", said(&out));
            }
            continue;
        }
        let (_, told) = both.same(words, ends);
        assert!(told.contains(wanted), "{told}");
    }
}

#[test]
fn workflows_are_the_same_through_a_daemon() {
    let both = Both::new();
    for _ in 0..2 {
        let (_, told) = both.same(&["workflow", "apply", "w.toml"], 0);
        assert_eq!(told, "leasehold: w has 2 steps, version 1");
    }
    let (_, told) = both.same(&["workflow", "apply", "bad.toml"], 2);
    assert!(
        told.contains("bad.toml:2") && told.contains("exactly one of exec"),
        "{told}"
    );
    both.same(&["workflow", "apply", "missing.toml"], 2);
    let start = [
        "workflow",
        "start",
        "w",
        "--id",
        "r",
        "--key",
        "k",
        "--input",
        "{\"n\": 1}",
    ];
    assert_eq!(both.same(&start, 0).0, "r");
    assert_eq!(both.same(&["workflow", "start", "w", "--key", "k"], 0).0, "r");
    let (_, told) = both.same(&["workflow", "start", "nothing"], 1);
    assert!(told.starts_with("leasehold: not_found: "), "{told}");
    for world in [&both.stored, &both.served] {
        eventually("the question", || {
            printed(&world.run(&["approval", "list", "-o", "name"])) == "r.ask.1\n"
        });
    }
    both.until("workflow", "r", "RUNNING");
    for form in ["table", "json", "jsonl", "name"] {
        both.same(&["workflow", "list", "-o", form], 0);
    }
    // Somebody watches while it is decided.
    let watching = [&both.stored, &both.served].map(|world| world.front.start(&["workflow", "watch", "r"]));
    for running in &watching {
        eventually("the beginning", || running.stdout().contains("ask running"));
    }
    both.same(
        &["approval", "approve", "r.ask.1", "--by", "ann", "--reason", "go"],
        0,
    );
    let watched = watching.map(|mut running| {
        assert_eq!(running.code(), 0, "{}", running.stderr());
        running.stdout()
    });
    assert_eq!(watched[0], watched[1]);
    let once = watched[1].lines().filter(|line| line.contains("ask running"));
    assert_eq!(once.count(), 1, "each event once: {}", watched[1]);
    let (shown, _) = both.same(&["workflow", "get", "r"], 0);
    assert!(
        shown.contains("r w SUCCEEDED") && shown.contains("go done 1 r.go.1"),
        "{shown}"
    );
    both.same(&["workflow", "get", "r", "-o", "json"], 0);
    both.same(&["workflow", "watch", "r"], 0);
    let (_, told) = both.same(&["workflow", "cancel", "r"], 1);
    assert_eq!(told, "leasehold: terminal: run r has ended as SUCCEEDED");
    let (_, told) = both.same(&["workflow", "rerun", "r", "--from", "nothing"], 1);
    assert!(
        told.contains("no_such_step: run r has no step nothing; it has ask, go"),
        "{told}"
    );
    both.same(&["workflow", "rerun", "r", "--from", "go"], 0);
    for world in [&both.stored, &both.served] {
        eventually("the second attempt", || {
            world
                .masked(&printed(&world.run(&["workflow", "get", "r"])))
                .contains("go done 2 r.go.2")
        });
    }
    assert_eq!(both.same(&["workflow", "start", "w", "--id", "off"], 0).0, "off");
    let (_, told) = both.same(&["workflow", "cancel", "off", "--reason", "enough"], 0);
    assert_eq!(told, "leasehold: off will be cancelled");
    both.until("workflow", "off", "CANCELLED");
    both.same(&["workflow", "watch", "nobody"], 1);
    for world in [&both.stored, &both.served] {
        assert_eq!(
            code(&world.run(&["workflow", "watch", "off"])),
            1,
            "it did not end well"
        );
    }
}

/// What cannot be done, why, what to do: in three lines at most, none of them the log's.
fn failed(out: &Output, wanted: &[&str]) {
    let told = said(out);
    assert_eq!(code(out), 2, "{}{told}", printed(out));
    assert!((1..=3).contains(&told.lines().count()), "{told}");
    assert!(told.lines().all(|line| line.starts_with("leasehold: ")), "{told}");
    assert!(
        wanted.iter().all(|part| told.contains(part)),
        "{wanted:?}: {told}"
    );
}

#[test]
fn a_token_without_the_role_is_told_which_one_it_takes() {
    let behind = Stage::sqlite();
    let mut fronts = Vec::new();
    for (name, grants) in [
        ("reader", &["read:job", "read:run"][..]),
        ("holder", &["hold:job", "hold:run"]),
        ("boss", &["admin:job", "admin:workflow", "hold:run", "hold:res"]),
    ] {
        let mut words = vec!["token", "new", name, "--file", "tokens.toml"];
        words.extend(grants.iter().flat_map(|&grant| ["--grant", grant]));
        let made = behind.run(&words);
        assert_eq!(code(&made), 0, "{}", said(&made));
        let file = behind.path(name);
        behind.write(name, &printed(&made));
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        fronts.push((file.display().to_string(), printed(&made).trim().to_owned()));
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
    let nobody = Stage::at(&url);
    let [reader, holder, boss] = [0, 1, 2].map(|at: usize| {
        let front = Stage::at(format!("{url}?token_file={}", fronts[at].0));
        front.write("w.toml", WORKFLOW);
        front
    });
    let submit = ["job", "submit", "--id", "a", "--", "true"];
    let pull = ["job", "submit", "--id", "p", "--pull", "t"];
    let apply = ["workflow", "apply", "w.toml"];
    let decide = ["approval", "approve", "a", "--by", "ann", "--reason", "seen"];

    failed(
        &nobody.run(&["job", "list"]),
        &[
            "cannot list the jobs",
            "does not know you",
            "role read on job",
            "token_file",
        ],
    );
    assert_eq!(code(&reader.run(&["job", "list"])), 0);
    for (who, words, wanted) in [
        (&reader, &pull[..], "role hold on job:p"),
        (&reader, &submit, "role admin on job:a"),
        (&reader, &["job", "cancel", "a"], "role hold on job:a"),
        (&reader, &decide, "role hold on job:a"),
        (
            &reader,
            &["workflow", "start", "w", "--id", "r"],
            "role hold on run:r",
        ),
        (&reader, &["workflow", "cancel", "r"], "role hold on run:r"),
        (
            &reader,
            &["workflow", "rerun", "r", "--from", "go"],
            "role hold on run:r",
        ),
        (&holder, &submit, "role admin on job:a"),
        (&holder, &["job", "submit", "--", "true"], "role admin on job:"),
        (&holder, &["job", "retry", "a"], "role admin on job:a"),
        (&reader, &apply, "--grant admin:workflow"),
    ] {
        let words: Vec<_> = words
            .iter()
            .map(|word| word.replace("w.toml", &boss.path("w.toml").display().to_string()))
            .collect();
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        failed(&who.run(&words), &["no right", wanted]);
    }
    failed(
        &holder.run(&["job", "submit", "--id", "q", "--pull", "t", "--resource", "x"]),
        &["no right to hold res:default:x"],
    );

    assert_eq!(code(&holder.run(&pull)), 0);
    let held = [&submit[..2], &["--requires-approval"], &submit[2..]].concat();
    assert_eq!(code(&boss.run(&held)), 0);
    assert_eq!(code(&holder.run(&decide)), 0);
    let again = boss.run(&decide);
    assert_eq!(code(&again), 1);
    assert!(
        said(&again).contains("approved by ann (through holder) already: seen"),
        "{}",
        said(&again)
    );
    assert_eq!(code(&boss.run(&apply)), 0);
    assert_eq!(code(&holder.run(&["workflow", "start", "w", "--id", "r"])), 0);
    let full = holder.run(&["workflow", "start", "w"]);
    assert_eq!(code(&full), 1, "{}", said(&full));
    assert!(
        said(&full).starts_with("leasehold: limit_reached: default has 1 runs under way"),
        "{}",
        said(&full)
    );
    // Nobody's token is told to anybody.
    for out in [&again, &full, &nobody.run(&submit), &reader.run(&submit)] {
        assert!(fronts.iter().all(|(_, token)| !said(out).contains(token)));
    }
}

#[test]
fn a_daemon_without_a_plane_or_without_an_answer_is_told_as_such() {
    let behind = Stage::sqlite();
    let words = ["serve", "--listen", "127.0.0.1:0", "--state", "state"];
    let (mut serve, url) = daemon(&behind, &words);
    let front = Stage::at(&url);
    front.write("w.toml", WORKFLOW);
    // Also where a job that is not there would be an honest no.
    for words in [
        &["job", "list"][..],
        &["job", "get", "x"],
        &["job", "submit", "--", "true"],
        &["workflow", "apply", "w.toml"],
        &["workflow", "watch", "x"],
        &["approval", "list"],
    ] {
        failed(&front.run(words), &["serves no control plane", "serve --plane"]);
    }
    let kept = format!("sqlite:{}", behind.path("elsewhere.db").display());
    failed(
        &front.run(&["job", "list", "--plane-store", &kept]),
        &["--plane-store", "does not go with a daemon", "leave it out"],
    );
    failed(
        &behind.run(&["job", "list", "--plane-store", &url]),
        &["names a daemon", "--store http://"],
    );

    // It is there, and silent.
    front.write("leasehold.toml", "timeout = \"300ms\"\n");
    let frozen = Frozen::new(serve.pid());
    failed(
        &front.run(&["job", "list"]),
        &[
            "cannot list the jobs",
            "no answer in 300ms",
            "nothing was changed",
        ],
    );
    drop(frozen);
    serve.signal(rustix::process::Signal::KILL);
    serve.code();
    for words in [
        &["job", "submit", "--", "true"][..],
        &["workflow", "list"],
        &["workflow", "watch", "x"],
        &["approval", "reject", "x", "--by", "a", "--reason", "b"],
    ] {
        failed(
            &front.run(words),
            &["cannot ", &url, "Connection refused", "leasehold doctor"],
        );
    }
}

/// A store that is not there is told once, in the verb's own words.
#[test]
fn a_store_that_does_not_answer_is_told_once_and_what_to_do() {
    let stage = Stage::at("redis://127.0.0.1:1");
    for words in [
        &["approval", "approve", "x", "--by", "a", "--reason", "b"][..],
        &["job", "list"],
    ] {
        failed(
            &stage.run(words),
            &["cannot ", "redis://127.0.0.1:1", "leasehold doctor"],
        );
    }
}
