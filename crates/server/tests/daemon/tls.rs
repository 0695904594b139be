//! TLS: the daemon's certificate, and clients identified by theirs.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use leasehold::Name;
use leasehold::store::{Store, StoreErrorKind};
use leasehold_http::{HttpOptions, HttpStore};
use leasehold_server::TlsFiles;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::fixture::{Daemon, DaemonPlan, Reply, eventually, within};

fn write(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o600)).unwrap();
}

/// Creates a certificate authority and certificates signed by it.
fn certificates(folder: &Path) {
    write(&folder.join("ca.pem"), &authority(folder, &["localhost", "worker-1.example", "stranger.example"]));
}

/// Creates certificates of these names, and returns the authority that has signed them.
fn authority(folder: &Path, names: &[&str]) -> String {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    for name in names {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![(*name).to_owned()]).unwrap();
        let signed = params.signed_by(&key, &issuer).unwrap();
        write(&folder.join(format!("{name}.pem")), &signed.pem());
        write(&folder.join(format!("{name}.key")), &key.serialize_pem());
    }
    issuer.pem()
}

/// The daemon's files, with client certificates requested.
fn files(folder: &Path) -> TlsFiles {
    TlsFiles {
        cert: folder.join("localhost.pem"),
        key: folder.join("localhost.key"),
        client_ca: Some(folder.join("ca.pem")),
    }
}

