//! The key of what a token has: the token and the name.
//!
//! A caller may use one token on many names, so the token alone would count them as one.

use std::fmt;

use leasehold::Name;
use leasehold_core::Token;

/// A token on a name.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct TokenOnName {
    token: String,
    name: Name,
}

impl TokenOnName {
    pub(crate) fn new(name: &Name, token: &Token) -> Self {
        Self { token: token.expose().to_owned(), name: name.clone() }
    }
}

impl fmt::Debug for TokenOnName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The token is a secret.
        f.debug_struct("TokenOnName").field("name", &self.name).finish_non_exhaustive()
    }
}
