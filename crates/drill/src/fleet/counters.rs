//! The fence counters of a Redis server of ours. None of them may be forgotten: what it has counted is known nowhere else.

use std::time::Duration;

use leasehold_core::rng::OsRandom;
use leasehold_core::store::{Answer, Ask, Failure, Giving};
use leasehold_core::{Fence, Holder, Invalid, Name, Token, Ttl};

use super::{Error, Stage};

/// For each of the director's own calls.
const WITHIN: Duration = Duration::from_secs(5);

impl Stage {
    /// How many fence counters of our own server would expire by themselves, which none may; `None` for other stores.
    ///
    /// # Errors
    /// The server does not answer, or does not grant a free name.
    pub async fn mortal_counters(&self) -> Result<Option<u64>, Error> {
        if !self.owns_server() {
            return Ok(None);
        }
        // A hand-over writes the counter anew, and that takes a time to live off it. So whether one is left to be seen on the
        // names of a drill depends on how each was granted last; on a name that nobody waits for it does not.
        self.granted("counters").await?;
        let mut session = self.session().await?;
        let keys = session.command(&["KEYS", "lh1:fence:*"]).await?;
        let keys: Vec<String> = redis::from_redis_value(keys).unwrap_or_default();
        let mut mortal = 0;
        for key in &keys {
            mortal += u64::from(session.command(&["PTTL", key]).await? != redis::Value::Int(-1));
        }
        Ok(Some(mortal))
    }

    /// Takes a free name of this run past the proxy, as somebody who knows no earlier fence of it, and gives it back.
    ///
    /// # Errors
    /// The store does not answer, or does not grant it.
    pub async fn granted(&self, name: &str) -> Result<Fence, Error> {
        let wrong = |invalid: Invalid| Error::Store(invalid.to_string());
        let failed = |failure: Failure| Error::Store(failure.to_string());
        let name = Name::new(&self.name(name)).map_err(wrong)?;
        let holder = Holder::new("director").map_err(wrong)?;
        let token = Token::fresh(&holder, "scheduler", &OsRandom);
        let ask = Ask::new(
            name.clone(),
            token.clone(),
            Ttl::new(Duration::from_secs(60)).map_err(wrong)?,
        );
        let answer = self.store().acquire(&ask, WITHIN).await.map_err(failed)?;
        let Answer::Granted(grant) = answer else {
            return Err(Error::Store(format!(
                "{name} is free but was not granted: {answer:?}"
            )));
        };
        let giving = Giving::owned(name, token);
        self.store().release(&giving, WITHIN).await.map_err(failed)?;
        Ok(grant.fence)
    }
}
