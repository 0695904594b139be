//! The daemon as a process: `run`, `list` and `show` through it, its death under load, its orderly end.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests, and what they share"
)]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::stage::{BEAT, Frozen, Running, Stage, alive, code, eventually, last_beat, printed, said, uptime};
use leasehold::clock::{BootClock, Clock, ClockExt, Moment};
use leasehold::{Acquired, Error};
use rustix::process::Signal;

/// A daemon on a SQLite file in the stage's folder.
struct Daemon {
    running: Running,
    url: String,
}

fn serve(stage: &Stage, listen: &str, more: &[&str]) -> Daemon {
    let mut args = vec!["serve", "--listen", listen, "--state"];
    let state = stage.path("state").display().to_string();
    args.push(&state);
    args.extend(more);
    let running = stage.start(&args);
    let mut url = String::new();
    eventually("the daemon to serve", || {
        let said = running.stderr();
        let found = said.split_whitespace().find(|word| word.starts_with("http"));
        url = found.unwrap_or_default().to_owned();
        !url.is_empty() && said.ends_with('\n')
    });
    Daemon { running, url }
}

/// `run` cannot tell a daemon's URL from the store itself.
#[test]
fn run_list_and_show_are_the_same_through_a_daemon() {
    let behind = Stage::sqlite();
    let daemon = serve(&behind, "127.0.0.1:0", &[]);
    let stage = Stage::at(&daemon.url);
    let mut first = stage.start(&[
        "--holder",
        "first",
        "run",
        "-c",
        "echo $LEASEHOLD_FENCE $LEASEHOLD_STORE > fence; while [ ! -e stop ]; do sleep 0.02; done; exit 7",
        "job:1",
    ]);
    let line = stage.line("fence");
    let (fence, store) = line.split_once(' ').unwrap();
    assert_eq!(store, daemon.url);
    let busy = stage.run(&["run", "-n", "job:1", "true"]);
    assert_eq!(code(&busy), 124, "{}", said(&busy));
    assert!(said(&busy).contains("held by first"), "{}", said(&busy));
    // Both ways see the same.
    for at in [&stage, &behind] {
        let listed = printed(&at.run(&["list", "job:"]));
        assert!(listed.contains("first") && listed.contains(fence), "{listed}");
        assert_eq!(code(&at.run(&["show", "job:1"])), 0);
    }
    // A waiter behind the daemon gets in when the holder has gone.
    let mut second = stage.start(&["run", "-w", "50s", "-c", "echo $LEASEHOLD_FENCE > next", "job:1"]);
    stage.write("stop", "");
    assert_eq!(
        (first.code(), first.stderr().as_str()),
        (7, ""),
        "the command's own code"
    );
    assert_eq!(second.code(), 0, "{}", second.stderr());
    let next: u64 = stage.line("next").parse().unwrap();
    assert!(next > fence.parse().unwrap());
    assert_eq!(code(&stage.run(&["show", "job:1"])), 1);
}

/// The daemon is silent under a running command; the command is dead before its lease can have run out.
#[test]
fn trap_01_a_silent_daemon_ends_the_command_before_the_ttl() {
    let behind = Stage::sqlite();
    let daemon = serve(&behind, "127.0.0.1:0", &[]);
    let stage = Stage::at(&daemon.url);
    let script = format!("echo $$ > pid1; {}", BEAT.replace("$1", "beats"));
    let mut run = stage.start(&["run", "--ttl", "3s", "-c", &script, "demo"]);
    let pid = stage.pid("pid1");
    eventually("beats", || stage.read("beats").lines().count() > 2);
    let frozen = Frozen::new(daemon.running.pid());
    let over = uptime() + 3.0;
    assert_eq!(run.code(), 121, "{}", run.stderr());
    assert!(!alive(pid));
    assert!(last_beat(&stage.read("beats")) < over);
    drop(frozen);
}

#[test]
fn a_daemon_that_is_gone_is_unavailable_and_the_class_decides() {
    let behind = Stage::sqlite();
    let mut daemon = serve(&behind, "127.0.0.1:0", &[]);
    daemon.running.signal(Signal::KILL);
    daemon.running.code();
    let stage = Stage::at(&daemon.url);
    let closed = stage.run(&["run", "demo", "true"]);
    assert_eq!(code(&closed), 125, "{}", said(&closed));
    assert!(said(&closed).contains("unavailable"), "{}", said(&closed));
    let open = stage.run(&["run", "--class", "workflow", "demo", "true"]);
    assert_eq!(code(&open), 0, "{}", said(&open));
    assert!(said(&open).contains("LOCAL LOCK ONLY"), "{}", said(&open));
    assert_eq!(code(&stage.run(&["list"])), 2);
}

