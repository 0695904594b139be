//! The protocol as a transition system: which steps are possible, and where they lead.

use stateright::{Model, Property};

use super::client::ClientStep;
use super::config::{DataLoss, ModelConfig};
use super::coverage::{CoverageEvent, CoverageSet};
use super::network::{Message, ModelNetwork};
use super::promise::{Breaches, ModelPromise};
use super::state::{
    ClientPhase, FaultBudget, MAX_CLIENTS, ModelClient, ModelGrant, ModelLease, ModelState, ModelTarget,
    StoreMemory,
};

/// The transition system of one configuration.
#[derive(Debug)]
pub struct ProtocolModel {
    /// The configuration to explore.
    pub config: ModelConfig,
    /// The events reached so far.
    pub coverage: CoverageSet,
    // The only promise to check, instead of the configuration's.
    only_promise: Option<ModelPromise>,
}

/// One step of the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelAction {
    /// A client starts something.
    ClientStarts {
        /// Index of the client.
        who: u8,
        /// What it starts.
        what: ClientStep,
    },
    /// A message arrives.
    Deliver {
        /// Its slot in the network.
        slot: u8,
    },
    /// A message arrives, and will arrive again.
    DeliverAgain {
        /// Its slot in the network.
        slot: u8,
    },
    /// A message is lost.
    LoseMessage {
        /// Its slot in the network.
        slot: u8,
    },
    /// Time advances by one tick; each clock may lag differently.
    Tick {
        /// New lags of the clocks: the clients', then the store's.
        lags: [u8; MAX_CLIENTS + 1],
        /// The store loses data during this tick.
        forget: bool,
    },
    /// The replica catches up.
    Replicate,
    /// The store's clock is set.
    StepClock,
}

impl ProtocolModel {
    /// The transition system of a configuration.
    #[must_use]
    pub fn new(config: ModelConfig) -> Self {
        Self { config, coverage: CoverageSet::default(), only_promise: None }
    }

    /// The same, to search for a violation of one promise only.
    #[must_use]
    pub fn with_promise(config: ModelConfig, promise: ModelPromise) -> Self {
        Self { only_promise: Some(promise), ..Self::new(config) }
    }

    fn deliver(&self, state: &ModelState, slot: u8, again: bool) -> Option<ModelState> {
        let mut next = *state;
        let slot = usize::from(slot);
        let message = next.network.get(slot)?;
        if again {
            next.budget.repeats = next.budget.repeats.checked_sub(1)?;
            self.coverage.record(CoverageEvent::Repeated);
        } else {
            next.network.take(slot);
        }
        let answer = match message {
            Message::Acquire { token, .. } => {
                let earlier = next.latest_grant.order;
                let answer = next.store_receives(message, &self.config, &self.coverage);
                // This client's first request of all, so any earlier grant went to another client.
                let asker = state.clients.get(usize::from(token.client));
                let first = asker
                    .is_some_and(|client| matches!(client.phase, ClientPhase::Acquiring { asks: 1, .. }));
                if token.attempt == 0 && first && earlier > 0 && next.latest_grant.order > earlier {
                    self.coverage.record(CoverageEvent::TakeOver);
                }
                answer
            }
            Message::Renew { .. } | Message::Release { .. } => {
                next.store_receives(message, &self.config, &self.coverage)
            }
            Message::Write { grant } => {
                next.target_receives(grant, &self.config, &self.coverage);
                None
            }
            _ => next.client_receives(message, &self.config, &self.coverage),
        };
        if !only_owner_changed_lease(state.live_lease(), next.live_lease(), message) {
            next.breaches.mark(Breaches::OWNER);
        }
        if let Some(answer) = answer
            && !next.network.send(answer)
        {
            return None;
        }
        next.normalise(&self.config, &self.coverage);
        Some(next)
    }

    fn tick(&self, state: &ModelState, lags: &[u8; MAX_CLIENTS + 1], forget: bool) -> ModelState {
        let mut next = *state;
        next.now += 1;
        for (client, lag) in next.clients.iter_mut().zip(lags) {
            client.lag = *lag;
        }
        next.store_lag = lags[MAX_CLIENTS];
        if forget {
            next.budget.data_losses -= 1;
            next.lose_data(&self.config, &self.coverage);
        }
        next.normalise(&self.config, &self.coverage);
        next
    }

    /// All ways in which time can advance.
    fn push_ticks(&self, state: &ModelState, actions: &mut Vec<ModelAction>) {
        let calm = state.now >= self.config.faults_end();
        // After the faults every message arrives within its tick, so time waits for the network.
        if state.now >= self.config.last_tick() || (calm && !state.network.is_empty()) {
            return;
        }
        // Waiting before the first event leads to no new state: only differences of time count.
        let untouched = |client: &ModelClient| client.attempt == 0 && !client.phase.is_timed();
        if state.now == ModelConfig::FIRST_TICK && state.clients.iter().all(untouched) {
            return;
        }
        // A clock within its error may catch up, keep its distance or fall behind, but never run back.
        let error = self.config.clock_error;
        let mut most = [0; MAX_CLIENTS + 1];
        for (most, client) in most.iter_mut().zip(&state.clients) {
            if client.phase.is_timed() {
                *most = error.min(client.lag + 1);
            }
        }
        most[MAX_CLIENTS] = error.min(state.store_lag + 1);
        let mut lags = [0; MAX_CLIENTS + 1];
        loop {
            actions.push(ModelAction::Tick { lags, forget: false });
            // Data loss takes time: the store's clock must have advanced meanwhile.
            if !calm && state.budget.data_losses > 0 && lags[MAX_CLIENTS] <= state.store_lag {
                actions.push(ModelAction::Tick { lags, forget: true });
            }
            if !next_combination(&mut lags, &most) {
                return;
            }
        }
    }
}

