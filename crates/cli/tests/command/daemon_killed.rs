//! `kill -9` of the daemon under load, with client-kept and daemon-kept holds: no lock is granted twice, and
//! each lost hold is reported.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests, and what they share")]

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::fixture::{Fixture, RunningProcess, eventually, exit_code, owner_header, owner_url, stderr_of};
use leasehold::clock::{BootClock, Clock, ClockExt, Moment};
use leasehold::{Acquired, Error};
use rustix::process::Signal;
use serde_json::{Value, json};

/// Starts a daemon on the fixture's SQLite file, at this address.
fn serve(fixture: &Fixture, listen: &str) -> (RunningProcess, String) {
    let running = fixture.start(&["serve", "--listen", listen, "--state", "state"]);
    let mut url = String::new();
    eventually("the daemon to serve", || {
        let message = running.stderr();
        let found = message.split_whitespace().find(|word| word.starts_with("http"));
        url = found.unwrap_or_default().to_owned();
        !url.is_empty() && message.ends_with('\n')
    });
    (running, url.trim_start_matches("http://").to_owned())
}

/// Sends one request; an error means that its outcome is unknown.
fn send_request(
    address: &str,
    method: &str,
    path: &str,
    body: Option<&Value>,
) -> std::io::Result<(u16, Value)> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    let body = body.map(ToString::to_string).unwrap_or_default();
    let kind = if body.is_empty() { "" } else { "content-type: application/json\r\n" };
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\n{}\r\nconnection: close\r\n{kind}content-length: {length}\r\n\r\n{body}",
        owner_header(address)
    )?;
    let mut all = String::new();
    stream.read_to_string(&mut all)?;
    let cut = || std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
    let (head, text) = all.split_once("\r\n\r\n").ok_or_else(cut)?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(cut)?;
    if status == 401 {
        // The daemon was started again after its token was read here; nothing was done.
        return Err(std::io::ErrorKind::PermissionDenied.into());
    }
    Ok((status, serde_json::from_str(text).map_err(|_| cut())?))
}

/// Repeats a request until it gets a definite response: the daemon may be down or starting.
fn send_until_definite(address: &str, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
    let mut answer = None;
    eventually(&format!("an answer to {method} {path}"), || {
        answer = send_request(address, method, path, body).ok().filter(|(status, _)| *status != 503);
        answer.is_some()
    });
    answer.unwrap()
}

/// One grant as its holder observed it, on the host's boot clock.
#[derive(Debug, Clone, Copy)]
struct ObservedGrant {
    fence: u64,
    /// When the grant's response arrived.
    from: Moment,
    /// The last time at which the holder knew that it was still valid.
    to: Moment,
    kept_by_daemon: bool,
}

/// The grants of all clients.
#[derive(Default)]
struct GrantRecord {
    grants: Mutex<BTreeMap<String, Vec<ObservedGrant>>>,
    unavailable: AtomicU64,
    /// Heartbeats that a restarted daemon answered for a hold of its predecessor.
    resumed: AtomicU64,
    life: AtomicU64,
    stop: AtomicBool,
}

impl GrantRecord {
    fn add(&self, name: &str, grant: ObservedGrant) {
        let mut grants = self.grants.lock().unwrap();
        grants.entry(name.to_owned()).or_default().push(grant);
    }

    fn total(&self, kept_by_daemon: bool) -> usize {
        let grants = self.grants.lock().unwrap();
        grants.values().flatten().filter(|grant| grant.kept_by_daemon == kept_by_daemon).count()
    }
}

