//! How work is done: by a command, by a handler in this process, or by a pull worker.

mod command_input;
pub mod exec;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use leasehold_core::Hold;
use serde_json::Value;
use tokio::sync::Notify;

use crate::job::Job;
use exec::CommandExecutor;

/// Work in this process. Its future is dropped when the hold is lost.
#[async_trait]
pub trait Handler: Send + Sync + 'static {
    /// Does the work. External writes should carry the hold's fence.
    ///
    /// # Errors
    /// The work failed for this reason; the job's retry settings apply.
    async fn run(&self, hold: &Hold, job: &Job) -> Result<Value, String>;
}

/// Announces a dispatched job to pull workers.
#[async_trait]
pub trait Publisher: Send + Sync + fmt::Debug + 'static {
    /// Announces the job. Called after DISPATCHED was written and only while the hold is valid.
    ///
    /// # Errors
    /// The job was not announced: it is rolled back and dispatched again later.
    async fn publish(&self, hold: &Hold, job: &Job) -> Result<(), String>;
}

/// Wakes the workers that wait in this process. Only a hint: other workers find the job by polling.
#[derive(Debug, Clone, Default)]
pub struct Notifier(pub Arc<Notify>);

#[async_trait]
impl Publisher for Notifier {
    async fn publish(&self, _hold: &Hold, _job: &Job) -> Result<(), String> {
        self.0.notify_waiters();
        Ok(())
    }
}

/// The executors of one replica, which decide what work it can do.
#[derive(Clone)]
pub struct Executors {
    pub(crate) handlers: BTreeMap<String, Arc<dyn Handler>>,
    pub(crate) publisher: Arc<dyn Publisher>,
    pub(crate) exec: Option<CommandExecutor>,
}

impl Default for Executors {
    fn default() -> Self {
        Self {
            handlers: BTreeMap::new(),
            publisher: Arc::new(Notifier::default()),
            exec: Some(CommandExecutor::default()),
        }
    }
}

impl Executors {
    /// Adds a handler for a topic.
    #[must_use]
    pub fn handler(mut self, topic: &str, handler: impl Handler) -> Self {
        self.handlers.insert(topic.to_owned(), Arc::new(handler));
        self
    }

    /// Replaces the publisher of pull jobs.
    #[must_use]
    pub fn publisher(mut self, publisher: Arc<dyn Publisher>) -> Self {
        self.publisher = publisher;
        self
    }

    /// Replaces the executor of commands; with `None` this replica runs no commands.
    #[must_use]
    pub fn exec(mut self, exec: Option<CommandExecutor>) -> Self {
        self.exec = exec;
        self
    }
}

impl fmt::Debug for Executors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executors")
            .field("topics", &self.handlers.keys())
            .field("publisher", &self.publisher)
            .field("exec", &self.exec)
            .finish()
    }
}
