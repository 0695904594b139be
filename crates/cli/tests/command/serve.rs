//! The daemon as a process: `run`, `list` and `show` through it, its death under load, its orderly stop.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests, and what they share")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::fixture::{
    BEAT_SCRIPT, Fixture, RunningProcess, StoppedProcess, eventually, exit_code, is_running, last_beat,
    owner_header, owner_url, stderr_of, stdout_of, uptime,
};
use leasehold::clock::{BootClock, Clock, ClockExt, Moment};
use leasehold::{Acquired, Error};
use rustix::process::Signal;

/// A daemon on a SQLite file in the fixture's folder.
struct DaemonProcess {
    running: RunningProcess,
    url: String,
}

fn serve(fixture: &Fixture, listen: &str, more: &[&str]) -> DaemonProcess {
    let mut args = vec!["serve", "--listen", listen, "--state"];
    let state = fixture.path("state").display().to_string();
    args.push(&state);
    args.extend(more);
    let running = fixture.start(&args);
    let mut url = String::new();
    eventually("the daemon to serve", || {
        let message = running.stderr();
        let found = message.split_whitespace().find(|word| word.starts_with("http"));
        url = found.unwrap_or_default().to_owned();
        !url.is_empty() && message.ends_with('\n')
    });
    DaemonProcess { running, url }
}

/// Verbs behave the same with a daemon's URL and with the store itself.
#[test]
fn run_list_and_show_are_the_same_through_a_daemon() {
    let behind = Fixture::sqlite();
    let daemon = serve(&behind, "127.0.0.1:0", &[]);
    let fixture = Fixture::with_store(&daemon.url);
    let mut first = fixture.start(&[
        "--holder",
        "first",
        "run",
        "-c",
        "echo $LEASEHOLD_FENCE $LEASEHOLD_STORE > fence; while [ ! -e stop ]; do sleep 0.02; done; exit 7",
        "job:1",
    ]);
    let line = fixture.wait_for_line("fence");
    let (fence, store) = line.split_once(' ').unwrap();
    assert_eq!(store, daemon.url);
    let busy = fixture.run(&["run", "-n", "job:1", "true"]);
    assert_eq!(exit_code(&busy), 124, "{}", stderr_of(&busy));
    assert!(stderr_of(&busy).contains("held by first"), "{}", stderr_of(&busy));
    // Both URLs show the same.
    for at in [&fixture, &behind] {
        let listed = stdout_of(&at.run(&["list", "job:"]));
        assert!(listed.contains("first") && listed.contains(fence), "{listed}");
        assert_eq!(exit_code(&at.run(&["show", "job:1"])), 0);
    }
    // A waiter behind the daemon gets the lock when the holder has ended.
    let mut second = fixture.start(&["run", "-w", "50s", "-c", "echo $LEASEHOLD_FENCE > next", "job:1"]);
    fixture.write("stop", "");
    assert_eq!((first.wait_exit_code(), first.stderr().as_str()), (7, ""), "the command's own code");
    assert_eq!(second.wait_exit_code(), 0, "{}", second.stderr());
    let next: u64 = fixture.wait_for_line("next").parse().unwrap();
    assert!(next > fence.parse().unwrap());
    assert_eq!(exit_code(&fixture.run(&["show", "job:1"])), 1);
}

/// The daemon stops responding while a command runs; the command dies before its lease can expire.
#[test]
fn trap_01_a_silent_daemon_ends_the_command_before_the_ttl() {
    let behind = Fixture::sqlite();
    let daemon = serve(&behind, "127.0.0.1:0", &[]);
    let fixture = Fixture::with_store(&daemon.url);
    let script = format!("echo $$ > pid1; {}", BEAT_SCRIPT.replace("$1", "beats"));
    let mut run = fixture.start(&["run", "--ttl", "3s", "-c", &script, "demo"]);
    let pid = fixture.pid("pid1");
    eventually("beats", || fixture.read("beats").lines().count() > 2);
    let frozen = StoppedProcess::new(daemon.running.pid());
    let over = uptime() + 3.0;
    assert_eq!(run.wait_exit_code(), 121, "{}", run.stderr());
    assert!(!is_running(pid));
    assert!(last_beat(&fixture.read("beats")) < over);
    drop(frozen);
}

