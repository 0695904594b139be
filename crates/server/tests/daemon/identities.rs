//! Who is admitted: the owner of a daemon without a tokens file, and callers whose rights are taken
//! away while a request lasts.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::Duration;

use leasehold::clock::{BootClock, Clock};
use leasehold_core::rng::OsRandom;
use leasehold_server::auth::{NewToken, OwnerToken};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::fixture::{Daemon, DaemonPlan, eventually, within};

fn write_private(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o600)).unwrap();
}

fn new_token(id: &str, grants: &[&str]) -> NewToken {
    let grants: Vec<_> = grants.iter().map(|grant| grant.parse().unwrap()).collect();
    NewToken::make(id, &grants, None, &OsRandom).unwrap()
}

/// A daemon without a tokens file is its owner's: every route but the open ones needs the token.
#[tokio::test]
async fn finding_08_a_stranger_on_this_machine_gets_nothing() {
    let mut plan = DaemonPlan::with_plane();
    let owner = OwnerToken::make(&OsRandom);
    plan.config.owner_token = Some(owner.clone());
    let daemon = plan.start().await;
    let mut closed = 0;
    for (method, path, role) in &daemon.rules {
        let path = path.replace(['{', '}'], "");
        for token in [None, Some("lk_local_0"), Some("lk_ci_00")] {
            let reply = daemon.call(method, &path, token, None).await;
            assert_eq!(reply.status == 401, role.is_some(), "{method} {path}: {reply:?}");
        }
        closed += usize::from(role.is_some());
    }
    assert!(closed > 30, "{closed}");
    assert_eq!(daemon.get("/metrics").await.code(), "unauthorized");
    let told = daemon.get("/v1/me").await;
    assert!(told.text.contains("only the user who started this daemon"), "{told:?}");
    let me = daemon.call("GET", "/v1/me", Some(owner.expose()), None).await.ok();
    assert_eq!(me, json!({"id": "local", "grants": ["admin:*"]}));
    assert!(!format!("{owner:?}").contains("lk_"));
}

/// The link to the dashboard carries a code that is worth the token once.
#[tokio::test]
async fn finding_08_a_dashboard_code_is_exchanged_once() {
    let mut plan = DaemonPlan::new();
    let tokens = plan.identities(&[("reader", &["read:team"])]);
    let daemon = plan.start().await;
    assert_eq!(daemon.post("/v1/dashboard/codes", json!({})).await.status, 401);
    let made = daemon.call("POST", "/v1/dashboard/codes", Some(&tokens[0]), Some(json!({}))).await.ok();
    let code = json!({"code": made["code"]});
    assert!(!made.to_string().contains("lk_"), "{made}");
    let wrong = daemon.post("/v1/dashboard/session", json!({"code": "0".repeat(32)})).await;
    assert_eq!(wrong.code(), "unauthorized");
    let session = daemon.post("/v1/dashboard/session", code.clone()).await.ok();
    assert_eq!(session["token"], tokens[0]);
    let again = daemon.post("/v1/dashboard/session", code).await;
    assert_eq!(again.code(), "unauthorized");
    assert!(again.text.contains("leasehold dashboard"), "{again:?}");
    // A page of another origin cannot use a code that it has got hold of.
    let foreign = "POST /v1/dashboard/session HTTP/1.1\r\nhost: 127.0.0.1\r\norigin: http://evil.example\r\nconnection: close\r\n\r\n";
    assert_eq!(daemon.raw(foreign).await.status, 403);
}

/// An event stream, read until it ends or a text has come.
struct RawStream(TcpStream, String);

