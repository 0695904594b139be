//! Symmetry reduction: states that differ only in the numbering of clients count as one state.
//!
//! This is sound because all clients start alike, follow the same configuration, and are not named by
//! any promise. The representative is the least of all renumberings. So two states have the same one
//! exactly if they are renumberings of each other.

use stateright::Representative;

use super::state::{MAX_CLIENTS, ModelState, ModelToken, StoreMemory};

impl Representative for ModelState {
    fn representative(&self) -> Self {
        let renamings: &[[u8; MAX_CLIENTS]] = match self.client_count() {
            3 => &[[0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]],
            2 => &[[1, 0, 2]],
            _ => &[],
        };
        renamings.iter().map(|names| self.renamed(names)).fold(*self, |least, other| least.min(other))
    }
}

impl ModelState {
    /// The state in which client `i` has the number `names[i]`.
    #[must_use]
    pub fn renamed(&self, names: &[u8; MAX_CLIENTS]) -> Self {
        let name = |client: u8| names.get(usize::from(client)).copied().unwrap_or(client);
        let rename = |token: ModelToken| ModelToken { client: name(token.client), attempt: token.attempt };
        let memory = |old: &StoreMemory| {
            let mut new = *old;
            new.last_owner = old.last_owner.map(name);
            if let Some(lease) = new.lease.as_mut() {
                lease.token = rename(lease.token);
            }
            permute(&mut new.tombstones, &old.tombstones, names);
            new
        };
        let mut new = *self;
        permute(&mut new.clients, &self.clients, names);
        new.store = memory(&self.store);
        new.replica = memory(&self.replica);
        new.network.map_messages(|message| match message.token() {
            Some(token) => message.with_token(rename(token)),
            None => message,
        });
        new
    }
}

/// Copies each client's item to the client's new position.
fn permute<T: Copy>(new: &mut [T], old: &[T], names: &[u8]) {
    for (thing, name) in old.iter().zip(names) {
        if let Some(place) = new.get_mut(usize::from(*name)) {
            *place = *thing;
        }
    }
}