#[test]
fn for_a_dead_daemon_the_class_decides() {
    let behind = Fixture::sqlite();
    let mut daemon = serve(&behind, "127.0.0.1:0", &[]);
    daemon.running.signal(Signal::KILL);
    daemon.running.wait_exit_code();
    let fixture = Fixture::with_store(&daemon.url);
    let closed = fixture.run(&["run", "demo", "true"]);
    assert_eq!(exit_code(&closed), 125, "{}", stderr_of(&closed));
    assert!(stderr_of(&closed).contains("unavailable"), "{}", stderr_of(&closed));
    let open = fixture.run(&["run", "--class", "workflow", "demo", "true"]);
    assert_eq!(exit_code(&open), 0, "{}", stderr_of(&open));
    assert!(stderr_of(&open).contains("LOCAL LOCK ONLY"), "{}", stderr_of(&open));
    assert_eq!(exit_code(&fixture.run(&["list"])), 2);
}

#[test]
fn serve_requires_tokens_and_tls_on_public_addresses() {
    let fixture = Fixture::sqlite();
    let open = fixture.run(&["serve", "--listen", "0.0.0.0:0"]);
    assert_eq!(exit_code(&open), 2);
    assert!(
        stderr_of(&open).contains("--tokens") && stderr_of(&open).lines().count() <= 3,
        "{}",
        stderr_of(&open)
    );
    let made = fixture.run(&["token", "new", "ci", "--grant", "hold:job", "--file", "tokens.toml"]);
    assert_eq!(exit_code(&made), 0, "{}", stderr_of(&made));
    fixture.write("ci.token", &stdout_of(&made));
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &std::fs::metadata(fixture.path("tokens.toml")).unwrap().permissions(),
    );
    assert_eq!(mode & 0o777, 0o600);
    let plain = fixture.run(&["serve", "--listen", "0.0.0.0:0", "--tokens", "tokens.toml"]);
    assert!(stderr_of(&plain).contains("--tls-cert"), "{}", stderr_of(&plain));
    // A token gives exactly its grants.
    let daemon = serve(&fixture, "127.0.0.1:0", &["--tokens", "tokens.toml"]);
    let path = fixture.path("ci.token");
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let with = Fixture::with_store(format!("{}?token_file={}", daemon.url, path.display()));
    assert_eq!(exit_code(&with.run(&["run", "job:1", "true"])), 0);
    let foreign = with.run(&["run", "other:1", "true"]);
    assert_eq!(exit_code(&foreign), 125, "{}", stderr_of(&foreign));
    let without = Fixture::with_store(&daemon.url);
    assert!(stderr_of(&without.run(&["run", "job:1", "true"])).contains("access denied"));
    let twice = fixture.run(&["token", "new", "ci", "--grant", "hold:job", "--file", "tokens.toml"]);
    assert!(exit_code(&twice) == 2 && stderr_of(&twice).contains("twice"), "{}", stderr_of(&twice));
    assert_eq!(exit_code(&with.run(&["run", "job:1", "true"])), 0, "the file is as it was");
}

/// Without the plane no grant allows less than before, so there is nothing to warn about.
#[test]
fn finding_05_a_grant_that_lost_something_is_named_at_the_start() {
    let fixture = Fixture::sqlite();
    for (id, grant) in [("ci", "hold:job"), ("lock", "hold:deploy"), ("new", "work:topic:pay")] {
        let made = fixture.run(&["token", "new", id, "--grant", grant, "--file", "tokens.toml"]);
        assert_eq!(exit_code(&made), 0, "{}", stderr_of(&made));
    }
    for (plane, warned) in [(&["--plane"][..], 1), (&[], 0)] {
        let daemon = serve(&fixture, "127.0.0.1:0", &[&["--tokens", "tokens.toml"], plane].concat());
        let message = daemon.running.stderr();
        assert_eq!(message.matches("any more: add").count(), warned, "{message}");
        assert_eq!(
            message.contains("the grant hold:job of ci does not allow to submit"),
            warned == 1,
            "{message}"
        );
        assert_eq!(
            message.contains("submit:job with submit:topic, work:job or approve:job"),
            warned == 1,
            "{message}"
        );
    }
}

