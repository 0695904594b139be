//! One test per page of the book, with the servers and files that its commands need.

use std::process::Command;

use leasehold_redis::testkit::RedisServer;

use super::Page;
use super::shell::Shell;
use crate::fixture::{Fixture, RunningProcess, eventually, owner_url};

/// Pages with a test below.
pub(super) const TESTED_PAGES: &[&str] = &[
    "cli/config.md",
    "cli/scripts.md",
    "control-plane.md",
    "daemon.md",
    "dashboard.md",
    "guide/choosing-a-class.md",
    "operations/alerts.md",
    "operations/install.md",
    "operations/lock-paths.md",
    "proof/README.md",
    "proof/drills.md",
    "proof/model.md",
    "proof/simulation.md",
    "stores/redis.md",
    "stores/sqlite.md",
];

/// A running daemon and its address, with its owner token: the page's shell has a `HOME` of its own.
fn daemon() -> (Fixture, RunningProcess, String) {
    let fixture = Fixture::sqlite();
    let dev = fixture.start(&["dev", "--listen", "127.0.0.1:0"]);
    let mut url = String::new();
    eventually("the daemon", || {
        let message = dev.stdout();
        let found = message.split([' ', ',']).find(|word| word.starts_with("http://"));
        url = found.unwrap_or_default().to_owned();
        message.ends_with('\n') && !url.is_empty()
    });
    (fixture, dev, owner_url(&url))
}

fn redis() -> (tokio::runtime::Runtime, RedisServer) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let server = runtime.block_on(RedisServer::start()).unwrap();
    (runtime, server)
}

/// The output of the readers' programs that a page mentions.
fn program_log(shell: &Shell) -> String {
    shell.fixture.read("ran")
}

#[test]
fn cli_config() {
    // `man` may not be installed; the test checks the manual page without it.
    let page = Page::new("cli/config.md").with_files(&["leasehold.toml"]);
    let shell = page.replace("| man -l -", "| grep -q '^.TH'").run();
    assert!(shell.fixture.path(".local/share/man/man1/leasehold-run.1").exists());
}

#[test]
fn cli_scripts() {
    let mut shell = Page::new("cli/scripts.md").run();
    assert_eq!(program_log(&shell), "./step-one deploy\n./step-two deploy\n");
    assert_eq!(shell.run_line("leasehold show deploy").0, 0, "released at the shell's end only");
}

#[test]
fn control_plane() {
    // The approval exists only after the step before it has ended.
    let wait = "until [ -n \"$(leasehold approval list -o name)\" ]; do sleep 0.05; done; leasehold approval approve";
    let page = Page::new("control-plane.md").with_files(&["deploy.toml"]);
    let mut shell = page.replace("leasehold approval approve", wait).run();
    for program in ["./build", "./roll", "./nightly"] {
        eventually(program, || program_log(&shell).contains(program));
    }
    let (code, run) = shell.run_line("leasehold workflow get \"$RUN\"");
    assert!(code == 0 && run.contains("SUCCEEDED"), "{run}");
    // The page ends with a daemon's URL, which serves the same plane.
    assert!(shell.run_line("echo $LEASEHOLD_STORE").1.contains("http://"));
    eventually("the daemon's job", || program_log(&shell).contains("./nightly job:hello"));
}

#[test]
fn daemon_page() {
    let page = Page::new("daemon.md")
        .replace("cert.pem", "cert.pem --state second")
        // The certificate of the test is for localhost.
        .replace("locks.example:7420?", "localhost:7420?ca_file=cert.pem&");
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"])
        .args(["-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=critical,CA:FALSE"])
        .args(["-keyout", "key.pem", "-out", "cert.pem"])
        .current_dir(page.fixture.path(""))
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let shell = page.run();
    assert_eq!(program_log(&shell), "./work job:42\n./work deploy:42\n");
}

#[test]
fn dashboard() {
    let (_stage, _dev, url) = daemon();
    let mut shell = Page::new("dashboard.md").with_store(url).run();
    let (_, class) = shell.run_line("leasehold policy show workflow");
    assert!(class.contains("fail-closed"), "{class}");
}

#[test]
fn choosing_a_class() {
    let (_stage, _dev, url) = daemon();
    let page = Page::new("guide/choosing-a-class.md")
        .with_files(&["leasehold.toml"])
        .replace("policy set", format!("--store {url} policy set"));
    let durations: String = (0..400).map(|at| format!("{}s\n", 5.0 + f64::from(at % 40) / 10.0)).collect();
    page.fixture.write("durations.txt", &durations);
    let shell = page.run();
    assert_eq!(program_log(&shell), "./pay payout:7\n");
}

#[test]
fn alerts() {
    let (_stage, _dev, url) = daemon();
    Page::new("operations/alerts.md").with_store(url).run();
}

