//! Symmetry reduction: clients are alike, so states that differ only in which client is which are one state.
//!
//! Sound because every client begins alike, obeys the same configuration and is not named by any promise. The
//! representative is the least of all renamings, so two states have the same one exactly if they are renamings of
//! each other.

use stateright::Representative;

use super::state::{CLIENTS, Memory, State, Token};

impl Representative for State {
    fn representative(&self) -> Self {
        let renamings: &[[u8; CLIENTS]] = match self.present() {
            3 => &[[0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]],
            2 => &[[1, 0, 2]],
            _ => &[],
        };
        renamings
            .iter()
            .map(|names| self.renamed(names))
            .fold(*self, |least, other| least.min(other))
    }
}

impl State {
    /// The state in which client `i` is called `names[i]`.
    #[must_use]
    pub fn renamed(&self, names: &[u8; CLIENTS]) -> Self {
        let name = |client: u8| names.get(usize::from(client)).copied().unwrap_or(client);
        let rename = |token: Token| Token {
            client: name(token.client),
            attempt: token.attempt,
        };
        let memory = |old: &Memory| {
            let mut new = *old;
            new.last_owner = old.last_owner.map(name);
            if let Some(lease) = new.lease.as_mut() {
                lease.token = rename(lease.token);
            }
            put(&mut new.voided, &old.voided, names);
            new
        };
        let mut new = *self;
        put(&mut new.clients, &self.clients, names);
        new.store = memory(&self.store);
        new.replica = memory(&self.replica);
        new.network.rewrite(|message| match message.token() {
            Some(token) => message.with_token(rename(token)),
            None => message,
        });
        new
    }
}

/// What belongs to each client, under its new name.
fn put<T: Copy>(new: &mut [T], old: &[T], names: &[u8]) {
    for (thing, name) in old.iter().zip(names) {
        if let Some(place) = new.get_mut(usize::from(*name)) {
            *place = *thing;
        }
    }
}
