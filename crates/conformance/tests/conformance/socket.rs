//! The memory store shared between processes over a socket: the cross-process cases,
//! and all others in real time.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, bail};
use leasehold_conformance::{Case, Fixture, TakerCommand, find_case};
use leasehold_core::clock::BootClock;
use leasehold_core::memory::MemoryStore;
use leasehold_core::store::{
    AcquireRequest, AcquireResponse, BusyLease, Capabilities, Documents, Grant, LeaseList, Promise,
    ReleaseRequest, ReleaseResponse, RenewRequest, RenewResponse, SharedStore, Store, StoreError,
    StoreErrorKind, WakeListener,
};
use leasehold_core::{Name, Token, Ttl};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};

use crate::mutant_store::{Bug, MutantState, MutantStore};

leasehold_conformance::taker!(async |url: String| { Ok(Arc::new(RemoteStore { path: url }) as SharedStore) });

leasehold_conformance::suite! {
    time: Real,
    fixture: Socket::serve(None).await,
    skips: [],
}

/// A memory store in this process, on real time, and a socket through which
/// other processes reach it.
struct Socket {
    store: SharedStore,
    folder: tempfile::TempDir,
}

impl Socket {
    async fn serve(bug: Option<Bug>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let memory: SharedStore = Arc::new(MemoryStore::new(BootClock::shared()));
        let store: SharedStore = Arc::new(LocalStore(match bug {
            Some(bug) => MutantStore::shared(bug, memory, &Arc::<Mutex<MutantState>>::default()),
            None => memory,
        }));
        let listener = UnixListener::bind(folder.path().join("store")).unwrap();
        let served = Arc::clone(&store);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(Arc::clone(&served), stream));
            }
        });
        Self { store, folder }
    }
}

#[async_trait::async_trait]
impl Fixture for Socket {
    async fn open(&self) -> anyhow::Result<SharedStore> {
        Ok(Arc::clone(&self.store))
    }

    fn taker(&self) -> Option<TakerCommand> {
        let path: &Path = &self.folder.path().join("store");
        taker_command(&path.to_string_lossy()).ok()
    }
}

/// Answers one request; each request has its own connection.
async fn answer(store: SharedStore, mut stream: UnixStream) -> anyhow::Result<()> {
    let (reader, mut writer) = stream.split();
    let mut line = String::new();
    BufReader::new(reader).read_line(&mut line).await?;
    let words: Vec<_> = line.split_whitespace().collect();
    let answer = match *words.as_slice() {
        ["acquire", name, token, ttl, queue] => {
            let request = AcquireRequest::new(Name::new(name)?, Token::parse(token)?, millis(ttl)?)
                .with_queue(queue.parse().ok().map(Duration::from_millis));
            match store.acquire(&request, CALL_TIMEOUT).await? {
                AcquireResponse::Granted(grant) => format!("granted {}", grant.fence),
                AcquireResponse::Busy(busy) => format!("busy {}", busy.holder),
                AcquireResponse::Void => "void".to_owned(),
                other => bail!("an answer that this test does not know: {other:?}"),
            }
        }
        ["renew", name, token, fence, ttl] => {
            let (name, token) = (Name::new(name)?, Token::parse(token)?);
            let renewal = RenewRequest::new(name, token, fence.parse()?, millis(ttl)?);
            match store.renew(&[renewal], CALL_TIMEOUT).await.remove(0)? {
                RenewResponse::Extended { .. } => "extended".to_owned(),
                RenewResponse::NotOwned => "not-owned".to_owned(),
            }
        }
        ["release", name, token] => {
            let giving = ReleaseRequest::by_owner(Name::new(name)?, Token::parse(token)?);
            match store.release(&giving, CALL_TIMEOUT).await? {
                ReleaseResponse::Released => "released".to_owned(),
                ReleaseResponse::NotOwned => "not-owned".to_owned(),
            }
        }
        _ => bail!("no such question: `{line}`"),
    };
    writer.write_all(answer.as_bytes()).await?;
    Ok(())
}

const CALL_TIMEOUT: Duration = Duration::from_secs(5);

fn millis(word: &str) -> anyhow::Result<Ttl> {
    Ok(Ttl::new(Duration::from_millis(word.parse()?))?)
}

/// The other process's end of the socket, with the operations that a lock-taking process uses.
#[derive(Debug)]
struct RemoteStore {
    path: String,
}

impl RemoteStore {
    async fn send_request(&self, question: String) -> Result<String, StoreError> {
        let asked = async {
            let mut stream = UnixStream::connect(&self.path).await?;
            stream.write_all(format!("{question}\n").as_bytes()).await?;
            let mut answer = String::new();
            BufReader::new(&mut stream).read_line(&mut answer).await?;
            anyhow::Ok(answer)
        };
        asked.await.map_err(|failed| StoreError::unknown(StoreErrorKind::Unreachable, failed.to_string()))
    }
}

fn malformed_response(answer: &str) -> StoreError {
    StoreError::unknown(StoreErrorKind::Corrupt, format!("answered `{answer}`"))
}

