//! API tokens as they are made: for the tokens file, and for the owner of a daemon without one.

use std::fmt;

use jiff::Timestamp;
use leasehold_core::rng::{Random, RandomExt};
use sha2::{Digest, Sha256};

use super::tokens::check_id;
use super::{Grant, Principal};

/// A newly made token. The secret is shown once; the file keeps only its hash.
#[non_exhaustive]
pub struct NewToken {
    /// The text that the owner sends as `Authorization: Bearer`.
    pub token: String,
    /// The TOML entry to add to the tokens file; it contains the hash only.
    pub entry: String,
}

impl NewToken {
    /// Makes a token with a secret of 256 random bits.
    ///
    /// # Errors
    /// The id contains characters that are not allowed, or is reserved. Or a grant allows nothing.
    pub fn make(
        id: &str,
        grants: &[Grant],
        expires: Option<Timestamp>,
        random: &dyn Random,
    ) -> Result<Self, String> {
        check_id(id)?;
        grants.iter().try_for_each(Grant::check_kind).map_err(|refused| refused.to_string())?;
        let secret = make_secret(random);
        let hash: String =
            Sha256::digest(secret.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
        let grants: Vec<_> = grants.iter().map(|grant| format!("{:?}", grant.to_string())).collect();
        let expires = expires.map_or_else(String::new, |at| format!("expires = \"{at}\"\n"));
        Ok(Self {
            token: format!("lk_{id}_{secret}"),
            entry: format!(
                "[[token]]\nid = \"{id}\"\nsha256 = \"{hash}\"\n{expires}grants = [{}]\n",
                grants.join(", ")
            ),
        })
    }
}

impl fmt::Debug for NewToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NewToken((hidden))")
    }
}

/// The one token of a daemon without a tokens file. It has all rights, and belongs to the user who
/// started the daemon: put it where only that user can read it.
#[derive(Clone)]
pub struct OwnerToken(String);

impl OwnerToken {
    /// Makes a token with a secret of 256 random bits. Make a new one at each start.
    #[must_use]
    pub fn make(random: &dyn Random) -> Self {
        Self(format!("lk_{}_{}", Principal::local().id(), make_secret(random)))
    }

    /// The token, as clients send it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for OwnerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OwnerToken((hidden))")
    }
}

fn make_secret(random: &dyn Random) -> String {
    format!("{:032x}{:032x}", random.wide(), random.wide())
}
