//! The test fixture: a daemon on a free port, with identities, and a client that sends exactly what
//! a test says.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use leasehold::clock::{BootClock, ClockExt, run_until};
use leasehold::policy::PolicyBook;
use leasehold::store::SharedStore;
use leasehold_core::memory::MemoryStore;
use leasehold_core::rng::OsRandom;
use leasehold_plane::store::memory::MemoryPlane;
use leasehold_plane::work::Executors;
use leasehold_plane::{Plane, Replica, Settings};
use leasehold_server::auth::{Grant, NewToken};
use leasehold_server::{Config, Mount, Server};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Longer than any step takes on a busy machine.
pub(crate) const STEP_TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) struct Daemon {
    pub(crate) address: SocketAddr,
    pub(crate) rules: Vec<(String, String, Option<String>)>,
    stop: CancellationToken,
    running: Option<JoinHandle<()>>,
    pub(crate) folder: Arc<tempfile::TempDir>,
    pub(crate) store: SharedStore,
}

pub(crate) struct DaemonPlan {
    pub(crate) config: Config,
    pub(crate) store: SharedStore,
    pub(crate) folder: Arc<tempfile::TempDir>,
    pub(crate) mounts: Vec<Mount>,
    /// Serve the control plane too, with a replica of these settings.
    pub(crate) plane: Option<Settings>,
    /// The text of a policy file.
    pub(crate) policies: &'static str,
}

impl DaemonPlan {
    /// A daemon on the memory store, without identities.
    pub(crate) fn new() -> Self {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        let mut config = Config::new("127.0.0.1:0".parse().unwrap());
        config.state_dir = Some(folder.path().join("state"));
        config.drain_timeout = Duration::from_secs(2);
        Self {
            config,
            store: Arc::new(MemoryStore::new(BootClock::shared())),
            folder,
            mounts: Vec::new(),
            plane: None,
            policies: "",
        }
    }

    /// Adds identities, given as id and grants. Returns their tokens.
    pub(crate) fn identities(&mut self, who: &[(&str, &[&str])]) -> Vec<String> {
        let path = self.folder.path().join("tokens.toml");
        let mut file = String::new();
        let mut tokens = Vec::new();
        for (id, grants) in who {
            assert!(grants.iter().all(|grant| grant.parse::<Grant>().is_ok()), "{grants:?}");
            // Past the checks of new tokens: files of earlier versions have any right on any scope.
            let new = NewToken::make(id, &[], None, &OsRandom).unwrap();
            file.push_str(&new.entry.replace("grants = []", &format!("grants = {grants:?}")));
            tokens.push(new.token);
        }
        std::fs::write(&path, file).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        self.config.tokens = Some(path);
        tokens
    }

    /// Adds identities `p0`, `p1`, … with these grants. Returns their tokens.
    pub(crate) fn numbered_identities<G: AsRef<[String]>>(
        &mut self,
        grants: impl Iterator<Item = G>,
    ) -> Vec<String> {
        let named: Vec<_> = grants.enumerate().map(|(at, grants)| (format!("p{at}"), grants)).collect();
        let named: Vec<(&str, Vec<&str>)> = named
            .iter()
            .map(|(id, grants)| (id.as_str(), grants.as_ref().iter().map(String::as_str).collect()))
            .collect();
        let named: Vec<_> = named.iter().map(|(id, grants)| (*id, grants.as_slice())).collect();
        self.identities(&named)
    }

    /// A daemon on the memory store, with the control plane.
    pub(crate) fn with_plane() -> Self {
        let mut plan = Self::new();
        // Without identities all callers are one principal.
        plan.plane = Some(Settings { allow_self_approval: true, ..Settings::default() });
        plan
    }