/// A client that renews its own lease, like a program with the library.
async fn client_kept(url: String, number: u64, record: Arc<GrantRecord>) {
    let locks = leasehold::open(owner_url(&url))
        .holder(leasehold::Holder::new(&format!("c{number}")).unwrap())
        .without_log()
        .build()
        .await
        .unwrap();
    let name = format!("job:{}", number % 2);
    while !record.stop.load(Ordering::Relaxed) {
        let class = locks.class("scheduler").ttl(Duration::from_secs(4)).wait(Duration::from_millis(500));
        match class.acquire(name.clone()).await {
            Ok(Acquired::Held(hold)) => {
                let (from, fence) = (BootClock.now(), hold.fence().unwrap().get());
                BootClock.sleep(Duration::from_millis(20 + 30 * number)).await;
                let to = BootClock.now();
                if hold.check().is_ok() {
                    record.add(&name, ObservedGrant { fence, from, to, kept_by_daemon: false });
                }
                hold.release().await;
            }
            Ok(Acquired::Busy(_)) => {}
            Err(Error::Unavailable { .. }) => {
                record.unavailable.fetch_add(1, Ordering::Relaxed);
                BootClock.sleep(Duration::from_millis(50)).await;
            }
            Err(other) => panic!("{other}"),
        }
    }
}

/// A client whose hold the daemon keeps, like a script with curl. `valid_ms` counts from before each
/// answered request.
#[allow(clippy::disallowed_methods, reason = "real processes are waited for")]
fn daemon_kept(address: &str, number: u64, record: &GrantRecord) {
    let name = format!("job:{}", number % 2);
    let pause = || std::thread::sleep(Duration::from_millis(20));
    for turn in 0.. {
        if record.stop.load(Ordering::Relaxed) {
            return;
        }
        let id = format!("d{number}-{turn}");
        let want = json!({"id": id, "name": name, "ttl_ms": 4000, "heartbeat_ms": 3000, "wait_ms": 500, "holder": id});
        let path = format!("/v1/holds/{id}");
        let (mut until, mut fence) = (Moment::ZERO, 0);
        let life = record.life.load(Ordering::Relaxed);
        // The same id after each unknown outcome, so it is the same hold.
        while fence == 0 && !record.stop.load(Ordering::Relaxed) {
            let sent = BootClock.now();
            match send_request(address, "POST", "/v1/holds", Some(&want)) {
                Ok((200 | 201, hold)) => {
                    until = sent + Duration::from_millis(hold["valid_ms"].as_u64().unwrap());
                    fence = hold["fence"].as_str().unwrap().parse().unwrap();
                }
                Ok((409 | 410, _)) => break,
                Ok((503, _)) | Err(_) => {
                    record.unavailable.fetch_add(1, Ordering::Relaxed);
                    pause();
                }
                Ok(other) => panic!("{other:?}"),
            }
        }
        let from = BootClock.now();
        if fence == 0 || from >= until {
            continue;
        }
        let (mut to, mut beats) = (from, 0);
        while beats < 6 {
            let now = BootClock.now();
            if now >= until {
                break;
            }
            to = now;
            pause();
            let sent = BootClock.now();
            match send_request(address, "POST", &format!("{path}/heartbeat"), None) {
                Ok((200, hold)) => {
                    assert_eq!(hold["fence"].as_str().unwrap().parse(), Ok(fence), "a hold has one fence");
                    until = sent + Duration::from_millis(hold["valid_ms"].as_u64().unwrap());
                    beats += 1;
                    if record.life.load(Ordering::Relaxed) > life {
                        record.resumed.fetch_add(1, Ordering::Relaxed);
                    }
                }
                // The hold has ended, and the daemon reported it.
                Ok((404 | 410, _)) => break,
                _ => {}
            }
        }
        record.add(&name, ObservedGrant { fence, from, to, kept_by_daemon: true });
        let _ = send_request(address, "DELETE", &path, None);
    }
}

