//! The lock-taking process: acquires leases on commands from its standard input. Tests kill, stop
//! and continue it while it holds them.
//!
//! One command per line, one response per line. Every response starts with
//! [`RESPONSE_PREFIX`], because a test runner around it prints lines of its own. `ID` is a
//! word that stands for one token.
//!
//! | command | responses |
//! |---|---|
//! | `ask ID NAME TTL_MS` | `granted FENCE`, `busy HOLDER`, `void` |
//! | `queue ID NAME TTL_MS KEEP_MS` | the same; queues as a waiter if busy |
//! | `renew ID` | `extended`, `not-owned` |
//! | `hold ID EVERY_MS` | `holding`; renews in the background from then on |
//! | `wait ID NAME TTL_MS LIMIT_MS` | like `ask`, after waiting in the queue for at most this long |
//! | `release ID` | `released`, `not-owned` |
//!
//! Errors are reported as `failed …`.

use std::collections::HashMap;
use std::future::Future;
use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use leasehold_core::clock::{BootClock, Clock, ClockExt};
use leasehold_core::rng::{OsRandom, RandomExt};
use leasehold_core::store::{
    AcquireRequest, AcquireResponse, ReleaseRequest, ReleaseResponse, RenewRequest, RenewResponse,
    SharedStore,
};
use leasehold_core::{Fence, Holder, Name, Token, Ttl};

use crate::client::{CALL_TIMEOUT, single_response};

/// Prefix of every response.
pub const RESPONSE_PREFIX: &str = "taker> ";

/// Runs the process: opens the store at `url` and executes commands until its standard input ends.
pub fn main<F>(url: &str, open: impl FnOnce(String) -> F) -> ExitCode
where
    F: Future<Output = anyhow::Result<SharedStore>>,
{
    match run(url, open) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failed) => {
            print_response(&format!("failed {failed:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run<F>(url: &str, open: impl FnOnce(String) -> F) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<SharedStore>>,
{
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let mut taker = LockTaker { store: runtime.block_on(open(url.to_owned()))?, leases: HashMap::new() };
    print_response(&format!("ready {}", std::process::id()));
    for line in std::io::stdin().lock().lines() {
        match runtime.block_on(taker.run_command(&line?)) {
            Ok(answer) => print_response(&answer),
            Err(failed) => print_response(&format!("failed {}", format!("{failed:#}").replace('\n', " "))),
        }
    }
    Ok(())
}

fn print_response(answer: &str) {
    let mut out = std::io::stdout().lock();
    // An error means that the parent has closed the pipe. Then the input ends too.
    let _ = writeln!(out, "{RESPONSE_PREFIX}{answer}");
    let _ = out.flush();
}

struct LockTaker {
    store: SharedStore,
    leases: HashMap<String, LeaseEntry>,
}

#[derive(Clone)]
struct LeaseEntry {
    ask: AcquireRequest,
    fence: Option<Fence>,
}

impl LockTaker {
    async fn run_command(&mut self, line: &str) -> anyhow::Result<String> {
        let words: Vec<_> = line.split_whitespace().collect();
        match *words.as_slice() {
            ["ask", id, name, ttl] => self.ask(id, name, millis(ttl)?, None).await,
            ["queue", id, name, ttl, keep] => self.ask(id, name, millis(ttl)?, Some(millis(keep)?)).await,
            ["wait", id, name, ttl, limit] => self.wait(id, name, millis(ttl)?, millis(limit)?).await,
            ["renew", id] => {
                Ok(renew_response_text(renew(&self.store, &self.renewal(id)?).await?).to_owned())
            }
            ["hold", id, every] => {
                let (store, renewal, every) = (Arc::clone(&self.store), self.renewal(id)?, millis(every)?);
                // In the background, so that the process can be killed or
                // stopped in the middle of a renewal.
                tokio::spawn(async move {
                    while matches!(renew(&store, &renewal).await, Ok(RenewResponse::Extended { .. })) {
                        BootClock.sleep(every).await;
                    }
                });
                Ok("holding".to_owned())
            }
            ["release", id] => {
                let ask = &self.entry(id)?.ask;
                let request = ReleaseRequest::by_owner(ask.names.clone(), ask.token.clone());
                Ok(match self.store.release(&request, CALL_TIMEOUT).await? {
                    ReleaseResponse::Released => "released".to_owned(),
                    ReleaseResponse::NotOwned => "not-owned".to_owned(),
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
            let ask = AcquireRequest::new(Name::new(name)?, token, Ttl::new(ttl)?);
            self.leases.insert(id.to_owned(), LeaseEntry { ask, fence: None });
        }
        let taken = self.leases.get_mut(id).context("it was just put there")?;
        // A known `ID` keeps its token: the repeated command is a poll, not a new client.
        taken.ask.queue = queue;
        Ok(match self.store.acquire(&taken.ask, CALL_TIMEOUT).await? {
            AcquireResponse::Granted(grant) => {
                taken.fence = Some(grant.fence);
                format!("granted {}", grant.fence)
            }
            AcquireResponse::Busy(busy) => format!("busy {}", busy.holder),
            AcquireResponse::Void => "void".to_owned(),
            other => bail!("an answer that this suite does not know: {other:?}"),
        })
    }

    async fn wait(&mut self, id: &str, name: &str, ttl: Duration, limit: Duration) -> anyhow::Result<String> {
        let end = BootClock.now() + limit;
        loop {
            let answer = self.ask(id, name, ttl, Some(Duration::from_secs(2))).await?;
            if !answer.starts_with("busy") || BootClock.now() >= end {
                return Ok(answer);
            }
            // With jitter, so that several processes do not poll in step.
            BootClock.sleep(OsRandom.jitter(Duration::from_millis(20))).await;
        }
    }

    fn entry(&self, id: &str) -> anyhow::Result<&LeaseEntry> {
        self.leases.get(id).with_context(|| format!("`{id}` has not asked for anything"))
    }

    fn renewal(&self, id: &str) -> anyhow::Result<RenewRequest> {
        let LeaseEntry { ask, fence } = self.entry(id)?.clone();
        let fence = fence.with_context(|| format!("`{id}` was not granted anything"))?;
        Ok(RenewRequest::new(ask.names, ask.token, fence, ask.ttl).with_lock_delay(ask.lock_delay))
    }
}

async fn renew(store: &SharedStore, renewal: &RenewRequest) -> anyhow::Result<RenewResponse> {
    Ok(single_response(store.renew(std::slice::from_ref(renewal), CALL_TIMEOUT).await)??)
}

fn renew_response_text(renewed: RenewResponse) -> &'static str {
    match renewed {
        RenewResponse::Extended { .. } => "extended",
        RenewResponse::NotOwned => "not-owned",
    }
}

fn millis(word: &str) -> anyhow::Result<Duration> {
    word.parse()
        .map(Duration::from_millis)
        .with_context(|| format!("`{word}` is not a number of milliseconds"))
}