    pub(crate) async fn start(mut self) -> Daemon {
        let config = &mut self.config;
        config.unauthenticated =
            config.tokens.is_none() && config.owner_token.is_none() && !config.accepts_client_certs();
        let book = PolicyBook::from_text(self.policies, "test").unwrap();
        let opened =
            Server::open(self.config, Arc::clone(&self.store), |locks| locks.policies(book).without_log());
        let mut opened = opened.await.unwrap();
        let mut replica = None;
        if let Some(settings) = self.plane {
            let kept = Arc::new(MemoryPlane::new(BootClock::shared()));
            let plane = Plane::with_observers(
                opened.locks().clone(),
                kept,
                settings,
                OsRandom::shared(),
                vec![opened.plane_observer()],
            );
            let plane = plane.unwrap();
            let started = Replica::start(plane.clone(), Executors::default());
            opened = opened.with_plane(plane, started.scheduler().clone());
            replica = Some(started);
        }
        let server = opened.bind(self.mounts).await.unwrap();
        let (address, stop) = (server.address(), CancellationToken::new());
        let rules = server
            .rules()
            .iter()
            .map(|(method, path, rule)| {
                (method.to_owned(), path.to_owned(), rule.right.map(|right| right.to_string()))
            })
            .collect();
        let stopped = stop.clone().cancelled_owned();
        Daemon {
            address,
            rules,
            stop,
            running: Some(tokio::spawn(async move {
                server.run(stopped).await;
                drop(replica);
            })),
            folder: self.folder,
            store: self.store,
        }
    }
}

impl Daemon {
    pub(crate) async fn start() -> Self {
        DaemonPlan::new().start().await
    }

    pub(crate) fn signal(&self) {
        self.stop.cancel();
    }

    pub(crate) async fn stop(&mut self) {
        self.stop.cancel();
        if let Some(running) = self.running.take() {
            within("the daemon to stop", running).await.unwrap();
        }
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    pub(crate) async fn call(
        &self,
        method: &str,
        path: &str,
        token: Option<&str>,
        body: Option<Value>,
    ) -> Reply {
        let mut head = String::new();
        if let Some(token) = token {
            head.push_str(&format!("authorization: Bearer {token}\r\n"));
        }
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        if !body.is_empty() {
            head.push_str("content-type: application/json\r\n");
        }
        self.raw(&format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n{head}content-length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        ))
        .await
    }

    /// Sends a workflow's file.
    pub(crate) async fn apply_as(&self, token: Option<&str>, text: &str) -> Reply {
        let token = token.map_or_else(String::new, |token| format!("authorization: Bearer {token}\r\n"));
        self.raw(&format!(
            "PUT /v1/workflows HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n{token}content-type: application/toml\r\ncontent-length: {}\r\n\r\n{text}",
            self.address,
            text.len()
        ))
        .await
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.call("GET", path, None, None).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Reply {
        self.call("POST", path, None, Some(body)).await
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Sends these bytes and reads until the other end closes.
    pub(crate) async fn raw(&self, request: &str) -> Reply {
        self.bytes(request.as_bytes()).await
    }

    pub(crate) async fn bytes(&self, request: &[u8]) -> Reply {
        let mut stream = self.connect().await;
        // The daemon may answer and close before it has read everything.
        let _ = stream.write_all(request).await;
        let mut all = Vec::new();
        let read = within("an answer", stream.read_to_end(&mut all)).await;
        if all.is_empty() {
            read.unwrap();
        }
        Reply::parse(&all)
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) text: String,
}

impl Reply {
    pub(crate) fn parse(all: &[u8]) -> Self {
        let all = String::from_utf8_lossy(all);
        let (head, text) = all.split_once("\r\n\r\n").unwrap_or((&all, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        Self { status, head: head.to_lowercase(), text: text.to_owned() }
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("{self:?}"))
    }

    /// The code of an error response; panics if it is not one.
    #[track_caller]
    pub(crate) fn code(&self) -> String {
        assert!(self.head.contains("content-type: application/problem+json"), "{self:?}");
        let problem = self.json();
        assert_eq!(problem["status"], self.status, "{self:?}");
        problem["code"].as_str().unwrap().to_owned()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")))
    }

    #[track_caller]
    pub(crate) fn ok(self) -> Value {
        assert!(matches!(self.status, 200 | 201), "{self:?}");
        self.json()
    }
}

/// Waits for a future, and panics after a timeout.
pub(crate) async fn within<T>(what: &str, work: impl Future<Output = T>) -> T {
    let clock = BootClock::shared();
    let done = run_until(&*clock, clock.now() + STEP_TIMEOUT, work).await;
    done.unwrap_or_else(|| panic!("waited in vain for {what}"))
}

/// Waits until a condition holds, and panics after a timeout.
pub(crate) async fn eventually(what: &str, mut so: impl AsyncFnMut() -> bool) {
    let clock = BootClock::shared();
    within(what, async {
        while !so().await {
            clock.sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}