#[test]
fn nothing_is_granted_twice_and_each_loss_is_reported() {
    let fixture = Fixture::sqlite();
    let (mut daemon, address) = serve(&fixture, "127.0.0.1:0");
    // Three long holds besides the load: client-kept, daemon-kept, and one that an operator will break.
    let mine = json!({"id": "long", "holder": "me", "ttl_ms": 600_000});
    let (status, mine_held) = send_request(&address, "POST", "/v1/locks/mine/acquire", Some(&mine)).unwrap();
    assert_eq!(status, 200, "{mine_held}");
    let hold = |id: &str| json!({"id": id, "name": id, "ttl_ms": 600_000, "heartbeat_ms": 600_000});
    let (_, kept) = send_request(&address, "POST", "/v1/holds", Some(&hold("kept"))).unwrap();
    let (_, taken) = send_request(&address, "POST", "/v1/holds", Some(&hold("taken"))).unwrap();
    assert!(kept["fence"].is_string() && taken["fence"].is_string(), "{kept} {taken}");

    let record = Arc::<GrantRecord>::default();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let clients: Vec<_> = (0..4)
        .map(|number| runtime.spawn(client_kept(format!("http://{address}"), number, Arc::clone(&record))))
        .collect();
    let others: Vec<_> = (0..4)
        .map(|number| {
            let (address, record) = (address.clone(), Arc::clone(&record));
            std::thread::spawn(move || daemon_kept(&address, number, &record))
        })
        .collect();

    for round in 0..3 {
        let before = [record.total(false), record.total(true)];
        eventually("load of both kinds", || {
            record.total(false) >= before[0] + 5 && record.total(true) >= before[1] + 3
        });
        let refused = record.unavailable.load(Ordering::Relaxed);
        daemon.signal(Signal::KILL);
        assert_eq!(daemon.wait_exit_code(), -9);
        eventually("clients to see that it is unavailable", || {
            record.unavailable.load(Ordering::Relaxed) > refused
        });
        if round == 0 {
            // While the daemon is down, an operator breaks one of them on the store itself.
            let broken = fixture.run(&["break", "taken", "--reason", "test", "--force", "--wait", "0s"]);
            assert_eq!(exit_code(&broken), 0, "{}", stderr_of(&broken));
        }
        record.life.fetch_add(1, Ordering::Relaxed);
        (daemon, _) = serve(&fixture, &address);
        // The client-kept hold goes on with its token, and the same id returns the same grant.
        let renew = json!({"token": mine_held["token"], "fence": mine_held["fence"]});
        assert_eq!(send_until_definite(&address, "POST", "/v1/locks/mine/renew", Some(&renew)).0, 200);
        assert_eq!(
            send_until_definite(&address, "POST", "/v1/locks/mine/acquire", Some(&mine)),
            (200, mine_held.clone())
        );
        // The daemon resumes its hold with the same fence, and reports the broken one as gone.
        let (status, beat) = send_until_definite(&address, "POST", "/v1/holds/kept/heartbeat", None);
        assert_eq!((status, &beat["fence"]), (200, &kept["fence"]), "{beat}");
        let (status, over) = send_until_definite(&address, "POST", "/v1/holds/taken/heartbeat", None);
        if round == 0 {
            assert_eq!((status, over["reason"].as_str()), (410, Some("daemon_down")), "{over}");
        } else {
            assert!(matches!(status, 404 | 410), "{over}");
        }
    }
    let before = record.total(false) + record.total(true);
    eventually("work to go on", || record.total(false) + record.total(true) >= before + 10);
    record.stop.store(true, Ordering::Relaxed);
    runtime.block_on(async {
        for client in clients {
            client.await.unwrap();
        }
    });
    for other in others {
        other.join().unwrap();
    }

    let mut checked = 0;
    for (name, all) in &mut *record.grants.lock().unwrap() {
        all.sort_by_key(|grant| grant.from);
        for pair in all.windows(2) {
            assert!(pair[0].to <= pair[1].from, "I1: {name} was held twice: {pair:?}");
            assert!(pair[0].fence < pair[1].fence, "I2: {name}: {pair:?}");
            checked += 1;
        }
    }
    assert!(checked > 20, "{checked}");
    // The audit log is complete.
    let audit = fixture.run(&["audit", "verify", "state/audit.jsonl"]);
    assert_eq!(exit_code(&audit), 0, "{}", stderr_of(&audit));
    println!(
        "{checked} grants in order ({} kept by clients, {} by the daemon), {} heartbeats answered by a later life",
        record.total(false),
        record.total(true),
        record.resumed.load(Ordering::Relaxed)
    );
}