impl RawStream {
    async fn open(daemon: &Daemon, token: &str) -> Self {
        let mut stream = daemon.connect().await;
        let request = format!(
            "GET /v1/events HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\r\n",
            daemon.address
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut this = Self(stream, String::new());
        this.until("retry: 1000").await;
        this
    }

    /// Reads until the text has come; false if the stream ended before.
    async fn until(&mut self, text: &str) -> bool {
        let reading = async {
            let mut piece = [0; 4096];
            while !self.1.contains(text) {
                match self.0.read(&mut piece).await.unwrap() {
                    0 => return false,
                    read => self.1.push_str(&String::from_utf8_lossy(&piece[..read])),
                }
            }
            true
        };
        within(&format!("{text} or the end of the stream"), reading).await
    }
}

async fn is_refused(daemon: &Daemon, token: &str) -> bool {
    daemon.call("GET", "/v1/me", Some(token), None).await.status == 401
}

#[tokio::test]
async fn finding_12_a_revoked_token_ends_its_streams_and_waits() {
    let mut plan = DaemonPlan::with_plane();
    let tokens = plan.identities(&[("root", &["admin:*"]), ("spy", &["admin:*"])]);
    let path = plan.config.tokens.clone().unwrap();
    let daemon = plan.start().await;
    let (root, spy) = (Some(tokens[0].as_str()), Some(tokens[1].as_str()));
    let acquire = async |name: &str, who, wait_ms: u64| {
        let request = json!({"ttl_ms": 600_000, "wait_ms": wait_ms});
        daemon.call("POST", &format!("/v1/locks/{name}/acquire"), who, Some(request)).await
    };
    let granted = acquire("job:1", root, 0).await.ok();
    let job = json!({"id": "a", "work": "pull"});
    daemon.call("POST", "/v1/jobs", root, Some(job)).await.ok();
    let wait = json!({"token": granted["token"], "wait_ms": 60_000});
    let hold = json!({"name": "job:1", "wait_ms": 60_000});
    let mut stream = RawStream::open(&daemon, &tokens[1]).await;
    let revoke = async {
        acquire("secret:before", root, 0).await.ok();
        assert!(stream.until("secret:before").await);
        // The identity stays in the file, with another secret.
        let text = std::fs::read_to_string(&path).unwrap();
        let (before, _) = text.split_once("[[token]]\nid = \"spy\"").unwrap();
        let revoked_at = BootClock.now();
        write_private(&path, &format!("{before}{}", new_token("spy", &["admin:*"]).entry));
        eventually("new requests to be refused", async || is_refused(&daemon, &tokens[1]).await).await;
        acquire("secret:after", root, 0).await.ok();
        assert!(!stream.until("secret:after").await, "the stream has ended: {}", stream.1);
        revoked_at
    };
    let breaks = json!({"reason": "it hangs", "wait_ms": 60_000});
    // Each of them would wait for a minute, and be answered otherwise then.
    let (acquired, held, woken, polled, broken, revoked_at) = tokio::join!(
        acquire("job:1", spy, 60_000),
        daemon.call("POST", "/v1/holds", spy, Some(hold)),
        daemon.call("POST", "/v1/locks/job:1/wait", spy, Some(wait)),
        daemon.call("GET", "/v1/jobs/a?after=1000&wait_ms=60000", spy, None),
        daemon.call("POST", "/v1/locks/job:1/break", spy, Some(breaks)),
        revoke,
    );
    // Within 5 s; the rest is for a busy machine.
    assert!(BootClock.now().since(revoked_at) < Duration::from_secs(15));
    for reply in [acquired, held, woken, polled, broken] {
        assert_eq!((reply.status, reply.code().as_str()), (401, "unauthorized"), "{reply:?}");
    }
}

#[tokio::test]
async fn finding_12_reduced_grants_count_in_open_streams() {
    let mut plan = DaemonPlan::new();
    let tokens = plan.identities(&[("root", &["admin:*"]), ("spy", &["read:secret", "read:open"])]);
    let path = plan.config.tokens.clone().unwrap();
    let daemon = plan.start().await;
    let acquire = async |name: &str| {
        let path = format!("/v1/locks/{name}/acquire");
        daemon.call("POST", &path, Some(&tokens[0]), Some(json!({}))).await.ok();
    };
    let mut stream = RawStream::open(&daemon, &tokens[1]).await;
    acquire("secret:before").await;
    assert!(stream.until("secret:before").await);
    let text = std::fs::read_to_string(&path).unwrap().replace("\"read:secret\", ", "");
    write_private(&path, &text);
    eventually("the grant to be gone", async || {
        let me = daemon.call("GET", "/v1/me", Some(&tokens[1]), None).await.ok();
        me["grants"] == json!(["read:open"])
    })
    .await;
    acquire("secret:after").await;
    acquire("open:after").await;
    assert!(stream.until("open:after").await);
    assert!(!stream.1.contains("secret:after"), "{}", stream.1);
}

#[tokio::test]
async fn finding_12_an_expired_token_ends_its_stream() {
    let mut plan = DaemonPlan::new();
    plan.identities(&[]);
    let soon = BootClock.wall() + Duration::from_secs(3);
    let expires = jiff::Timestamp::try_from(soon).unwrap();
    let new = NewToken::make("brief", &["read:*".parse().unwrap()], Some(expires), &OsRandom).unwrap();
    write_private(plan.config.tokens.as_ref().unwrap(), &new.entry);
    let daemon = plan.start().await;
    let mut stream = RawStream::open(&daemon, &new.token).await;
    assert!(!stream.until("never").await, "it ends");
    // Within 5 s; the rest is for a busy machine.
    assert!(BootClock.wall() < soon + Duration::from_secs(15));
    assert!(is_refused(&daemon, &new.token).await);
}

/// A mounted Kubernetes secret changes by a link, with equal sizes and times.
#[tokio::test]
async fn finding_12_a_symlinked_tokens_file_is_followed() {
    let mut plan = DaemonPlan::new();
    let mount = plan.folder.path().join("mount");
    std::fs::create_dir(&mount).unwrap();
    let tokens = [new_token("ci", &["read:*"]), new_token("ci", &["read:*"])];
    for (at, new) in tokens.iter().enumerate() {
        let folder = mount.join(format!("..v{at}"));
        std::fs::create_dir(&folder).unwrap();
        write_private(&folder.join("tokens.toml"), &new.entry);
        let file = std::fs::File::options().write(true).open(folder.join("tokens.toml")).unwrap();
        file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    }
    symlink("..v0", mount.join("..data")).unwrap();
    symlink("..data/tokens.toml", mount.join("tokens.toml")).unwrap();
    plan.config.tokens = Some(mount.join("tokens.toml"));
    let daemon = plan.start().await;
    assert!(!is_refused(&daemon, &tokens[0].token).await && is_refused(&daemon, &tokens[1].token).await);
    symlink("..v1", mount.join("..data_tmp")).unwrap();
    std::fs::rename(mount.join("..data_tmp"), mount.join("..data")).unwrap();
    eventually("the new secret", async || !is_refused(&daemon, &tokens[1].token).await).await;
    assert!(is_refused(&daemon, &tokens[0].token).await);
}
