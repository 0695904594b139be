//! Messages on their way: a bag without order, so any of them may be late by any time.

use super::state::{Grant, Token};

/// A message between a client and the store or the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Message {
    /// To the store: may I have the lease?
    Ask {
        /// Who asks.
        token: Token,
        /// The asker's clock when it was sent; echoed by the answer.
        sent_at: u8,
        /// The highest fence the asker has seen.
        floor: u8,
    },
    /// To the store: extend the lease.
    Renew {
        /// Who asks.
        token: Token,
        /// As in [`Message::Ask`].
        sent_at: u8,
        /// The fence of the grant to extend.
        fence: u8,
    },
    /// To the store: end the lease.
    Release {
        /// Whose.
        token: Token,
        /// Refuse this token from now on.
        tombstone: bool,
        /// Sent by an acquire that ended without a hold. The store makes no difference; the telling does.
        undo: bool,
    },
    /// To the target.
    Write {
        /// Under which grant.
        grant: Grant,
    },
    /// To the client: it is yours.
    Granted {
        /// Whose.
        token: Token,
        /// Of the ask that is answered.
        sent_at: u8,
        /// What was granted.
        grant: Grant,
    },
    /// To the client: someone else has it.
    Busy {
        /// Who asked.
        token: Token,
        /// Of the ask that is answered.
        sent_at: u8,
    },
    /// To the client: extended.
    Renewed {
        /// Who asked.
        token: Token,
        /// Of the renewal that is answered.
        sent_at: u8,
    },
    /// To the client: not yours any more.
    NotOwned {
        /// Who asked.
        token: Token,
        /// Of the renewal that is answered.
        sent_at: u8,
    },
}

/// The most messages that can be on their way at once.
pub const ROOM: usize = 8;

/// The bag, kept sorted so that equal bags are equal states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Network([Option<Message>; ROOM]);

impl Network {
    /// The messages, in the order of their slots.
    pub fn messages(&self) -> impl Iterator<Item = Message> + '_ {
        self.0.iter().flatten().copied()
    }

    /// The message in a slot.
    #[must_use]
    pub fn get(&self, slot: usize) -> Option<Message> {
        self.messages().nth(slot)
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.messages().count()
    }

    /// Whether none is on its way.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Puts one on its way; `false` if there is no room.
    #[must_use]
    pub fn send(&mut self, message: Message) -> bool {
        let Some(slot) = self.0.iter_mut().find(|slot| slot.is_none()) else {
            return false;
        };
        *slot = Some(message);
        self.tidy();
        true
    }

    /// Takes one out.
    pub fn take(&mut self, slot: usize) -> Option<Message> {
        let taken = self.0.get_mut(slot).and_then(Option::take);
        self.tidy();
        taken
    }

    /// Keeps only some of them.
    pub fn retain(&mut self, keep: impl Fn(&Message) -> bool) {
        for slot in &mut self.0 {
            if slot.as_ref().is_some_and(|message| !keep(message)) {
                *slot = None;
            }
        }
        self.tidy();
    }

    /// Changes each of them.
    pub fn rewrite(&mut self, change: impl Fn(Message) -> Message) {
        for slot in self.0.iter_mut().flatten() {
            *slot = change(*slot);
        }
        self.tidy();
    }

    /// Empty slots last, so that slots number the messages.
    fn tidy(&mut self) {
        self.0.sort_unstable_by_key(|slot| (slot.is_none(), *slot));
    }
}

impl Message {
    /// The token it speaks of; a write has none.
    #[must_use]
    pub fn token(&self) -> Option<Token> {
        match self {
            Self::Ask { token, .. }
            | Self::Renew { token, .. }
            | Self::Release { token, .. }
            | Self::Granted { token, .. }
            | Self::Busy { token, .. }
            | Self::Renewed { token, .. }
            | Self::NotOwned { token, .. } => Some(*token),
            Self::Write { .. } => None,
        }
    }

    /// The same message about another token.
    #[must_use]
    pub fn with_token(mut self, new: Token) -> Self {
        match &mut self {
            Self::Ask { token, .. }
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
