//! The protocol as a transition system for the checker: which steps are possible, and where they lead.

use stateright::{Model, Property};

use super::client::Begin;
use super::config::{Config, Forgets};
use super::network::{Message, Network};
use super::promise::{Breaches, Promise};
use super::sight::{Sight, Sights};
use super::state::{Budget, CLIENTS, Client, Grant, Lease, Memory, Phase, State, Target};

/// One configuration's transition system.
#[derive(Debug)]
pub struct Protocol {
    /// What is explored.
    pub config: Config,
    /// What was met on the way.
    pub sights: Sights,
    /// The one promise to look at, instead of the configuration's.
    only: Option<Promise>,
}

/// One step of the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// A client begins something.
    Begin {
        /// Which client.
        who: u8,
        /// What.
        what: Begin,
    },
    /// A message arrives.
    Deliver {
        /// Which.
        slot: u8,
    },
    /// A message arrives, and will arrive again.
    Repeat {
        /// Which.
        slot: u8,
    },
    /// A message is lost.
    Lose {
        /// Which.
        slot: u8,
    },
    /// Time goes on, each clock in its own way.
    Tick {
        /// The clocks' new lags: the clients', then the store's.
        lags: [u8; CLIENTS + 1],
        /// The store has lost what it knew by then.
        forget: bool,
    },
    /// The replica catches up.
    Replicate,
    /// The store's clock is set.
    StepClock,
}

impl Protocol {
    /// The transition system of a configuration.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            config,
            sights: Sights::default(),
            only: None,
        }
    }

    /// The same, to be searched for a way to break one promise.
    #[must_use]
    pub fn only(config: Config, promise: Promise) -> Self {
        Self {
            only: Some(promise),
            ..Self::new(config)
        }
    }

    fn deliver(&self, state: &State, slot: u8, again: bool) -> Option<State> {
        let mut next = *state;
        let slot = usize::from(slot);
        let message = next.network.get(slot)?;
        if again {
            next.budget.repeats = next.budget.repeats.checked_sub(1)?;
            self.sights.saw(Sight::Repeated);
        } else {
            next.network.take(slot);
        }
        let answer = match message {
            Message::Ask { token, .. } => {
                let earlier = next.granted.order;
                let answer = next.store_hears(message, &self.config, &self.sights);
                // A client's first ask of all: whatever was granted before was another's.
                let asker = state.clients.get(usize::from(token.client));
                let first = asker.is_some_and(|client| matches!(client.phase, Phase::Asking { asks: 1, .. }));
                if token.attempt == 0 && first && earlier > 0 && next.granted.order > earlier {
                    self.sights.saw(Sight::TakeOver);
                }
                answer
            }
            Message::Renew { .. } | Message::Release { .. } => {
                next.store_hears(message, &self.config, &self.sights)
            }
            Message::Write { grant } => {
                next.target_hears(grant, &self.config, &self.sights);
                None
            }
            _ => next.client_hears(message, &self.config, &self.sights),
        };
        if !owners_own(state.live_lease(), next.live_lease(), message) {
            next.breaches.mark(Breaches::OWNER);
        }
        if let Some(answer) = answer
            && !next.network.send(answer)
        {
            return None;
        }
        next.normalise(&self.config, &self.sights);
        Some(next)
    }

    fn tick(&self, state: &State, lags: &[u8; CLIENTS + 1], forget: bool) -> State {
        let mut next = *state;
        next.now += 1;
        for (client, lag) in next.clients.iter_mut().zip(lags) {
            client.lag = *lag;
        }
        next.store_lag = lags[CLIENTS];
        if forget {
            next.budget.forgets -= 1;
            next.forget(&self.config, &self.sights);
        }
        next.normalise(&self.config, &self.sights);
        next
    }

    /// All ways in which time can go on: every clock that matters may catch up, keep its distance or fall behind,
    /// within its error, but never run backwards.
    fn ticks(&self, state: &State, actions: &mut Vec<Action>) {
        let calm = state.now >= self.config.calm_from();
        if state.now >= self.config.end() || (calm && !state.network.is_empty()) {
            return;
        }
        // Waiting before anything has happened leads nowhere new: only differences of time count.
        let untouched = |client: &Client| client.attempt == 0 && !client.phase.is_timed();
        if state.now == Config::START && state.clients.iter().all(untouched) {
            return;
        }
        let error = self.config.clock_error;
        let mut most = [0; CLIENTS + 1];
        for (most, client) in most.iter_mut().zip(&state.clients) {
            if client.phase.is_timed() {
                *most = error.min(client.lag + 1);
            }
        }
        most[CLIENTS] = error.min(state.store_lag + 1);
        let mut lags = [0; CLIENTS + 1];
        loop {
            actions.push(Action::Tick { lags, forget: false });
            // Forgetting takes time: the store's clock has moved on when it is back.
            if !calm && state.budget.forgets > 0 && lags[CLIENTS] <= state.store_lag {
                actions.push(Action::Tick { lags, forget: true });
            }
            if !count_on(&mut lags, &most) {
                return;
            }
        }
    }
}

