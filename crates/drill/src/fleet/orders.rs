//! What a worker is told to do. Sent over its standard input: a store's URL may hold a password, and arguments can be
//! read by everyone on the host.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// One worker's orders.
#[derive(Clone, Serialize, Deserialize)]
pub struct Orders {
    /// Its name; with several clients, theirs are `name.0`, `name.1` and so on.
    pub who: String,
    /// How many clients it runs, each with its own connection, gate and holder name.
    pub clients: u32,
    /// Where the locks are.
    pub store: String,
    /// The classes.
    pub policies: PathBuf,
    /// The protected target.
    pub ledger: PathBuf,
    /// Under which class it takes locks.
    pub class: String,
    /// Client number *n* takes the *n*-th of these, beginning anew after the last.
    pub names: Vec<String>,
    /// How many writes a task takes.
    pub steps: u32,
    /// How long a write is on its way to the target: it can no longer be called back.
    pub delay_ms: u64,
    /// How long it rests between two acquires.
    pub rest_ms: u64,
    /// After so many holds a client only waits for its end; 0 is no limit.
    #[serde(default)]
    pub turns: u32,
    /// Works on under its lease until it is told to end, however many writes that takes.
    #[serde(default)]
    pub endless: bool,
    /// Neither looks before it writes nor sends a fence: the control run's way to work.
    pub reckless: bool,
}

impl Orders {
    /// One client that takes `name` under `class`, three writes a task, each 50 ms on its way. Where the store, the
    /// policies and the ledger are is filled in by the crew.
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

    /// So many clients.
    #[must_use]
    pub fn clients(mut self, clients: u32) -> Self {
        self.clients = clients.max(1);
        self
    }

    /// Tasks of so many writes, each this long on its way.
    #[must_use]
    pub fn steps(mut self, steps: u32, delay_ms: u64) -> Self {
        (self.steps, self.delay_ms) = (steps, delay_ms);
        self
    }

    /// Another rest between two acquires.
    #[must_use]
    pub fn rest(mut self, rest_ms: u64) -> Self {
        self.rest_ms = rest_ms;
        self
    }

    /// So many holds and no more.
    #[must_use]
    pub fn turns(mut self, turns: u32) -> Self {
        self.turns = turns;
        self
    }

    /// One task until it is told to end.
    #[must_use]
    pub fn endless(mut self) -> Self {
        self.endless = true;
        self
    }

    /// Without looking and without a fence.
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

impl fmt::Debug for Orders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Orders")
            .field("who", &self.who)
            .field("class", &self.class)
            .field("names", &self.names)
            .finish_non_exhaustive()
    }
}