/// I4 as seen from outside: a message changes a live lease only if it is the owner's, and only an
/// acquire request creates one.
fn only_owner_changed_lease(before: Option<ModelLease>, after: Option<ModelLease>, message: Message) -> bool {
    match (before, message) {
        _ if before == after => true,
        (None, _) => matches!(message, Message::Acquire { .. }),
        (Some(lease), Message::Renew { token, fence, .. }) => {
            lease.token == token && lease.grant.fence == fence
        }
        (Some(lease), _) => message.token() == Some(lease.token),
    }
}

/// Advances to the next combination of digits, each with its own maximum; `false` after the last.
fn next_combination(digits: &mut [u8], most: &[u8]) -> bool {
    for (digit, most) in digits.iter_mut().zip(most) {
        if *digit < *most {
            *digit += 1;
            return true;
        }
        *digit = 0;
    }
    false
}

impl Model for ProtocolModel {
    type State = ModelState;
    type Action = ModelAction;

    fn init_states(&self) -> Vec<ModelState> {
        let mut clients = [ModelClient::default(); MAX_CLIENTS];
        for client in clients.iter_mut().take(usize::from(self.config.clients)) {
            client.phase = ClientPhase::Idle;
        }
        let init = ModelState {
            now: ModelConfig::FIRST_TICK,
            clients,
            store: StoreMemory::default(),
            store_lag: 0,
            store_step: 0,
            replica: StoreMemory::default(),
            target: ModelTarget::default(),
            network: ModelNetwork::default(),
            budget: FaultBudget {
                losses: self.config.losses,
                repeats: self.config.repeats,
                data_losses: u8::from(self.config.data_loss != DataLoss::Never),
                clock_steps: u8::from(self.config.clock_step != 0),
            },
            latest_grant: ModelGrant { fence: 0, order: 0 },
            breaches: Breaches::default(),
        };
        let mut all = Vec::new();
        // The store's clock matters from the start. A client's lag is chosen when it first asks.
        for store_lag in 0..=self.config.clock_error {
            let mut state = init;
            state.store_lag = store_lag;
            all.push(state);
        }
        all
    }

    fn actions(&self, state: &ModelState, actions: &mut Vec<ModelAction>) {
        let calm = state.now >= self.config.faults_end();
        // A client that has not acted by the end counts as dead: the name must become free without it.
        let living = if state.now < self.config.last_tick() { self.config.clients } else { 0 };
        for (who, client) in (0..living).zip(&state.clients) {
            let mut push = |what| actions.push(ModelAction::ClientStarts { who, what });
            match client.phase {
                ClientPhase::Absent => {}
                ClientPhase::Idle => {
                    if !calm && client.attempt < self.config.attempts {
                        (0..=self.config.clock_error).for_each(|lag| push(ClientStep::Acquire { lag }));
                    }
                }
                ClientPhase::Acquiring { asks, .. } => {
                    if !calm && asks < self.config.requests_per_acquire {
                        push(ClientStep::RetryAcquire);
                    }
                    push(ClientStep::GiveUp);
                }
                ClientPhase::Holding { renewals, writes, .. } => {
                    if !calm && renewals > 0 {
                        push(ClientStep::Renew);
                    }
                    if !calm && writes > 0 {
                        push(ClientStep::Write);
                    }
                    push(ClientStep::Release);
                }
            }
        }
        for (slot, message) in (0_u8..).zip(state.network.messages()) {
            actions.push(ModelAction::Deliver { slot });
            if calm {
                continue;
            }
            if state.budget.losses > 0 {
                actions.push(ModelAction::LoseMessage { slot });
            }
            // A repeated response has no effect, because its client no longer waits for it.
            let repeatable = match message {
                Message::Acquire { .. } => self.config.repeats_acquires,
                Message::Renew { .. } | Message::Release { .. } | Message::Write { .. } => true,
                _ => false,
            };
            if repeatable && state.budget.repeats > 0 {
                actions.push(ModelAction::DeliverAgain { slot });
            }
        }
        self.push_ticks(state, actions);
        if !calm && self.config.data_loss == DataLoss::LaggingReplica && state.budget.data_losses > 0 {
            actions.push(ModelAction::Replicate);
        }
        if !calm && state.budget.clock_steps > 0 {
            actions.push(ModelAction::StepClock);
        }
    }

    fn next_state(&self, state: &ModelState, action: ModelAction) -> Option<ModelState> {
        match action {
            ModelAction::ClientStarts { who, what } => {
                state.start_client_step(usize::from(who), what, &self.config, &self.coverage)
            }
            ModelAction::Deliver { slot } => self.deliver(state, slot, false),
            ModelAction::DeliverAgain { slot } => self.deliver(state, slot, true),
            ModelAction::LoseMessage { slot } => {
                let mut next = *state;
                next.budget.losses -= 1;
                next.network.take(usize::from(slot));
                self.coverage.record(CoverageEvent::Lost);
                Some(next)
            }
            ModelAction::Tick { lags, forget } => Some(self.tick(state, &lags, forget)),
            ModelAction::Replicate => {
                let mut next = *state;
                next.replica = state.store;
                // A replica that is already in sync gives no new state.
                (next != *state).then_some(next)
            }
            ModelAction::StepClock => {
                let mut next = *state;
                next.budget.clock_steps -= 1;
                next.store_step = self.config.clock_step;
                self.coverage.record(CoverageEvent::ClockStepped);
                next.normalise(&self.config, &self.coverage);
                Some(next)
            }
        }
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let promises = self.only_promise.as_ref().map_or(self.config.promises(), std::slice::from_ref);
        promises.iter().map(|promise| promise.property()).collect()
    }
}