#[test]
fn strangers_are_kept_out_before_the_start() {
    let stage = Stage::sqlite();
    let open = stage.run(&["serve", "--listen", "0.0.0.0:0"]);
    assert_eq!(code(&open), 2);
    assert!(
        said(&open).contains("--tokens") && said(&open).lines().count() <= 3,
        "{}",
        said(&open)
    );
    let made = stage.run(&[
        "token",
        "new",
        "ci",
        "--grant",
        "hold:job",
        "--file",
        "tokens.toml",
    ]);
    assert_eq!(code(&made), 0, "{}", said(&made));
    stage.write("ci.token", &printed(&made));
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &std::fs::metadata(stage.path("tokens.toml"))
            .unwrap()
            .permissions(),
    );
    assert_eq!(mode & 0o777, 0o600);
    let plain = stage.run(&["serve", "--listen", "0.0.0.0:0", "--tokens", "tokens.toml"]);
    assert!(said(&plain).contains("--tls-cert"), "{}", said(&plain));
    // And with a token, its grants and no more.
    let daemon = serve(&stage, "127.0.0.1:0", &["--tokens", "tokens.toml"]);
    let path = stage.path("ci.token");
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let with = Stage::at(format!("{}?token_file={}", daemon.url, path.display()));
    assert_eq!(code(&with.run(&["run", "job:1", "true"])), 0);
    let foreign = with.run(&["run", "other:1", "true"]);
    assert_eq!(code(&foreign), 125, "{}", said(&foreign));
    let without = Stage::at(&daemon.url);
    assert!(said(&without.run(&["run", "job:1", "true"])).contains("access denied"));
    let twice = stage.run(&[
        "token",
        "new",
        "ci",
        "--grant",
        "hold:job",
        "--file",
        "tokens.toml",
    ]);
    assert!(
        code(&twice) == 2 && said(&twice).contains("twice"),
        "{}",
        said(&twice)
    );
    assert_eq!(
        code(&with.run(&["run", "job:1", "true"])),
        0,
        "the file is as it was"
    );
}

#[test]
fn the_first_signal_drains_and_the_second_ends_it() {
    let stage = Stage::sqlite();
    let mut daemon = serve(&stage, "127.0.0.1:0", &[]);
    daemon.running.signal(Signal::TERM);
    assert_eq!(daemon.running.code(), 0, "{}", daemon.running.stderr());
    let mut daemon = serve(&stage, "127.0.0.1:0", &["--drain", "10m"]);
    // A hold of the daemon that nobody lets go keeps it draining.
    let address = daemon.url.trim_start_matches("http://").to_owned();
    post(&address, "/v1/holds", r#"{"name":"job:1","heartbeat_ms":600000}"#);
    daemon.running.signal(Signal::TERM);
    daemon.running.says("stopping");
    assert!(!daemon.running.ended());
    daemon.running.signal(Signal::TERM);
    assert_eq!(daemon.running.code(), 1, "{}", daemon.running.stderr());
}

fn post(address: &str, path: &str, body: &str) -> String {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    let head = "content-type: application/json\r\nconnection: close";
    let length = body.len();
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nhost: {address}\r\n{head}\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut all = String::new();
    stream.read_to_string(&mut all).unwrap();
    assert!(all.starts_with("HTTP/1.1 2"), "{all}");
    all
}

/// One grant as its holder saw it.
#[derive(Debug, Clone, Copy)]
struct Grant {
    fence: u64,
    /// Before the grant was used.
    from: Moment,
    /// After the last moment at which it was.
    to: Moment,
}

/// Killed and started again under load: clients see *unavailable*, their holds stay valid to their deadlines, and nothing is
/// granted twice.
#[test]
fn killed_under_load_nothing_is_granted_twice() {
    let stage = Stage::sqlite();
    let mut daemon = serve(&stage, "127.0.0.1:0", &[]);
    let (url, listen) = (
        daemon.url.clone(),
        daemon.url.trim_start_matches("http://").to_owned(),
    );
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let grants: Arc<Mutex<BTreeMap<String, Vec<Grant>>>> = Arc::default();
    let (stop, unavailable, outlived) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
        Arc::new(AtomicU64::new(0)),
    );
    let down = Arc::new(AtomicBool::new(false));
    let mut workers = Vec::new();
    for worker in 0..8 {
        let (url, grants, stop, unavailable, outlived, down) = (
            url.clone(),
            Arc::clone(&grants),
            Arc::clone(&stop),
            Arc::clone(&unavailable),
            Arc::clone(&outlived),
            Arc::clone(&down),
        );
        workers.push(runtime.spawn(async move {
            // A client of its own each: as many processes would have.
            let locks = leasehold::open(url)
                .holder(leasehold::Holder::new(&format!("w{worker}")).unwrap())
                .without_log()
                .build()
                .await
                .unwrap();
            while !stop.load(Ordering::Relaxed) {
                let name = format!("job:{}", worker % 3);
                let class = locks
                    .class("scheduler")
                    .ttl(Duration::from_secs(4))
                    .wait(Duration::from_millis(500));
                match class.acquire(name.clone()).await {
                    Ok(Acquired::Held(hold)) => {
                        let from = BootClock.now();
                        let fence = hold.fence().unwrap().get();
                        let was_down = down.load(Ordering::Relaxed);
                        BootClock
                            .sleep(Duration::from_millis(30 + 40 * worker % 100))
                            .await;
                        if !was_down && down.load(Ordering::Relaxed) && hold.check().is_ok() {
                            outlived.fetch_add(1, Ordering::Relaxed);
                        }
                        let to = BootClock.now();
                        // What a lost hold did last, it did before its deadline.
                        if hold.check().is_ok() {
                            grants
                                .lock()
                                .unwrap()
                                .entry(name)
                                .or_default()
                                .push(Grant { fence, from, to });
                        }
                        hold.release().await;
                    }
                    Ok(Acquired::Busy(_)) => {}
                    Err(Error::Unavailable { .. }) => {
                        unavailable.fetch_add(1, Ordering::Relaxed);
                        BootClock.sleep(Duration::from_millis(50)).await;
                    }
                    Err(other) => panic!("{other}"),
                }
            }
        }));
    }
    let total = || grants.lock().unwrap().values().map(Vec::len).sum::<usize>();
    for _ in 0..3 {
        let before = total();
        eventually("load", || total() >= before + 15);
        let refused = unavailable.load(Ordering::Relaxed);
        down.store(true, Ordering::Relaxed);
        daemon.running.signal(Signal::KILL);
        daemon.running.code();
        eventually("clients to see that it is unavailable", || {
            unavailable.load(Ordering::Relaxed) > refused
        });
        daemon = serve(&stage, &listen, &[]);
        down.store(false, Ordering::Relaxed);
    }
    let before = total();
    eventually("work to go on", || total() >= before + 15);
    stop.store(true, Ordering::Relaxed);
    runtime.block_on(async {
        for worker in workers {
            worker.await.unwrap();
        }
    });
    let mut checked = 0;
    for (name, all) in &mut *grants.lock().unwrap() {
        all.sort_by_key(|grant| grant.from);
        for pair in all.windows(2) {
            assert!(pair[0].to <= pair[1].from, "I1: {name} was held twice: {pair:?}");
            assert!(pair[0].fence < pair[1].fence, "I2: {name}: {pair:?}");
            checked += 1;
        }
    }
    assert!(checked > 30, "{checked}");
    println!(
        "{checked} grants in order, {} outlived their daemon",
        outlived.load(Ordering::Relaxed)
    );
}