#[async_trait::async_trait]
impl Store for RemoteStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new("distant", Promise::Volatile).with_cross_process()
    }

    fn describe(&self) -> String {
        self.path.clone()
    }

    async fn acquire(
        &self,
        request: &AcquireRequest,
        _within: Duration,
    ) -> Result<AcquireResponse, StoreError> {
        let queue = request.queue.map_or("-".to_owned(), |keep| keep.as_millis().to_string());
        let (name, token, ttl) = (&request.names, request.token.expose(), request.ttl.as_millis());
        let answer = self.send_request(format!("acquire {name} {token} {ttl} {queue}")).await?;
        match answer.split_once(' ') {
            Some(("granted", fence)) => {
                let fence = fence.parse().map_err(|_| malformed_response(&answer))?;
                Ok(AcquireResponse::Granted(Grant::new(fence)))
            }
            Some(("busy", holder)) => Ok(AcquireResponse::Busy(BusyLease::new(holder))),
            _ if answer == "void" => Ok(AcquireResponse::Void),
            _ => Err(malformed_response(&answer)),
        }
    }

    async fn renew(
        &self,
        batch: &[RenewRequest],
        _within: Duration,
    ) -> Vec<Result<RenewResponse, StoreError>> {
        let mut answers = Vec::new();
        for RenewRequest { names: name, token, fence, ttl, .. } in batch {
            let question = format!("renew {name} {} {fence} {}", token.expose(), ttl.as_millis());
            answers.push(match self.send_request(question).await {
                Ok(answer) if answer == "extended" => Ok(RenewResponse::extended(None)),
                Ok(answer) if answer == "not-owned" => Ok(RenewResponse::NotOwned),
                Ok(answer) => Err(malformed_response(&answer)),
                Err(failed) => Err(failed),
            });
        }
        answers
    }

    async fn release(
        &self,
        request: &ReleaseRequest,
        _within: Duration,
    ) -> Result<ReleaseResponse, StoreError> {
        let leasehold_core::store::ReleaseAuthority::Owner(token) = &request.authority else {
            return Err(StoreError::not_done(StoreErrorKind::Unsupported, "only owners release here"));
        };
        let answer = self.send_request(format!("release {} {}", request.names, token.expose())).await?;
        match answer.as_str() {
            "released" => Ok(ReleaseResponse::Released),
            "not-owned" => Ok(ReleaseResponse::NotOwned),
            _ => Err(malformed_response(&answer)),
        }
    }

    async fn inspect(&self, _name: &Name, _within: Duration) -> Result<LeaseList, StoreError> {
        Err(StoreError::not_done(StoreErrorKind::Unsupported, "cannot be looked at from here"))
    }
}

/// This process's end: the store itself, declared as shared between processes.
#[derive(Debug)]
struct LocalStore(SharedStore);

#[async_trait::async_trait]
impl Store for LocalStore {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities().with_cross_process()
    }

    fn documents(&self) -> Option<&dyn Documents> {
        self.0.documents()
    }

    fn describe(&self) -> String {
        self.0.describe()
    }

    async fn acquire(
        &self,
        request: &AcquireRequest,
        within: Duration,
    ) -> Result<AcquireResponse, StoreError> {
        self.0.acquire(request, within).await
    }

    async fn renew(
        &self,
        batch: &[RenewRequest],
        within: Duration,
    ) -> Vec<Result<RenewResponse, StoreError>> {
        self.0.renew(batch, within).await
    }

    async fn release(
        &self,
        request: &ReleaseRequest,
        within: Duration,
    ) -> Result<ReleaseResponse, StoreError> {
        self.0.release(request, within).await
    }

    async fn inspect(&self, name: &Name, within: Duration) -> Result<LeaseList, StoreError> {
        self.0.inspect(name, within).await
    }

    async fn list(&self, prefix: &str, limit: usize, within: Duration) -> Result<LeaseList, StoreError> {
        self.0.list(prefix, limit, within).await
    }

    fn listen(&self, name: &Name, token: &Token) -> WakeListener {
        self.0.listen(name, token)
    }
}

/// Each cross-process case fails on a store with a defect that it must detect.
mod noticed {
    use super::*;

    #[test]
    fn every_defect_between_processes_is_detected() {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let play = async |id: &str, bug: Bug| {
            let case: &Case = find_case(id).with_context(|| format!("there is no case `{id}`")).unwrap();
            case.run(&Socket::serve(Some(bug)).await).await.map_err(|failed| format!("{failed:#}"))
        };
        let mut missed = Vec::new();
        for (bug, id) in [
            (Bug::AlwaysGranted, "another_process_is_kept_out"),
            (Bug::TtlHalved, "trap_14_killed_process_is_free_after_its_ttl_not_before"),
            (Bug::RenewWithoutComparingToken, "trap_05_stopped_past_its_ttl_then_continued"),
            (Bug::AlwaysGranted, "trap_19_killed_waiter_does_not_block"),
            (Bug::FenceRepeats, "trap_11_fences_grow_across_processes"),
        ] {
            match runtime.block_on(play(&format!("crossprocess::{id}"), bug)) {
                Err(why) => println!("{bug:?} -> {id}: {why}"),
                Ok(()) => missed.push(format!("{id} does not notice {bug:?}")),
            }
        }
        assert!(missed.is_empty(), "{missed:#?}");
    }
}
