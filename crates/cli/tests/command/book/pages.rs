//! Each page of the book, and what its commands stand on here.

use std::process::Command;

use leasehold_redis::testkit::RedisServer;

use super::Page;
use super::shell::Shell;
use crate::stage::{Running, Stage, eventually};

/// Pages with a test below.
pub(super) const RUN: &[&str] = &[
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

/// A daemon beside the page, and its address.
fn daemon() -> (Stage, Running, String) {
    let stage = Stage::sqlite();
    let dev = stage.start(&["dev", "--listen", "127.0.0.1:0"]);
    let mut url = String::new();
    eventually("the daemon", || {
        let said = dev.stdout();
        let found = said.split([' ', ',']).find(|word| word.starts_with("http://"));
        url = found.unwrap_or_default().to_owned();
        said.ends_with('\n') && !url.is_empty()
    });
    (stage, dev, url)
}

fn redis() -> (tokio::runtime::Runtime, RedisServer) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let server = runtime.block_on(RedisServer::start()).unwrap();
    (runtime, server)
}

/// What the users' programs of a page wrote about themselves.
fn ran(shell: &Shell) -> String {
    shell.stage.read("ran")
}

#[test]
fn cli_config() {
    // Their reader may not be installed; that it is a page is seen without.
    let shell = Page::new("cli/config.md")
        .change("| man -l -", "| grep -q '^.TH'")
        .run();
    assert!(shell.stage.path(".local/share/man/man1/leasehold-run.1").exists());
}

#[test]
fn cli_scripts() {
    let mut shell = Page::new("cli/scripts.md").run();
    assert_eq!(ran(&shell), "./step-one deploy\n./step-two deploy\n");
    assert_eq!(
        shell.types("leasehold show deploy").0,
        0,
        "released at the shell's end only"
    );
}

#[test]
fn control_plane() {
    // It waits for a person until the step before it has ended.
    let wait = "until [ -n \"$(leasehold approval list -o name)\" ]; do sleep 0.05; done; leasehold approval approve";
    let page = Page::new("control-plane.md").with_files(&["deploy.toml"]);
    let mut shell = page.change("leasehold approval approve", wait).run();
    for program in ["./build", "./roll", "./nightly"] {
        eventually(program, || ran(&shell).contains(program));
    }
    let (code, run) = shell.types("leasehold workflow get \"$RUN\"");
    assert!(code == 0 && run.contains("SUCCEEDED"), "{run}");
    // The page ends at a daemon, and what was submitted there was submitted to the same plane.
    assert!(shell.types("echo $LEASEHOLD_STORE").1.contains("http://"));
    eventually("the daemon's job", || ran(&shell).contains("./nightly job:hello"));
}

#[test]
fn daemon_page() {
    let page = Page::new("daemon.md")
        .change("cert.pem", "cert.pem --state second")
        // Its name is the certificate's here.
        .change("locks.example:7420?", "localhost:7420?ca_file=cert.pem&");
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=localhost",
        ])
        .args([
            "-addext",
            "subjectAltName=DNS:localhost",
            "-addext",
            "basicConstraints=critical,CA:FALSE",
        ])
        .args(["-keyout", "key.pem", "-out", "cert.pem"])
        .current_dir(page.stage.path(""))
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let shell = page.run();
    assert_eq!(ran(&shell), "./work job:42\n./work job:42\n");
}

#[test]
fn dashboard() {
    let (_stage, _dev, url) = daemon();
    let mut shell = Page::new("dashboard.md").on(url).run();
    let (_, class) = shell.types("leasehold policy show workflow");
    assert!(class.contains("fail-closed"), "{class}");
}

#[test]
fn choosing_a_class() {
    let (_stage, _dev, url) = daemon();
    let page = Page::new("guide/choosing-a-class.md")
        .with_files(&["leasehold.toml"])
        .change("policy set", format!("--store {url} policy set"));
    let durations: String = (0..400)
        .map(|at| format!("{}s\n", 5.0 + f64::from(at % 40) / 10.0))
        .collect();
    page.stage.write("durations.txt", &durations);
    let shell = page.run();
    assert_eq!(ran(&shell), "./pay payout:7\n");
}

