//! Names under a prefix.

use std::time::Duration;

use async_trait::async_trait;

use crate::store::{
    Answer, Ask, Capabilities, Cause, Failure, Given, Giving, Lease, Listener, Listing, Promised, Renewal,
    Renewed, SharedStore, Store,
};
use crate::word::{Invalid, Name, Token};

/// A store in which every name stands under a prefix, so that tenants of one server cannot meet.
///
/// Whoever has only this value neither locks nor sees a name outside the prefix (invariant I12): what the inner
/// store lists beyond it is left out here too, however the inner store reads a prefix.
#[derive(Debug, Clone)]
pub struct Prefixed {
    inner: SharedStore,
    prefix: Name,
}

impl Prefixed {
    /// Puts `prefix` before every name. It ends in `:` or `/`: else the names of `team` would contain those
    /// of `team2`.
    ///
    /// # Errors
    /// The prefix cannot be the beginning of a name, or does not end in a separator.
    pub fn new(inner: SharedStore, prefix: &str) -> Result<Self, Invalid> {
        if !prefix.ends_with([':', '/']) {
            return Err(Invalid::new("prefix", prefix, "must end in `:` or `/`"));
        }
        let prefix = Name::new(prefix).map_err(|refused| Invalid {
            field: "prefix".into(),
            ..refused
        })?;
        Ok(Self { inner, prefix })
    }

    /// The name as the inner store knows it.
    fn inside(&self, name: &Name) -> Result<Name, Failure> {
        Name::new(&format!("{}{name}", self.prefix)).map_err(|_| {
            // Every part of a valid name is allowed, so only the length can be wrong.
            Failure::not_done(
                Cause::Misconfigured,
                format!(
                    "the name is {} bytes long and stands under the prefix `{}` of {} bytes; together at most {} are \
                     allowed: shorten one of them",
                    name.as_str().len(),
                    self.prefix,
                    self.prefix.as_str().len(),
                    Name::MAX
                ),
            )
        })
    }

    /// The name as the caller knows it; `None` if it is not under the prefix.
    fn outside(&self, name: &Name) -> Option<Name> {
        name.as_str()
            .strip_prefix(self.prefix.as_str())
            .and_then(|rest| Name::new(rest).ok())
    }

    fn renewal_inside(&self, renewal: &Renewal) -> Result<Renewal, Failure> {
        Ok(Renewal {
            name: self.inside(&renewal.name)?,
            ..renewal.clone()
        })
    }
}

#[async_trait]
impl Store for Prefixed {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn describe(&self) -> String {
        format!("{} under {}", self.inner.describe(), self.prefix)
    }

    async fn acquire(&self, ask: &Ask, within: Duration) -> Result<Answer, Failure> {
        let name = self.inside(&ask.name)?;
        self.inner.acquire(&Ask { name, ..ask.clone() }, within).await
    }

    async fn renew(&self, batch: &[Renewal], within: Duration) -> Vec<Result<Renewed, Failure>> {
        let asked: Vec<_> = batch.iter().map(|item| self.renewal_inside(item)).collect();
        let fitting: Vec<_> = asked
            .iter()
            .filter_map(|item| item.as_ref().ok().cloned())
            .collect();
        let mut answers = if fitting.is_empty() {
            Vec::new()
        } else {
            self.inner.renew(&fitting, within).await
        }
        .into_iter();
        asked
            .into_iter()
            .map(|item| match item {
                Err(refused) => Err(refused),
                Ok(_) => answers.next().unwrap_or_else(|| {
                    Err(Failure::unknown(
                        Cause::Corrupt,
                        "the store answered fewer renewals than it was asked",
                    ))
                }),
            })
            .collect()
    }

    async fn release(&self, giving: &Giving, within: Duration) -> Result<Given, Failure> {
        let name = self.inside(&giving.name)?;
        self.inner
            .release(
                &Giving {
                    name,
                    ..giving.clone()
                },
                within,
            )
            .await
    }

    async fn inspect(&self, name: &Name, within: Duration) -> Result<Option<Lease>, Failure> {
        let found = self.inner.inspect(&self.inside(name)?, within).await?;
        Ok(found.map(|lease| Lease {
            name: name.clone(),
            ..lease
        }))
    }

    async fn list(&self, prefix: &str, limit: usize, within: Duration) -> Result<Listing, Failure> {
        let whole = format!("{}{prefix}", self.prefix);
        // One more than asked: a name that is the prefix itself is not ours to show, and would take a place.
        let found = self.inner.list(&whole, limit.saturating_add(1), within).await?;
        let mut leases: Vec<_> = found
            .leases
            .into_iter()
            .filter_map(|lease| {
                let name = self.outside(&lease.name)?;
                name.as_str()
                    .starts_with(prefix)
                    .then_some(Lease { name, ..lease })
            })
            .collect();
        let truncated = found.truncated || leases.len() > limit;
        leases.truncate(limit);
        Ok(Listing { leases, truncated })
    }