#[test]
fn lock_paths() {
    let (_stage, _dev, url) = daemon();
    let page = Page::new("operations/lock-paths.md").with_store(&url);
    // A dead holder: its lease is not renewed.
    let held =
        format!("leasehold --store {url} acquire job:42 --token-file held >/dev/null; leasehold show job:42");
    page.replace("leasehold show job:42", held).run();
}

#[test]
fn install() {
    let page = Page::new("operations/install.md")
        .replace("/usr/local/bin", "root/usr/local/bin")
        .replace("/etc/", "root/etc/")
        // The account is made below `root`, so the page's files stay the test's own; ops_systemd.rs has another owner.
        .replace("systemd-sysusers", "systemd-sysusers --root=\"$PWD/root\"")
        .replace("-o leasehold -g leasehold ", "")
        .replace("runuser -u leasehold -- ", "")
        .tested_elsewhere(&[
            ("systemctl", "needs a machine of its own; ops.rs starts the unit's command line, scripts/test verifies the unit"),
            ("cargo build", "scripts/test builds with every feature"),
        ]);
    for folder in ["target/release", "root/usr/local/bin", "root/etc/systemd/system", "ops/systemd"] {
        std::fs::create_dir_all(page.fixture.path(folder)).unwrap();
    }
    std::fs::copy(env!("CARGO_BIN_EXE_leasehold"), page.fixture.path("target/release/leasehold")).unwrap();
    let ops = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ops/systemd");
    for file in ["leasehold.service", "leasehold.sysusers"] {
        std::fs::copy(ops.join(file), page.fixture.path("ops/systemd").join(file)).unwrap();
    }
    let shell = page.run();
    assert!(shell.fixture.read("root/etc/passwd").contains("leasehold:x:"));
    assert!(shell.fixture.path("root/etc/leasehold/tokens.toml").exists());
    assert_eq!(program_log(&shell), "./nightly-report job:42\n");
}

#[test]
fn proof_readme() {
    // From the project's root, where results exist. The other commands take minutes to days.
    let root = concat!("cd ", env!("CARGO_MANIFEST_DIR"), "/../.. && scripts/proof show");
    Page::new("proof/README.md")
        .replace("scripts/proof show", root)
        .tested_elsewhere(&[
            ("scripts/proof sim", "`release` in scripts/proof; scripts/test has its slice"),
            ("scripts/proof client", "as above"),
            ("scripts/proof daemon", "as above"),
            ("scripts/proof replay", "as above"),
            ("scripts/proof fuzz", "as above"),
            ("scripts/proof model", "as above"),
            ("scripts/proof drills", "as above"),
            ("scripts/proof faults", "as above"),
            ("scripts/proof soak", "as above"),
            ("scripts/proof bugs", "as above"),
            ("scripts/proof mutants", "as above"),
            ("scripts/proof reruns", "as above"),
        ])
        .run();
}

#[test]
fn proof_drills() {
    let (_runtime, server) = redis();
    let page = Page::new("proof/drills.md")
        // One store and a short time are enough to see that the command works.
        .replace("drill run forced-kill", "drill run forced-kill --on sqlite --history leasehold-drills")
        .replace("forced-kill-redis.jsonl", "forced-kill-sqlite.jsonl")
        .replace("--count 300", "--count 2")
        .replace("--for 72h --every 5s", "--for 6s --every 2s")
        // The store is not marked for drills: refused, as the page says.
        .replace(
            "leasehold --store redis://staging drill run store-outage",
            format!("! leasehold --store {} drill run store-outage", server.url()),
        )
        .tested_elsewhere(&[("leasehold drill all", "`drills` in scripts/proof")]);
    page.run();
}

#[test]
fn proof_model() {
    Page::new("proof/model.md")
        .tested_elsewhere(&[
            ("cargo test", "these are the tests of the program `model`"),
            ("cargo run", "`model` in scripts/proof"),
        ])
        .run();
}

#[test]
fn proof_simulation() {
    Page::new("proof/simulation.md")
        .tested_elsewhere(&[("cargo xtask simulate", "`the_commands_of_the_page_run` in crates/sim")])
        .run();
}

#[test]
fn stores_redis() {
    let (_runtime, server) = redis();
    let page =
        Page::new("stores/redis.md").replace("redis-cli", format!("redis-cli --no-raw -p {}", server.port()));
    let fixture = Fixture::with_store(server.url());
    let mut hold = fixture.start(&["--holder", "web-1:4711", "run", "job:42", "--", "sleep", "120"]);
    eventually("the hold", || fixture.run(&["show", "job:42"]).status.success());
    page.run();
    let _ = hold.child.kill();
}

#[test]
fn stores_sqlite() {
    let page = Page::new("stores/sqlite.md");
    let made =
        page.fixture.command(&["run", "demo", "--", "true"]).env_remove("LEASEHOLD_STORE").output().unwrap();
    assert!(made.status.success(), "{made:?}");
    page.run();
}