#[test]
fn the_first_signal_drains_and_the_second_ends_it() {
    let fixture = Fixture::sqlite();
    let mut daemon = serve(&fixture, "127.0.0.1:0", &[]);
    daemon.running.signal(Signal::TERM);
    assert_eq!(daemon.running.wait_exit_code(), 0, "{}", daemon.running.stderr());
    let mut daemon = serve(&fixture, "127.0.0.1:0", &["--drain", "10m"]);
    // A daemon-kept hold that is not released keeps the daemon draining.
    let address = daemon.url.trim_start_matches("http://").to_owned();
    post(&address, "/v1/holds", r#"{"name":"job:1","heartbeat_ms":600000}"#);
    daemon.running.signal(Signal::TERM);
    daemon.running.wait_for_stderr("stopping");
    assert!(!daemon.running.has_ended());
    daemon.running.signal(Signal::TERM);
    assert_eq!(daemon.running.wait_exit_code(), 1, "{}", daemon.running.stderr());
}

fn post(address: &str, path: &str, body: &str) -> String {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    let head = "content-type: application/json\r\nconnection: close";
    let length = body.len();
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nhost: {address}\r\n{}\r\n{head}\r\ncontent-length: {length}\r\n\r\n{body}",
        owner_header(address)
    )
    .unwrap();
    let mut all = String::new();
    stream.read_to_string(&mut all).unwrap();
    assert!(all.starts_with("HTTP/1.1 2"), "{all}");
    all
}

/// One grant as its holder observed it.
#[derive(Debug, Clone, Copy)]
struct UsedGrant {
    fence: u64,
    /// Time before its first use.
    from: Moment,
    /// Time after its last use.
    to: Moment,
}

