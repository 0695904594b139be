//! Messages under way: a bag without order, so any message may be late by any time.

use super::state::{ModelGrant, ModelToken};

/// A message between a client and the store or the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Message {
    /// To the store: request the lease.
    Acquire {
        /// The acquire that asks.
        token: ModelToken,
        /// The client's clock at sending; the response repeats it.
        sent_at: u8,
        /// The highest fence that the client has seen.
        floor: u8,
    },
    /// To the store: extend the lease.
    Renew {
        /// The hold that asks.
        token: ModelToken,
        /// As in the acquire request.
        sent_at: u8,
        /// Fence of the grant to extend.
        fence: u8,
    },
    /// To the store: end the lease.
    Release {
        /// The acquire or hold to end.
        token: ModelToken,
        /// Refuse this token from now on.
        tombstone: bool,
        /// Sent by an acquire that ended without a hold. Only descriptions use it, not the store.
        undo: bool,
    },
    /// To the target: a fenced write.
    Write {
        /// The grant under which it was sent.
        grant: ModelGrant,
    },
    /// To the client: the lease is granted.
    Granted {
        /// The acquire that asked.
        token: ModelToken,
        /// `sent_at` of the request.
        sent_at: u8,
        /// The granted fence and order.
        grant: ModelGrant,
    },
    /// To the client: another token has the lease.
    Busy {
        /// The acquire that asked.
        token: ModelToken,
        /// `sent_at` of the request.
        sent_at: u8,
    },
    /// To the client: the lease was extended.
    Renewed {
        /// The hold that asked.
        token: ModelToken,
        /// `sent_at` of the renewal.
        sent_at: u8,
    },
    /// To the client: the lease is not its own any more.
    NotOwned {
        /// The hold that asked.
        token: ModelToken,
        /// `sent_at` of the renewal.
        sent_at: u8,
    },
}

/// The most messages that can be under way at once.
pub const MAX_IN_FLIGHT: usize = 8;

/// The bag. It is kept sorted, so that equal bags are equal states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ModelNetwork([Option<Message>; MAX_IN_FLIGHT]);

impl ModelNetwork {
    /// The messages, in slot order.
    pub fn messages(&self) -> impl Iterator<Item = Message> + '_ {
        self.0.iter().flatten().copied()
    }

    /// The message in a slot.
    #[must_use]
    pub fn get(&self, slot: usize) -> Option<Message> {
        self.messages().nth(slot)
    }

    /// Number of messages.
    #[must_use]
    pub fn len(&self) -> usize {
        self.messages().count()
    }

    /// Whether no message is under way.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a message; `false` if there is no room.
    #[must_use]
    pub fn send(&mut self, message: Message) -> bool {
        let Some(slot) = self.0.iter_mut().find(|slot| slot.is_none()) else {
            return false;
        };
        *slot = Some(message);
        self.sort_slots();
        true
    }

    /// Removes a message.
    pub fn take(&mut self, slot: usize) -> Option<Message> {
        let taken = self.0.get_mut(slot).and_then(Option::take);
        self.sort_slots();
        taken
    }

    /// Removes all messages but these.
    pub fn retain(&mut self, keep: impl Fn(&Message) -> bool) {
        for slot in &mut self.0 {
            if slot.as_ref().is_some_and(|message| !keep(message)) {
                *slot = None;
            }
        }
        self.sort_slots();
    }

    /// Replaces each message.
    pub fn map_messages(&mut self, change: impl Fn(Message) -> Message) {
        for slot in self.0.iter_mut().flatten() {
            *slot = change(*slot);
        }
        self.sort_slots();
    }

    // Empty slots come last, so that slot numbers count the messages.
    fn sort_slots(&mut self) {
        self.0.sort_unstable_by_key(|slot| (slot.is_none(), *slot));
    }
}

impl Message {
    /// The message's token; a write has none.
    #[must_use]
    pub fn token(&self) -> Option<ModelToken> {
        match self {
            Self::Acquire { token, .. }
            | Self::Renew { token, .. }
            | Self::Release { token, .. }
            | Self::Granted { token, .. }
            | Self::Busy { token, .. }
            | Self::Renewed { token, .. }
            | Self::NotOwned { token, .. } => Some(*token),
            Self::Write { .. } => None,
        }
    }

    /// The same message with another token.
    #[must_use]
    pub fn with_token(mut self, new: ModelToken) -> Self {
        match &mut self {
            Self::Acquire { token, .. }
            | Self::Renew { token, .. }
            | Self::Release { token, .. }
            | Self::Granted { token, .. }
            | Self::Busy { token, .. }
            | Self::Renewed { token, .. }
            | Self::NotOwned { token, .. } => *token = new,
            Self::Write { .. } => {}
        }
        self
    }
}