/// I4, seen from outside the store: a message changes a living lease only if it is its owner's, and only an ask makes one.
fn owners_own(before: Option<Lease>, after: Option<Lease>, message: Message) -> bool {
    match (before, message) {
        _ if before == after => true,
        (None, _) => matches!(message, Message::Ask { .. }),
        (Some(lease), Message::Renew { token, fence, .. }) => {
            lease.token == token && lease.grant.fence == fence
        }
        (Some(lease), _) => message.token() == Some(lease.token),
    }
}

/// The next combination, as a number whose digits each have a most of their own; `false` after the last.
fn count_on(digits: &mut [u8], most: &[u8]) -> bool {
    for (digit, most) in digits.iter_mut().zip(most) {
        if *digit < *most {
            *digit += 1;
            return true;
        }
        *digit = 0;
    }
    false
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut clients = [Client::default(); CLIENTS];
        for client in clients.iter_mut().take(usize::from(self.config.clients)) {
            client.phase = Phase::Idle;
        }
        let init = State {
            now: Config::START,
            clients,
            store: Memory::default(),
            store_lag: 0,
            store_step: 0,
            replica: Memory::default(),
            target: Target::default(),
            network: Network::default(),
            budget: Budget {
                losses: self.config.losses,
                repeats: self.config.repeats,
                forgets: u8::from(self.config.forgets != Forgets::Never),
                steps: u8::from(self.config.clock_step != 0),
            },
            granted: Grant { fence: 0, order: 0 },
            breaches: Breaches::default(),
        };
        let mut all = Vec::new();
        for store_lag in 0..=self.config.clock_error {
            let mut state = init;
            state.store_lag = store_lag;
            all.push(state);
        }
        all
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let calm = state.now >= self.config.calm_from();
        // Whoever has not acted by the end is dead: the name must become free without it.
        let living = if state.now < self.config.end() {
            self.config.clients
        } else {
            0
        };
        for (who, client) in (0..living).zip(&state.clients) {
            let mut push = |what| actions.push(Action::Begin { who, what });
            match client.phase {
                Phase::Absent => {}
                Phase::Idle => {
                    if !calm && client.attempt < self.config.attempts {
                        (0..=self.config.clock_error).for_each(|lag| push(Begin::Ask { lag }));
                    }
                }
                Phase::Asking { asks, .. } => {
                    if !calm && asks < self.config.asks {
                        push(Begin::AskAgain);
                    }
                    push(Begin::GiveUp);
                }
                Phase::Holding { renewals, writes, .. } => {
                    if !calm && renewals > 0 {
                        push(Begin::Renew);
                    }
                    if !calm && writes > 0 {
                        push(Begin::Write);
                    }
                    push(Begin::Release);
                }
            }
        }
        for (slot, message) in (0_u8..).zip(state.network.messages()) {
            actions.push(Action::Deliver { slot });
            if calm {
                continue;
            }
            if state.budget.losses > 0 {
                actions.push(Action::Lose { slot });
            }
            let repeatable = match message {
                Message::Ask { .. } => self.config.repeats_asks,
                Message::Renew { .. } | Message::Release { .. } | Message::Write { .. } => true,
                _ => false,
            };
            if repeatable && state.budget.repeats > 0 {
                actions.push(Action::Repeat { slot });
            }
        }
        self.ticks(state, actions);
        if !calm && self.config.forgets == Forgets::LaggingReplica && state.budget.forgets > 0 {
            actions.push(Action::Replicate);
        }
        if !calm && state.budget.steps > 0 {
            actions.push(Action::StepClock);
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        match action {
            Action::Begin { who, what } => state.begin(usize::from(who), what, &self.config, &self.sights),
            Action::Deliver { slot } => self.deliver(state, slot, false),
            Action::Repeat { slot } => self.deliver(state, slot, true),
            Action::Lose { slot } => {
                let mut next = *state;
                next.budget.losses -= 1;
                next.network.take(usize::from(slot));
                self.sights.saw(Sight::Lost);
                Some(next)
            }
            Action::Tick { lags, forget } => Some(self.tick(state, &lags, forget)),
            Action::Replicate => {
                let mut next = *state;
                next.replica = state.store;
                (next != *state).then_some(next)
            }
            Action::StepClock => {
                let mut next = *state;
                next.budget.steps -= 1;
                next.store_step = self.config.clock_step;
                self.sights.saw(Sight::Stepped);
                next.normalise(&self.config, &self.sights);
                Some(next)
            }
        }
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let promises = self
            .only
            .as_ref()
            .map_or(self.config.promises(), std::slice::from_ref);
        promises.iter().map(|promise| promise.property()).collect()
    }
}