/// Killed and restarted under load: clients see *unavailable*, their holds stay valid until their
/// deadlines, and no lock is granted twice.
#[test]
fn killed_under_load_nothing_is_granted_twice() {
    let fixture = Fixture::sqlite();
    let mut daemon = serve(&fixture, "127.0.0.1:0", &[]);
    let (url, listen) = (owner_url(&daemon.url), daemon.url.trim_start_matches("http://").to_owned());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let grants: Arc<Mutex<BTreeMap<String, Vec<UsedGrant>>>> = Arc::default();
    let (stop, unavailable, outlived) =
        (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
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
            // One client each, as separate processes would have.
            let locks = leasehold::open(url)
                .holder(leasehold::Holder::new(&format!("w{worker}")).unwrap())
                .without_log()
                .build()
                .await
                .unwrap();
            while !stop.load(Ordering::Relaxed) {
                let name = format!("job:{}", worker % 3);
                let class =
                    locks.class("scheduler").ttl(Duration::from_secs(4)).wait(Duration::from_millis(500));
                match class.acquire(name.clone()).await {
                    Ok(Acquired::Held(hold)) => {
                        let from = BootClock.now();
                        let fence = hold.fence().unwrap().get();
                        let was_down = down.load(Ordering::Relaxed);
                        BootClock.sleep(Duration::from_millis(30 + 40 * worker % 100)).await;
                        if !was_down && down.load(Ordering::Relaxed) && hold.check().is_ok() {
                            outlived.fetch_add(1, Ordering::Relaxed);
                        }
                        let to = BootClock.now();
                        // A lost hold was last used before its deadline.
                        if hold.check().is_ok() {
                            grants.lock().unwrap().entry(name).or_default().push(UsedGrant {
                                fence,
                                from,
                                to,
                            });
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
        daemon.running.wait_exit_code();
        eventually("clients to see that it is unavailable", || unavailable.load(Ordering::Relaxed) > refused);
        daemon = serve(&fixture, &listen, &[]);
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
    println!("{checked} grants in order, {} outlived their daemon", outlived.load(Ordering::Relaxed));
}

/// 10,000 clients that follow events or wait, within 200 MB of memory.
#[test]
fn ten_thousand_idle_clients() {
    use std::io::{Read, Write};
    let hard = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    let limit = rustix::process::Rlimit { current: hard, maximum: hard };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
    // Limited by the open-file limit of one process.
    let clients =
        usize::try_from(hard.unwrap_or(u64::MAX).saturating_sub(500)).map_or(10_000, |most| most.min(10_000));
    let behind = Fixture::with_store("memory:");
    let daemon = serve(&behind, "127.0.0.1:0", &["--max-connections", "16384"]);
    let address = daemon.url.trim_start_matches("http://").to_owned();
    let rss = || -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.running.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    };
    let before = rss();
    let token = owner_header(&address);
    let mut open = Vec::new();
    for number in 0..clients {
        let mut stream = std::net::TcpStream::connect(&address).unwrap();
        if number % 2 == 0 {
            write!(stream, "GET /v1/events HTTP/1.1\r\nhost: {address}\r\n{token}\r\n\r\n").unwrap();
        } else {
            let body = format!(r#"{{"token":"w{number}|scheduler|{number:032x}","wait_ms":60000}}"#);
            let head = format!("{token}\r\ncontent-type: application/json");
            let length = body.len();
            write!(stream, "POST /v1/locks/job:1/wait HTTP/1.1\r\nhost: {address}\r\n{head}\r\ncontent-length: {length}\r\n\r\n{body}").unwrap();
        }
        open.push(stream);
    }
    // Each stream has begun, so each request before it was accepted.
    for stream in open.iter_mut().step_by(2) {
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut first = [0; 12];
        stream.read_exact(&mut first).unwrap();
        assert_eq!(&first, b"HTTP/1.1 200");
    }
    let with = rss();
    println!("{clients} idle clients: {before} kB before, {with} kB with them");
    assert!(with < 200 * 1024, "{with} kB");
    // The daemon still serves requests.
    post(&address, "/v1/locks/job:2/acquire", "{}");
    drop(open);
    post(&address, "/v1/locks/job:3/acquire", "{}");
}

/// Finding 23 of the security review: silent connections used up the descriptors, and renewals found none.
#[test]
fn finding_23_silent_connections_leave_descriptors_for_the_store() {
    use std::io::{Read, Write};
    let fixture = Fixture::sqlite();
    let new_token = ["token", "new", "ci", "--grant", "hold:job", "--file", "tokens.toml"];
    let token = stdout_of(&fixture.command(&new_token).output().unwrap());
    let serve = ["serve", "--listen", "127.0.0.1:0", "--state", "state", "--tokens", "tokens.toml"];
    let serve = fixture.command(&serve);
    let log = fixture.path("daemon.log");
    let mut limited = std::process::Command::new("sh");
    limited.args(["-c", r#"ulimit -n 256; exec "$0" "$@""#]).arg(serve.get_program()).args(serve.get_args());
    for (key, value) in serve.get_envs() {
        match value {
            Some(value) => limited.env(key, value),
            None => limited.env_remove(key),
        };
    }
    limited.current_dir(fixture.path(".")).stderr(std::fs::File::create(&log).unwrap());
    let daemon = RunningProcess::from_child(limited.spawn().unwrap(), log);
    daemon.wait_for_stderr("http://");
    let mut address = String::new();
    eventually("the daemon's address", || {
        let message = daemon.stderr();
        let found = message.split_whitespace().find_map(|word| word.strip_prefix("http://"));
        address = found.unwrap_or_default().to_owned();
        message.ends_with('\n')
    });
    let silent: Vec<_> = (0..300).map(|_| std::net::TcpStream::connect(&address).unwrap()).collect();
    let request = |path: &str, body: &str| -> std::io::Result<String> {
        let mut stream = std::net::TcpStream::connect(&address)?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        let head = format!(
            "authorization: Bearer {}\r\ncontent-type: application/json\r\nconnection: close",
            token.trim()
        );
        let length = body.len();
        write!(
            stream,
            "POST {path} HTTP/1.1\r\nhost: {address}\r\n{head}\r\ncontent-length: {length}\r\n\r\n{body}"
        )?;
        let mut all = String::new();
        stream.read_to_string(&mut all)?;
        Ok(all)
    };
    eventually("a lock beside the silent connections", || {
        request("/v1/locks/job:1/acquire", r#"{"id":"a"}"#)
            .is_ok_and(|reply| reply.starts_with("HTTP/1.1 200"))
    });
    let log = daemon.stderr();
    assert!(!log.contains("could not be accepted"), "{log}");
    drop(silent);
}