/// 10,000 clients that follow or wait, held within 200 MB.
#[test]
fn ten_thousand_idle_clients() {
    use std::io::{Read, Write};
    let hard = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    let limit = rustix::process::Rlimit {
        current: hard,
        maximum: hard,
    };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
    // As many as the system lets one process have.
    let clients =
        usize::try_from(hard.unwrap_or(u64::MAX).saturating_sub(500)).map_or(10_000, |most| most.min(10_000));
    let behind = Stage::at("memory:");
    let daemon = serve(&behind, "127.0.0.1:0", &[]);
    let address = daemon.url.trim_start_matches("http://").to_owned();
    let rss = || -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.running.child.id())).unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    };
    let before = rss();
    let mut open = Vec::new();
    for number in 0..clients {
        let mut stream = std::net::TcpStream::connect(&address).unwrap();
        if number % 2 == 0 {
            write!(stream, "GET /v1/events HTTP/1.1\r\nhost: {address}\r\n\r\n").unwrap();
        } else {
            let body = format!(r#"{{"token":"w{number}|scheduler|{number:032x}","wait_ms":60000}}"#);
            let head = "content-type: application/json";
            let length = body.len();
            write!(stream, "POST /v1/locks/job:1/wait HTTP/1.1\r\nhost: {address}\r\n{head}\r\ncontent-length: {length}\r\n\r\n{body}").unwrap();
        }
        open.push(stream);
    }
    // Every stream has begun, so every request before it was taken.
    for stream in open.iter_mut().step_by(2) {
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut first = [0; 12];
        stream.read_exact(&mut first).unwrap();
        assert_eq!(&first, b"HTTP/1.1 200");
    }
    let with = rss();
    println!("{clients} idle clients: {before} kB before, {with} kB with them");
    assert!(with < 200 * 1024, "{with} kB");
    // And it serves.
    post(&address, "/v1/locks/job:2/acquire", "{}");
    drop(open);
    post(&address, "/v1/locks/job:3/acquire", "{}");
}