/// A connection with this certificate, or none; an error if there is no TLS with the daemon.
async fn connect(daemon: &Daemon, who: Option<&str>) -> std::io::Result<TlsStream<TcpStream>> {
    let file = |name: String| daemon.folder.path().join(name);
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(file("ca.pem".into())).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(rustls::crypto::ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match who {
        Some(who) => {
            let chain = vec![CertificateDer::from_pem_file(file(format!("{who}.pem"))).unwrap()];
            let key = PrivateKeyDer::from_pem_file(file(format!("{who}.key"))).unwrap();
            config.with_client_auth_cert(chain, key).unwrap()
        }
        None => config.with_no_client_auth(),
    };
    let server = ServerName::try_from("localhost").unwrap();
    let stream = daemon.connect().await;
    let connector = TlsConnector::from(std::sync::Arc::new(config));
    connector.connect(server, stream).await
}

/// The reply to a caller with this certificate, or none; an error if there is no TLS with the daemon.
async fn send(daemon: &Daemon, who: Option<&str>, request: &str) -> std::io::Result<Reply> {
    let mut stream = connect(daemon, who).await?;
    stream.write_all(request.as_bytes()).await?;
    let mut message = Vec::new();
    stream.read_to_end(&mut message).await?;
    Ok(Reply::parse(&message))
}

async fn get(daemon: &Daemon, who: Option<&str>, path: &str) -> Reply {
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    send(daemon, who, &request).await.unwrap()
}

async fn acquire(daemon: &Daemon, who: &str, wait_ms: u64) -> Reply {
    let body = json!({"wait_ms": wait_ms}).to_string();
    let request = format!(
        "POST /v1/locks/job:1/acquire HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    send(daemon, Some(who), &request).await.unwrap()
}

/// Callers identified by certificate alone have separate shares: the waits of one leave slots to
/// the other.
#[tokio::test]
async fn each_certificate_has_its_own_share_of_wait_slots() {
    let mut plan = DaemonPlan::new();
    certificates(plan.folder.path());
    plan.config.tls = Some(files(plan.folder.path()));
    let tokens = plan.folder.path().join("tokens.toml");
    let client = |name: &str| format!("[[client]]\nsan = \"{name}\"\ngrants = [\"hold:job\"]\n");
    write(&tokens, &(client("worker-1.example") + &client("stranger.example")));
    plan.config.tokens = Some(tokens);
    plan.config.max_connections = 16;
    let daemon = plan.start().await;
    let (flood, calm) = ("worker-1.example", "stranger.example");
    acquire(&daemon, calm, 0).await.ok();
    // Half of the wait slots, which are three quarters of the connections.
    let mut waiting: FuturesUnordered<_> = (0..9).map(|_| acquire(&daemon, flood, 60_000)).collect();
    let told = async {
        for _ in 6..9 {
            let told = waiting.next().await.unwrap();
            assert_eq!((told.status, told.code().as_str()), (429, "too_many_waiters"));
        }
    };
    within("those beyond its share to be told", told).await;
    // The admitted requests keep waiting meanwhile.
    let waited = tokio::select! {
        waited = within("an answer", acquire(&daemon, calm, 50)) => waited,
        ended = waiting.next() => panic!("{ended:?}"),
    };
    assert_eq!((waited.status, waited.code().as_str()), (409, "busy"));
}

#[tokio::test]
async fn clients_are_identified_by_their_certificates() {
    let mut plan = DaemonPlan::new();
    let folder = plan.folder.path().to_owned();
    certificates(&folder);
    let tokens = folder.join("tokens.toml");
    write(&tokens, "[[client]]\nsan = \"worker-1.example\"\ngrants = [\"read:job\"]\n");
    plan.config.tokens = Some(tokens);
    plan.config.tls = Some(files(&folder));
    let daemon = plan.start().await;
    let ask = async |who: Option<&str>, name: &str| {
        let shown = folder.display();
        let mut url = format!("https://localhost:{}?ca_file={shown}/ca.pem", daemon.address.port());
        if let Some(who) = who {
            url.push_str(&format!("&cert_file={shown}/{who}.pem&key_file={shown}/{who}.key"));
        }
        let store = HttpStore::open(HttpOptions::parse(&url).unwrap()).unwrap();
        store.inspect(&Name::new(name).unwrap(), Duration::from_secs(5)).await
    };
    assert!(ask(Some("worker-1.example"), "job:1").await.is_ok());
    let foreign = ask(Some("worker-1.example"), "other:1").await.unwrap_err();
    assert_eq!((foreign.kind, foreign.unknown), (StoreErrorKind::Denied, false));
    assert_eq!(ask(Some("stranger.example"), "job:1").await.unwrap_err().kind, StoreErrorKind::Denied);
    assert!(ask(None, "job:1").await.is_err());
    // A client refuses a daemon with the wrong certificate.
    let url = format!("https://localhost:{}", daemon.address.port());
    let store = HttpStore::open(HttpOptions::parse(&url).unwrap()).unwrap();
    let unknown = store.inspect(&Name::new("job:1").unwrap(), Duration::from_secs(5)).await;
    assert_eq!(unknown.unwrap_err().kind, StoreErrorKind::Unreachable);
}

/// A certificate of the authority has the rights of its entry, and none without one.
#[tokio::test]
async fn finding_09_a_certificate_alone_has_no_rights() {
    for with_tokens in [false, true] {
        let mut plan = DaemonPlan::with_plane();
        certificates(plan.folder.path());
        plan.config.tls = Some(files(plan.folder.path()));
        if with_tokens {
            plan.identities(&[("ci", &["admin:*"])]);
        }
        let daemon = plan.start().await;
        for path in ["/v1/me", "/v1/locks", "/metrics", "/v1/jobs"] {
            let reply = get(&daemon, Some("stranger.example"), path).await;
            assert_eq!((reply.status, reply.code().as_str()), (403, "forbidden"), "{reply:?}");
            let detail = reply.json()["detail"].as_str().unwrap().to_owned();
            assert!(
                detail.contains("[[client]]") && detail.contains("san = \"stranger.example\""),
                "{detail}"
            );
            assert_eq!(get(&daemon, None, path).await.code(), "unauthorized");
        }
        // Probes have no certificate.
        for path in ["/healthz", "/readyz"] {
            assert_eq!(get(&daemon, None, path).await.status, 200);
            assert_eq!(get(&daemon, Some("stranger.example"), path).await.status, 200);
        }
    }
}

/// A renewed certificate is served without a restart; files that do not belong together change nothing.
#[tokio::test]
async fn finding_12_a_renewed_certificate_is_taken_over() {
    let mut plan = DaemonPlan::new();
    let folder = plan.folder.path().to_owned();
    certificates(&folder);
    plan.config.tls = Some(files(&folder));
    let daemon = plan.start().await;
    let probe = "GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    assert_eq!(send(&daemon, None, probe).await.unwrap().status, 200);
    let old_key = std::fs::read_to_string(folder.join("localhost.key")).unwrap();
    let old_ca = std::fs::read_to_string(folder.join("ca.pem")).unwrap();
    certificates(&folder);
    let (new_key, new_ca) = (
        std::fs::read_to_string(folder.join("localhost.key")).unwrap(),
        std::fs::read_to_string(folder.join("ca.pem")).unwrap(),
    );
    // The new certificate with the old key: the old certificate is served on.
    write(&folder.join("localhost.key"), &old_key);
    write(&folder.join("ca.pem"), &old_ca);
    let clock = leasehold::clock::BootClock::shared();
    let checked = clock.now() + Duration::from_secs(3);
    while clock.now() < checked {
        assert_eq!(send(&daemon, None, probe).await.unwrap().status, 200);
    }
    write(&folder.join("localhost.key"), &new_key);
    write(&folder.join("ca.pem"), &new_ca);
    eventually("the new certificate", async || {
        send(&daemon, None, probe).await.is_ok_and(|reply| reply.status == 200)
    })
    .await;
}

/// Reads until this text has come; false if the stream ended before.
async fn read_until(stream: &mut TlsStream<TcpStream>, seen: &mut String, text: &str) -> bool {
    let reading = async {
        let mut piece = [0; 4096];
        while !seen.contains(text) {
            match stream.read(&mut piece).await {
                Ok(read) if read > 0 => seen.push_str(&String::from_utf8_lossy(&piece[..read])),
                _ => return false,
            }
        }
        true
    };
    within(&format!("{text} or the end of the stream"), reading).await
}

/// A handshake verifies a certificate once. When its authority is removed from the file, its connections lose
/// their streams, waits and further requests; those of other authorities go on.
#[tokio::test]
async fn finding_12_a_removed_client_authority_ends_its_streams() {
    let mut plan = DaemonPlan::new();
    let folder = plan.folder.path().to_owned();
    certificates(&folder);
    let (kept, removed) = ("worker-1.example", "contractor.example");
    let other = authority(&folder, &[removed]);
    let ours = std::fs::read_to_string(folder.join("ca.pem")).unwrap();
    let clients = folder.join("clients.pem");
    write(&clients, &format!("{ours}{other}"));
    let entry = |name: &str| format!("[[client]]\nsan = \"{name}\"\ngrants = [\"hold:job\"]\n");
    let tokens = folder.join("tokens.toml");
    write(&tokens, &(entry(kept) + &entry(removed)));
    plan.config.tokens = Some(tokens);
    plan.config.tls = Some(TlsFiles { client_ca: Some(clients.clone()), ..files(&folder) });
    let daemon = plan.start().await;
    acquire(&daemon, kept, 0).await.ok();
    let follow = "GET /v1/events HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    let mut streams = Vec::new();
    for who in [kept, removed] {
        let (mut stream, mut seen) = (connect(&daemon, Some(who)).await.unwrap(), String::new());
        stream.write_all(follow.as_bytes()).await.unwrap();
        assert!(read_until(&mut stream, &mut seen, "retry: 1000").await, "{seen}");
        streams.push((stream, seen));
    }
    let show = "GET /v1/me HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let (mut idle, mut seen) = (connect(&daemon, Some(removed)).await.unwrap(), String::new());
    idle.write_all(show.as_bytes()).await.unwrap();
    assert!(read_until(&mut idle, &mut seen, "san:contractor.example").await, "{seen}");

    let remove = async {
        let clock = leasehold::clock::BootClock::shared();
        write(&clients, &ours);
        let removed_at = clock.now();
        let (stream, seen) = &mut streams[1];
        assert!(!read_until(stream, seen, "never").await, "it ends");
        // Within 5 s; the rest is for a busy machine.
        assert!(clock.now().since(removed_at) < Duration::from_secs(15));
    };
    let (waited, ()) = tokio::join!(acquire(&daemon, removed, 60_000), remove);
    assert_eq!((waited.status, waited.code().as_str()), (401, "unauthorized"), "{waited:?}");
    seen.clear();
    idle.write_all(show.as_bytes()).await.unwrap();
    assert!(read_until(&mut idle, &mut seen, "\"unauthorized\"").await, "{seen}");
    assert!(seen.contains("authority"), "{seen}");
    assert!(send(&daemon, Some(removed), show).await.is_err(), "no new connection either");
    // Those of the other authority have lost nothing.
    let body = json!({}).to_string();
    let another = format!(
        "POST /v1/locks/job:2/acquire HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    send(&daemon, Some(kept), &another).await.unwrap().ok();
    let (stream, seen) = &mut streams[0];
    assert!(read_until(stream, seen, "job:2").await, "{seen}");
}
