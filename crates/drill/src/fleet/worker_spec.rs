//! The configuration of one worker. It is sent over standard input, because a store's URL may
//! contain a password and every user of the host can read arguments.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What one worker does, and where.
#[derive(Clone, Serialize, Deserialize)]
pub struct WorkerSpec {
    /// The worker's name. With several clients, their names are `name.0`, `name.1` and so on.
    pub who: String,
    /// Number of clients, each with its own connection, gate and holder name.
    pub clients: u32,
    /// URL of the store. `Workers` fills it in.
    pub store: String,
    /// Path of the policy file. `Workers` fills it in.
    pub policies: PathBuf,
    /// Path of the protected target. `Workers` fills it in.
    pub ledger: PathBuf,
    /// The class of its locks.
    pub class: String,
    /// Lock names. Client *n* uses the *n*-th name, modulo their number.
    pub names: Vec<String>,
    /// Writes per task.
    pub steps: u32,
    /// Delay between sending a write and its arrival at the target. It cannot be cancelled in
    /// between.
    pub delay_ms: u64,
    /// Pause between two acquires.
    pub rest_ms: u64,
    /// Number of holds after which a client stops to acquire; 0 is no limit.
    #[serde(default)]
    pub turns: u32,
    /// Keeps writing under one lease until shutdown, instead of ending after `steps` writes.
    #[serde(default)]
    pub endless: bool,
    /// Ignores the state of its hold, and its writes are not fenced: for the control run.
    pub reckless: bool,
}

impl WorkerSpec {
    /// One client that acquires `name` under `class`, with three writes per task that take 50 ms
    /// each. `Workers` fills in the paths of store, policies and target.
    #[must_use]
    pub fn new(who: &str, class: &str, name: &str) -> Self {
        Self {
            who: who.to_owned(),
            clients: 1,
            store: String::new(),
            policies: PathBuf::new(),
            ledger: PathBuf::new(),
            class: class.to_owned(),
            names: vec![name.to_owned()],
            steps: 3,
            delay_ms: 50,
            rest_ms: 20,
            turns: 0,
            endless: false,
            reckless: false,
        }
    }

    /// Sets the number of clients.
    #[must_use]
    pub fn clients(mut self, clients: u32) -> Self {
        self.clients = clients.max(1);
        self
    }

    /// Sets the number of writes per task and the delay of each.
    #[must_use]
    pub fn steps(mut self, steps: u32, delay_ms: u64) -> Self {
        (self.steps, self.delay_ms) = (steps, delay_ms);
        self
    }

    /// Sets the pause between two acquires.
    #[must_use]
    pub fn rest(mut self, rest_ms: u64) -> Self {
        self.rest_ms = rest_ms;
        self
    }

    /// Limits the number of holds.
    #[must_use]
    pub fn turns(mut self, turns: u32) -> Self {
        self.turns = turns;
        self
    }

    /// Makes its task last until shutdown.
    #[must_use]
    pub fn endless(mut self) -> Self {
        self.endless = true;
        self
    }

    /// Makes it ignore the state of its hold and write without fences.
    #[must_use]
    pub fn reckless(mut self) -> Self {
        self.reckless = true;
        self
    }

    /// The names of its clients.
    #[must_use]
    pub fn client_names(&self) -> Vec<String> {
        match self.clients {
            0 | 1 => vec![self.who.clone()],
            many => (0..many).map(|number| format!("{}.{number}", self.who)).collect(),
        }
    }
}

impl fmt::Debug for WorkerSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerSpec")
            .field("who", &self.who)
            .field("class", &self.class)
            .field("names", &self.names)
            .finish_non_exhaustive()
    }
}
