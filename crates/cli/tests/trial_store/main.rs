//! The command with a store of a program's own, which the command's code does not know.
//!
//! Without the test harness, because this program is the command too: `run` starts it again as its guardian.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests")]

#[path = "../../../leasehold/tests/library/trial_backend.rs"]
mod trial_backend;

use std::process::{Command, ExitCode, Output};

// Set in the environment of a process that is to be the command.
const COMMAND_VARIABLE: &str = "TRIAL_STORE_COMMAND";

const TESTS: [(&str, fn()); 5] = [
    ("run_and_list_use_a_registered_store", run_and_list_use_a_registered_store),
    ("doctor_examines_a_registered_store", doctor_examines_a_registered_store),
    ("help_names_a_registered_store", help_names_a_registered_store),
    ("a_drill_breaks_a_registered_store", a_drill_breaks_a_registered_store),
    ("an_external_registered_store_needs_the_mark", an_external_registered_store_needs_the_mark),
];

fn main() -> ExitCode {
    if std::env::var_os(COMMAND_VARIABLE).is_some() {
        leasehold::register(trial_backend::TrialBackend).unwrap();
        return leasehold_cli::main();
    }
    // What `cargo test` and `cargo nextest` ask of a test program.
    let (flags, filters): (Vec<_>, Vec<_>) = std::env::args().skip(1).partition(|word| word.starts_with('-'));
    let flag = |name: &str| flags.iter().any(|flag| flag == name);
    if flag("--ignored") {
        return ExitCode::SUCCESS;
    }
    for (name, test) in TESTS {
        if flag("--list") {
            println!("{name}: test");
        } else if filters.is_empty() || filters.iter().any(|filter| name.contains(filter.as_str())) {
            test();
            println!("test {name} ... ok");
        }
    }
    ExitCode::SUCCESS
}

struct Fixture {
    folder: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn store(&self) -> String {
        format!("trial:{}", self.folder.path().join("locks.db").display())
    }

    fn run(&self, args: &[&str]) -> Output {
        Command::new(std::env::current_exe().unwrap())
            .args(args)
            .current_dir(self.folder.path())
            .env(COMMAND_VARIABLE, "1")
            .env("HOME", self.folder.path())
            .env("LEASEHOLD_STORE", self.store())
            .env("COMMAND", std::env::current_exe().unwrap())
            .output()
            .unwrap()
    }
}

fn text(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    format!("{out}{err}")
}

fn run_and_list_use_a_registered_store() {
    let fixture = Fixture::new();
    // Inside `run`, the command finds the store by the environment that `run` has set.
    let ran = fixture.run(&["run", "-c", "echo \"$LEASEHOLD_STORE\"; \"$COMMAND\" list -o name", "job:1"]);
    assert_eq!(ran.status.code(), Some(0), "{}", text(&ran));
    let expected = format!("{}\njob:1\n", fixture.store());
    assert_eq!(String::from_utf8_lossy(&ran.stdout), expected, "{}", text(&ran));
    assert_eq!(fixture.run(&["show", "job:1"]).status.code(), Some(1));
}

fn doctor_examines_a_registered_store() {
    let fixture = Fixture::new();
    let missing = fixture.run(&["doctor", "-o", "json"]);
    assert!(text(&missing).contains("sqlite.missing"), "{}", text(&missing));
    let made = fixture.run(&["store", "init"]);
    assert!(text(&made).contains(&format!("made {}", fixture.store())), "{}", text(&made));
    let found = fixture.run(&["doctor", "-o", "json"]);
    let message = text(&found);
    assert!(message.contains(&format!("\"store\": \"{}\"", fixture.store())), "{message}");
    assert!(message.contains("\"promise\": \"durable\"") && !message.contains("sqlite.missing"), "{message}");
}

fn help_names_a_registered_store() {
    let help = text(&Fixture::new().run(&["doctor", "--help"]));
    assert!(help.contains("trial:PATH") && help.contains("what the trial file is on"), "{help}");
}

fn a_drill_breaks_a_registered_store() {
    let fixture = Fixture::new();
    let listed = text(&fixture.run(&["drill", "list"]));
    assert!(listed.contains("sqlite,redis,trial"), "{listed}");
    // An empty store: on a throw-away one. The outage is the fault that needs the testbed.
    let ran =
        fixture.run(&["--store", "", "drill", "run", "expired-and-stale", "--on", "trial", "-o", "json"]);
    assert_eq!(ran.status.code(), Some(0), "{}", text(&ran));
    let report: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
    let drill = &report["drills"][0];
    assert_eq!((&drill["store"], &drill["verdict"]), (&"trial".into(), &"clean".into()), "{drill}");
    let ran = fixture.run(&["--store", "", "drill", "faults", "--count", "1", "--on", "trial", "-o", "json"]);
    assert_eq!(ran.status.code(), Some(0), "{}", text(&ran));
    let sums: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
    let mut faults = sums["faults"].as_object().unwrap().keys();
    assert!(faults.all(|fault| fault.starts_with("trial/")) && sums["drills"] == 1, "{sums}");
}

fn an_external_registered_store_needs_the_mark() {
    let fixture = Fixture::new();
    assert_eq!(fixture.run(&["store", "init"]).status.code(), Some(0));
    let refused = fixture.run(&["drill", "run", "rolling-restart"]);
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused));
    assert!(text(&refused).contains("not marked as drillable"), "{}", text(&refused));
}