#[test]
fn alerts() {
    let (_stage, _dev, url) = daemon();
    Page::new("operations/alerts.md").on(url).run();
}

#[test]
fn lock_paths() {
    let (_stage, _dev, url) = daemon();
    let page = Page::new("operations/lock-paths.md").on(&url);
    // A holder that is gone: nobody renews.
    let held =
        format!("leasehold --store {url} acquire job:42 --token-file held >/dev/null; leasehold show job:42");
    page.change("leasehold show job:42", held).run();
}

#[test]
fn install() {
    let page = Page::new("operations/install.md")
        .change("/usr/local/bin", "root/usr/local/bin")
        .change("/etc/", "root/etc/")
        .elsewhere(&[
            ("systemctl", "needs a machine of its own; ops.rs starts the unit's command line, scripts/test verifies the unit"),
            ("cargo build", "scripts/test builds with every feature"),
        ]);
    for folder in [
        "target/release",
        "root/usr/local/bin",
        "root/etc/systemd/system",
        "ops/systemd",
    ] {
        std::fs::create_dir_all(page.stage.path(folder)).unwrap();
    }
    std::fs::copy(
        env!("CARGO_BIN_EXE_leasehold"),
        page.stage.path("target/release/leasehold"),
    )
    .unwrap();
    page.stage.write(
        "ops/systemd/leasehold.service",
        include_str!("../../../../../ops/systemd/leasehold.service"),
    );
    let shell = page.run();
    assert!(shell.stage.path("root/etc/leasehold/tokens.toml").exists());
    assert_eq!(ran(&shell), "./nightly-report job:42\n");
}

#[test]
fn proof_readme() {
    // From the project's root, where there is something to show; the others take minutes to days.
    let root = concat!("cd ", env!("CARGO_MANIFEST_DIR"), "/../.. && scripts/proof show");
    Page::new("proof/README.md")
        .change("scripts/proof show", root)
        .elsewhere(&[
            (
                "scripts/proof sim",
                "`release` in scripts/proof; scripts/test has its slice",
            ),
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
        // One store is enough to see that the line is right, and minutes are not needed.
        .change(
            "drill run forced-kill",
            "drill run forced-kill --on sqlite --history leasehold-drills",
        )
        .change("forced-kill-redis.jsonl", "forced-kill-sqlite.jsonl")
        .change("--count 300", "--count 2")
        .change("--for 72h --every 5s", "--for 6s --every 2s")
        // It has no mark: refused, as the page says.
        .change(
            "leasehold --store redis://staging drill run store-outage",
            format!("! leasehold --store {} drill run store-outage", server.url()),
        )
        .elsewhere(&[("leasehold drill all", "`drills` in scripts/proof")]);
    page.run();
}

#[test]
fn proof_model() {
    Page::new("proof/model.md")
        .elsewhere(&[
            ("cargo test", "these are the tests of the program `model`"),
            ("cargo run", "`model` in scripts/proof"),
        ])
        .run();
}

#[test]
fn proof_simulation() {
    let page = Page::new("proof/simulation.md")
        .change("--seeds 2000", "--seeds 20")
        .change("--seeds 300", "--seeds 5")
        .change("--seeds 200 ", "--seeds 5 ")
        // Found is exit code 1, which is what is wanted.
        .change(
            "leasehold drill simulate --mistake",
            "! leasehold drill simulate --seeds 200 --mistake",
        );
    page.run();
}

#[test]
fn stores_redis() {
    let (_runtime, server) = redis();
    let page =
        Page::new("stores/redis.md").change("redis-cli", format!("redis-cli --no-raw -p {}", server.port()));
    let stage = Stage::at(server.url());
    let mut hold = stage.start(&["--holder", "web-1:4711", "run", "job:42", "--", "sleep", "120"]);
    eventually("the hold", || stage.run(&["show", "job:42"]).status.success());
    page.run();
    let _ = hold.child.kill();
}

#[test]
fn stores_sqlite() {
    let page = Page::new("stores/sqlite.md");
    let made = page
        .stage
        .command(&["run", "demo", "--", "true"])
        .env_remove("LEASEHOLD_STORE")
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    page.run();
}
