//! A plane store that writes down what it is asked, and lets time jump where a test wants it.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::store::{Cause, Failure};
use leasehold_plane::store::{
    Doc, Event, Kind, Mail, PlaneStore, Query, Queue, Settle, SharedPlaneStore, Taken, Write, Written,
};

#[derive(Debug)]
pub struct Watched {
    inner: SharedPlaneStore,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    log: Vec<String>,
    /// After the call of this name, this much time has passed, and nothing else of the process has run.
    sleep: Option<(String, Duration)>,
    /// The answers to this many writes are lost: they are applied all the same.
    lose: usize,
    down: bool,
}

impl Watched {
    pub fn new(inner: SharedPlaneStore) -> Self {
        Self {
            inner,
            state: Mutex::default(),
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Time jumps after the next call of this name.
    pub fn sleep_after(&self, call: &str, by: Duration) {
        self.state().sleep = Some((call.to_owned(), by));
    }

    /// The process has slept.
    pub fn slept(&self) -> bool {
        self.state().sleep.is_none()
    }

    pub fn lose_answers(&self, count: usize) {
        self.state().lose = count;
    }

    pub fn set_down(&self, down: bool) {
        self.state().down = down;
    }

    /// What was asked since the process woke up, without looking and listing.
    pub fn changes(&self) -> Vec<String> {
        let log = &self.state().log;
        let from = log
            .iter()
            .rposition(|call| call == "slept")
            .map_or(0, |at| at + 1);
        let change = |call: &&String| {
            !call.starts_with("read") && !call.starts_with("list") && !call.starts_with("take")
        };
        log.iter().skip(from).filter(change).cloned().collect()
    }

    pub fn log(&self) -> Vec<String> {
        self.state().log.clone()
    }

    /// Before the call.
    fn enter(&self, call: &str) -> Result<(), Failure> {
        let mut state = self.state();
        if state.down {
            return Err(Failure::not_done(Cause::Unreachable, "the store is down"));
        }
        state.log.push(call.to_owned());
        Ok(())
    }

    /// After the call.
    async fn leave(&self, call: &str) {
        let by = {
            let mut state = self.state();
            match state.sleep.take() {
                Some((wanted, by)) if wanted == call => {
                    state.log.push("slept".to_owned());
                    Some(by)
                }
                other => {
                    state.sleep = other;
                    None
                }
            }
        };
        if let Some(by) = by {
            tokio::time::advance(by).await;
        }
    }
}

#[async_trait]
impl PlaneStore for Watched {
    async fn read(&self, kind: Kind, id: &str) -> Result<Option<Doc>, Failure> {
        let call = format!("read {}", kind.word());
        self.enter(&call)?;
        let out = self.inner.read(kind, id).await;
        self.leave(&call).await;
        out
    }

    async fn write(&self, write: &Write) -> Result<Written, Failure> {
        let call = format!("write {} {}", write.entry.kind.word(), write.entry.state);
        self.enter(&call)?;
        let out = self.inner.write(write).await;
        self.leave(&call).await;
        let lose = {
            let mut state = self.state();
            let lose = state.lose > 0;
            state.lose = state.lose.saturating_sub(1);
            lose
        };
        if lose {
            return Err(Failure::unknown(Cause::TimedOut, "the answer was lost"));
        }
        out
    }

    async fn list(&self, query: &Query) -> Result<Vec<Doc>, Failure> {
        let call = format!("list {}", query.kind.word());
        self.enter(&call)?;
        let out = self.inner.list(query).await;
        self.leave(&call).await;
        out
    }

    async fn count(&self, query: &Query) -> Result<u64, Failure> {
        self.enter("list count")?;
        let out = self.inner.count(query).await;
        self.leave("list count").await;
        out
    }

    async fn by_key(&self, kind: Kind, key: &str) -> Result<Option<String>, Failure> {
        self.enter("read key")?;
        self.inner.by_key(kind, key).await
    }

    async fn history(&self, kind: Kind, id: &str) -> Result<Vec<Event>, Failure> {
        self.enter("read history")?;
        self.inner.history(kind, id).await
    }

    async fn take(&self, queue: Queue, limit: usize, visible: Duration) -> Result<Vec<Taken>, Failure> {
        self.enter("take")?;
        self.inner.take(queue, limit, visible).await
    }

    async fn send(&self, mail: &Mail) -> Result<bool, Failure> {
        self.enter("send")?;
        let out = self.inner.send(mail).await;
        self.leave("send").await;
        out
    }

    async fn settle(&self, taken: &Taken, settle: Settle) -> Result<bool, Failure> {
        let call = match settle {
            Settle::Ack => "ack",
            Settle::Again(_) => "again",
        };
        self.enter(call)?;
        let out = self.inner.settle(taken, settle).await;
        self.leave(call).await;
        out
    }

    async fn purge(
        &self,
        kind: Kind,
        states: &[&'static str],
        keep: Duration,
        limit: usize,
    ) -> Result<u64, Failure> {
        let call = format!("purge {}", kind.word());
        self.enter(&call)?;
        let out = self.inner.purge(kind, states, keep, limit).await;
        self.leave(&call).await;
        out
    }
}
