//! The memory store shared between processes over a socket: the cross-process cases, and all others in real time.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, bail};
use leasehold_conformance::{Case, Fixture, TakerCommand, find};
use leasehold_core::clock::BootClock;
use leasehold_core::memory::MemoryStore;
use leasehold_core::store::{
    Answer, Ask, Busy, Capabilities, Cause, Failure, Given, Giving, Grant, Lease, Listener, Listing, Promise,
    Renewal, Renewed, SharedStore, Store,
};
use leasehold_core::{Name, Token, Ttl};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};

use crate::bent::{Bent, Bug, Memories};

leasehold_conformance::taker!(async |url: String| { Ok(Arc::new(Distant { path: url }) as SharedStore) });

leasehold_conformance::suite! {
    time: Real,
    fixture: Socket::serve(None).await,
    skips: [],
}

/// A memory store in this process, on real time, and a socket through which other processes reach it.
struct Socket {
    store: SharedStore,
    folder: tempfile::TempDir,
}

impl Socket {
    async fn serve(bug: Option<Bug>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let memory: SharedStore = Arc::new(MemoryStore::new(BootClock::shared()));
        let store: SharedStore = Arc::new(Near(match bug {
            Some(bug) => Bent::shared(bug, memory, &Arc::<Mutex<Memories>>::default()),
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

/// Answers one question: a connection each.
async fn answer(store: SharedStore, mut stream: UnixStream) -> anyhow::Result<()> {
    let (reader, mut writer) = stream.split();
    let mut line = String::new();
    BufReader::new(reader).read_line(&mut line).await?;
    let words: Vec<_> = line.split_whitespace().collect();
    let answer = match *words.as_slice() {
        ["acquire", name, token, ttl, queue] => {
            let mut ask = Ask::new(Name::new(name)?, Token::parse(token)?, millis(ttl)?);
            ask.queue = queue.parse().ok().map(Duration::from_millis);
            match store.acquire(&ask, WITHIN).await? {
                Answer::Granted(grant) => format!("granted {}", grant.fence),
                Answer::Busy(busy) => format!("busy {}", busy.holder),
                Answer::Void => "void".to_owned(),
            }
        }
        ["renew", name, token, fence, ttl] => {
            let renewal = Renewal {
                name: Name::new(name)?,
                token: Token::parse(token)?,
                fence: fence.parse()?,
                ttl: millis(ttl)?,
                lock_delay: Duration::ZERO,
            };
            match store.renew(&[renewal], WITHIN).await.remove(0)? {
                Renewed::Extended { .. } => "extended".to_owned(),
                Renewed::NotOwned => "not-owned".to_owned(),
            }
        }
        ["release", name, token] => {
            let giving = Giving::owned(Name::new(name)?, Token::parse(token)?);
            match store.release(&giving, WITHIN).await? {
                Given::Released => "released".to_owned(),
                Given::NotOwned => "not-owned".to_owned(),
            }
        }
        _ => bail!("no such question: `{line}`"),
    };
    writer.write_all(answer.as_bytes()).await?;
    Ok(())
}

const WITHIN: Duration = Duration::from_secs(5);

fn millis(word: &str) -> anyhow::Result<Ttl> {
    Ok(Ttl::new(Duration::from_millis(word.parse()?))?)
}

/// The other process's end of the socket: the verbs that a lock-taking process uses.
#[derive(Debug)]
struct Distant {
    path: String,
}

impl Distant {
    async fn question(&self, question: String) -> Result<String, Failure> {
        let asked = async {
            let mut stream = UnixStream::connect(&self.path).await?;
            stream.write_all(format!("{question}\n").as_bytes()).await?;
            let mut answer = String::new();
            BufReader::new(&mut stream).read_line(&mut answer).await?;
            anyhow::Ok(answer)
        };
        asked
            .await
            .map_err(|failed| Failure::unknown(Cause::Unreachable, failed.to_string()))
    }
}

fn senseless(answer: &str) -> Failure {
    Failure::unknown(Cause::Corrupt, format!("answered `{answer}`"))
}

#[async_trait::async_trait]
impl Store for Distant {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new("distant", Promise::Volatile).with_cross_process()
    }

    fn describe(&self) -> String {
        self.path.clone()
    }

    async fn acquire(&self, ask: &Ask, _within: Duration) -> Result<Answer, Failure> {
        let queue = ask
            .queue
            .map_or("-".to_owned(), |keep| keep.as_millis().to_string());
        let (name, token, ttl) = (&ask.name, ask.token.expose(), ask.ttl.as_millis());
        let answer = self
            .question(format!("acquire {name} {token} {ttl} {queue}"))
            .await?;
        match answer.split_once(' ') {
            Some(("granted", fence)) => Ok(Answer::Granted(Grant {
                fence: fence.parse().map_err(|_| senseless(&answer))?,
                ttl: None,
            })),
            Some(("busy", holder)) => Ok(Answer::Busy(Busy {
                holder: holder.to_owned(),
                ..Busy::default()
            })),
            _ if answer == "void" => Ok(Answer::Void),
            _ => Err(senseless(&answer)),
        }
    }

    async fn renew(&self, batch: &[Renewal], _within: Duration) -> Vec<Result<Renewed, Failure>> {
        let mut answers = Vec::new();
        for Renewal {
            name,
            token,
            fence,
            ttl,
            ..
        } in batch
        {
            let question = format!("renew {name} {} {fence} {}", token.expose(), ttl.as_millis());
            answers.push(match self.question(question).await {
                Ok(answer) if answer == "extended" => Ok(Renewed::Extended { was_left: None }),
                Ok(answer) if answer == "not-owned" => Ok(Renewed::NotOwned),
                Ok(answer) => Err(senseless(&answer)),
                Err(failed) => Err(failed),
            });
        }
        answers
    }

    async fn release(&self, giving: &Giving, _within: Duration) -> Result<Given, Failure> {
        let leasehold_core::store::Claim::Owner(token) = &giving.claim else {
            return Err(Failure::not_done(Cause::Unsupported, "only owners release here"));
        };
        let answer = self
            .question(format!("release {} {}", giving.name, token.expose()))
            .await?;
        match answer.as_str() {
            "released" => Ok(Given::Released),
            "not-owned" => Ok(Given::NotOwned),
            _ => Err(senseless(&answer)),
        }
    }

    async fn inspect(&self, _name: &Name, _within: Duration) -> Result<Option<Lease>, Failure> {
        Err(Failure::not_done(
            Cause::Unsupported,
            "cannot be looked at from here",
        ))
    }
}

/// This process's end: the store itself, which others can share.
#[derive(Debug)]
struct Near(SharedStore);

#[async_trait::async_trait]
impl Store for Near {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities().with_cross_process()
    }

    fn describe(&self) -> String {
        self.0.describe()
    }

    async fn acquire(&self, ask: &Ask, within: Duration) -> Result<Answer, Failure> {
        self.0.acquire(ask, within).await
    }

    async fn renew(&self, batch: &[Renewal], within: Duration) -> Vec<Result<Renewed, Failure>> {
        self.0.renew(batch, within).await
    }

    async fn release(&self, giving: &Giving, within: Duration) -> Result<Given, Failure> {
        self.0.release(giving, within).await
    }

    async fn inspect(&self, name: &Name, within: Duration) -> Result<Option<Lease>, Failure> {
        self.0.inspect(name, within).await
    }

    async fn list(&self, prefix: &str, limit: usize, within: Duration) -> Result<Listing, Failure> {
        self.0.list(prefix, limit, within).await
    }

    fn listen(&self, name: &Name, token: &Token) -> Listener {
        self.0.listen(name, token)
    }
}

/// Each cross-process case goes red on a store with a defect it is there for.
mod noticed {
    use super::*;

    #[test]
    fn every_defect_between_processes_is_noticed() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .unwrap();
        let play = async |id: &str, bug: Bug| {
            let case: &Case = find(id)
                .with_context(|| format!("there is no case `{id}`"))
                .unwrap();
            case.verdict(&Socket::serve(Some(bug)).await)
                .await
                .map_err(|failed| format!("{failed:#}"))
        };
        let mut missed = Vec::new();
        for (bug, id) in [
            (Bug::EverybodyIsGranted, "another_process_is_kept_out"),
            (
                Bug::TtlHalved,
                "trap_14_killed_process_is_free_after_its_ttl_not_before",
            ),
            (
                Bug::RenewWithoutComparingToken,
                "trap_05_stopped_past_its_ttl_then_continued",
            ),
            (Bug::EverybodyIsGranted, "trap_19_killed_waiter_does_not_block"),
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