    fn listen(&self, name: &Name, token: &Token) -> Listener {
        // A name that does not fit is refused when it is asked for; until then there is nothing to hear.
        self.inside(name)
            .map_or_else(|_| Listener::silent(), |name| self.inner.listen(&name, token))
    }

    async fn promise(&self, within: Duration) -> Result<Promised, Failure> {
        self.inner.promise(within).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::clock::RuntimeClock;
    use crate::memory::MemoryStore;
    use crate::rng::OsRandom;
    use crate::word::{Fence, Holder, Ttl};

    const WITHIN: Duration = Duration::from_secs(1);

    fn ask(name: &str) -> Ask {
        let token = Token::fresh(&Holder::new("me").unwrap(), "test", &OsRandom);
        Ask::new(Name::new(name).unwrap(), token, Ttl::MAX)
    }

    fn renewal(ask: &Ask, fence: Fence) -> Renewal {
        Renewal {
            name: ask.name.clone(),
            token: ask.token.clone(),
            fence,
            ttl: ask.ttl,
            lock_delay: ask.lock_delay,
        }
    }

    #[test]
    fn prefixes_end_in_a_separator() {
        let memory: SharedStore = Arc::new(MemoryStore::new(crate::clock::BootClock::shared()));
        for (prefix, fits) in [
            ("team:", true),
            ("a/b/", true),
            ("team", false),
            ("", false),
            ("a b:", false),
            ("{a}:", false),
        ] {
            let made = Prefixed::new(Arc::clone(&memory), prefix);
            assert_eq!(made.is_ok(), fits, "{prefix}");
            if let Err(refused) = made {
                assert_eq!(refused.field, "prefix");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn tenants_do_not_meet() {
        let memory: SharedStore = Arc::new(MemoryStore::new(RuntimeClock::shared()));
        let [one, two] = ["one:", "two:"].map(|prefix| Prefixed::new(Arc::clone(&memory), prefix).unwrap());
        for store in [&one, &two] {
            assert!(matches!(
                store.acquire(&ask("job"), WITHIN).await,
                Ok(Answer::Granted(_))
            ));
            assert!(matches!(
                store.acquire(&ask("job"), WITHIN).await,
                Ok(Answer::Busy(_))
            ));
            let listed = store.list("", 10, WITHIN).await.unwrap();
            assert_eq!(listed.leases.len(), 1);
            assert_eq!(listed.leases[0].name.as_str(), "job");
            let shown = store
                .inspect(&listed.leases[0].name, WITHIN)
                .await
                .unwrap()
                .unwrap();
            assert_eq!(shown.name.as_str(), "job");
        }
        assert_eq!(memory.list("", 10, WITHIN).await.unwrap().leases.len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_that_is_the_prefix_itself_takes_no_place() {
        let memory: SharedStore = Arc::new(MemoryStore::new(RuntimeClock::shared()));
        let store = Prefixed::new(Arc::clone(&memory), "one:").unwrap();
        memory.acquire(&ask("one:"), WITHIN).await.unwrap();
        store.acquire(&ask("a"), WITHIN).await.unwrap();
        let listed = store.list("", 1, WITHIN).await.unwrap();
        assert_eq!((listed.leases.len(), listed.truncated), (1, false));
        store.acquire(&ask("b"), WITHIN).await.unwrap();
        let listed = store.list("", 1, WITHIN).await.unwrap();
        assert_eq!((listed.leases.len(), listed.truncated), (1, true));
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_that_does_not_fit_is_refused_by_every_verb() {
        let memory: SharedStore = Arc::new(MemoryStore::new(RuntimeClock::shared()));
        let store = Prefixed::new(memory, "team:").unwrap();
        let (long, fits) = (ask(&"x".repeat(508)), ask(&"x".repeat(507)));
        let Ok(Answer::Granted(grant)) = store.acquire(&fits, WITHIN).await else {
            panic!("the longest name that fits is refused");
        };
        let mut renewed = store
            .renew(
                &[renewal(&long, grant.fence), renewal(&fits, grant.fence)],
                WITHIN,
            )
            .await;
        assert!(matches!(renewed.pop(), Some(Ok(Renewed::Extended { .. }))));
        let giving = Giving::owned(long.name.clone(), long.token.clone());
        for refused in [
            store.acquire(&long, WITHIN).await.err(),
            store.release(&giving, WITHIN).await.err(),
            store.inspect(&long.name, WITHIN).await.err(),
            renewed.pop().and_then(Result::err),
        ] {
            let refused = refused.unwrap();
            assert!(
                !refused.unknown && refused.message().contains("508 bytes"),
                "{refused}"
            );
        }
    }
}
