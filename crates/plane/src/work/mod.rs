//! How work is done: by a command, by a handler in this process, or by whoever the job is handed over to.

pub mod exec;
pub mod warden;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use leasehold_core::Hold;
use serde_json::Value;
use tokio::sync::Notify;

use crate::job::Job;
use exec::Exec;

/// Work in this process. It is dropped where it stands when the hold is lost.
#[async_trait]
pub trait Handler: Send + Sync + 'static {
    /// Does the work. What it writes elsewhere should carry the hold's fence.
    ///
    /// # Errors
    /// The work failed, for this reason; it is tried again as the job says.
    async fn run(&self, hold: &Hold, job: &Job) -> Result<Value, String>;
}

/// Hands a dispatched job over to those who pull work.
#[async_trait]
pub trait Publisher: Send + Sync + fmt::Debug + 'static {
    /// Tells them. Called after DISPATCHED was written and only while the hold is good.
    ///
    /// # Errors
    /// Nobody was told: the job is rolled back and tried again.
    async fn publish(&self, hold: &Hold, job: &Job) -> Result<(), String>;
}

/// Wakes the workers that wait in this process. A hint: those elsewhere find the job at their next look.
#[derive(Debug, Clone, Default)]
pub struct Bell(pub Arc<Notify>);

#[async_trait]
impl Publisher for Bell {
    async fn publish(&self, _hold: &Hold, _job: &Job) -> Result<(), String> {
        self.0.notify_waiters();
        Ok(())
    }
}

/// What this replica can do.
#[derive(Clone)]
pub struct Works {
    pub(crate) handlers: BTreeMap<String, Arc<dyn Handler>>,
    pub(crate) publisher: Arc<dyn Publisher>,
    pub(crate) exec: Option<Exec>,
}

impl Default for Works {
    fn default() -> Self {
        Self {
            handlers: BTreeMap::new(),
            publisher: Arc::new(Bell::default()),
            exec: Some(Exec::default()),
        }
    }
}

impl Works {
    /// With this handler for a topic.
    #[must_use]
    pub fn handler(mut self, topic: &str, handler: impl Handler) -> Self {
        self.handlers.insert(topic.to_owned(), Arc::new(handler));
        self
    }

    /// With this way to hand pull jobs over.
    #[must_use]
    pub fn publisher(mut self, publisher: Arc<dyn Publisher>) -> Self {
        self.publisher = publisher;
        self
    }

    /// With this way to run commands; none refuses them.
    #[must_use]
    pub fn exec(mut self, exec: Option<Exec>) -> Self {
        self.exec = exec;
        self
    }
}

impl fmt::Debug for Works {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Works")
            .field("topics", &self.handlers.keys())
            .field("publisher", &self.publisher)
            .field("exec", &self.exec)
            .finish()
    }
}
