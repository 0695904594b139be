//! The lock-taking process: takes leases as it is told on its standard input, and can be killed, stopped and
//! continued while it holds them.
//!
//! One command a line, one answer a line, every answer behind [`MARK`] (a test runner around it prints lines of its
//! own). `ID` is a word that stands for one token.
//!
//! | command | answers |
//! |---|---|
//! | `ask ID NAME TTL_MS` | `granted FENCE`, `busy HOLDER`, `void` |
//! | `queue ID NAME TTL_MS KEEP_MS` | the same; registers as a waiter if busy |
//! | `renew ID` | `extended`, `not-owned` |
//! | `hold ID EVERY_MS` | `holding`; renews in the background from then on |
//! | `wait ID NAME TTL_MS LIMIT_MS` | like `ask`, after having waited in the queue for at most so long |
//! | `release ID` | `released`, `not-owned` |
//!
//! What goes wrong is answered with `failed …`.

use std::collections::HashMap;
use std::future::Future;
use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use leasehold_core::clock::{BootClock, Clock, ClockExt};
use leasehold_core::rng::{OsRandom, RandomExt};
use leasehold_core::store::{Answer, Ask, Given, Giving, Renewal, Renewed, SharedStore};
use leasehold_core::{Fence, Holder, Name, Token, Ttl};

use crate::asker::{WITHIN, one};

/// What every answer starts with.
pub const MARK: &str = "taker> ";

/// The process's whole life: opens the store at `url` and does as it is told until its standard input ends.
pub fn main<F>(url: &str, open: impl FnOnce(String) -> F) -> ExitCode
where
    F: Future<Output = anyhow::Result<SharedStore>>,
{
    match run(url, open) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failed) => {
            say(&format!("failed {failed:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run<F>(url: &str, open: impl FnOnce(String) -> F) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<SharedStore>>,
{
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let mut taker = Taking {
        store: runtime.block_on(open(url.to_owned()))?,
        leases: HashMap::new(),
    };
    say(&format!("ready {}", std::process::id()));
    for line in std::io::stdin().lock().lines() {
        match runtime.block_on(taker.obey(&line?)) {
            Ok(answer) => say(&answer),
            Err(failed) => say(&format!("failed {}", format!("{failed:#}").replace('\n', " "))),
        }
    }
    Ok(())
}

fn say(answer: &str) {
    let mut out = std::io::stdout().lock();
    // If nobody reads any more, the end of the input follows.
    let _ = writeln!(out, "{MARK}{answer}");
    let _ = out.flush();
}

struct Taking {
    store: SharedStore,
    leases: HashMap<String, Taken>,
}

#[derive(Clone)]
struct Taken {
    ask: Ask,
    fence: Option<Fence>,
}

impl Taking {
    async fn obey(&mut self, line: &str) -> anyhow::Result<String> {
        let words: Vec<_> = line.split_whitespace().collect();
        match *words.as_slice() {
            ["ask", id, name, ttl] => self.ask(id, name, millis(ttl)?, None).await,
            ["queue", id, name, ttl, keep] => self.ask(id, name, millis(ttl)?, Some(millis(keep)?)).await,
            ["wait", id, name, ttl, limit] => self.wait(id, name, millis(ttl)?, millis(limit)?).await,
            ["renew", id] => Ok(told(renew(&self.store, &self.renewal(id)?).await?).to_owned()),
            ["hold", id, every] => {
                let (store, renewal, every) = (Arc::clone(&self.store), self.renewal(id)?, millis(every)?);
                tokio::spawn(async move {
                    while matches!(renew(&store, &renewal).await, Ok(Renewed::Extended { .. })) {
                        BootClock.sleep(every).await;
                    }
                });
                Ok("holding".to_owned())
            }
            ["release", id] => {
                let ask = &self.taken(id)?.ask;
                let giving = Giving::owned(ask.name.clone(), ask.token.clone());
                Ok(match self.store.release(&giving, WITHIN).await? {
                    Given::Released => "released".to_owned(),
                    Given::NotOwned => "not-owned".to_owned(),
                })
            }
            _ => bail!("no such command: `{line}`"),
        }
    }

    async fn ask(
        &mut self,
        id: &str,
        name: &str,
        ttl: Duration,
        queue: Option<Duration>,
    ) -> anyhow::Result<String> {
        if !self.leases.contains_key(id) {
            let token = Token::fresh(&Holder::of_this_process(), "locktaker", &OsRandom);
            let ask = Ask::new(Name::new(name)?, token, Ttl::new(ttl)?);
            self.leases.insert(id.to_owned(), Taken { ask, fence: None });
        }
        let taken = self.leases.get_mut(id).context("it was just put there")?;
        taken.ask.queue = queue;
        Ok(match self.store.acquire(&taken.ask, WITHIN).await? {
            Answer::Granted(grant) => {
                taken.fence = Some(grant.fence);
                format!("granted {}", grant.fence)
            }
            Answer::Busy(busy) => format!("busy {}", busy.holder),
            Answer::Void => "void".to_owned(),
        })
    }

    async fn wait(&mut self, id: &str, name: &str, ttl: Duration, limit: Duration) -> anyhow::Result<String> {
        let end = BootClock.now() + limit;
        loop {
            let answer = self.ask(id, name, ttl, Some(Duration::from_secs(2))).await?;
            if !answer.starts_with("busy") || BootClock.now() >= end {
                return Ok(answer);
            }
            BootClock.sleep(OsRandom.jitter(Duration::from_millis(20))).await;
        }
    }

    fn taken(&self, id: &str) -> anyhow::Result<&Taken> {
        self.leases
            .get(id)
            .with_context(|| format!("`{id}` has not asked for anything"))
    }

    fn renewal(&self, id: &str) -> anyhow::Result<Renewal> {
        let Taken { ask, fence } = self.taken(id)?.clone();
        Ok(Renewal {
            name: ask.name,
            token: ask.token,
            fence: fence.with_context(|| format!("`{id}` was not granted anything"))?,
            ttl: ask.ttl,
            lock_delay: ask.lock_delay,
        })
    }
}

async fn renew(store: &SharedStore, renewal: &Renewal) -> anyhow::Result<Renewed> {
    Ok(one(store.renew(std::slice::from_ref(renewal), WITHIN).await)??)
}

fn told(renewed: Renewed) -> &'static str {
    match renewed {
        Renewed::Extended { .. } => "extended",
        Renewed::NotOwned => "not-owned",
    }
}

fn millis(word: &str) -> anyhow::Result<Duration> {
    word.parse()
        .map(Duration::from_millis)
        .with_context(|| format!("`{word}` is not a number of milliseconds"))
}
