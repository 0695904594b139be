//! The verbs' way to a plane: through its store, or through a daemon that serves it.
//!
//! Both answer the same questions with the same documents, so that a verb cannot tell one from the other.

mod kept;
mod served;

use anyhow::{Context, bail};
use leasehold::StoreUrl;
use serde_json::Value;

use super::PlaneStoreArg;
use super::question::Question;
use crate::args::Place;
use crate::say::say;

/// A plane that can be asked.
#[derive(Debug)]
pub(crate) enum Way {
    /// Through its store.
    Kept(kept::Kept),
    /// Through a daemon.
    Served(Box<served::Served>),
}

/// What a plane says.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The document.
    pub(crate) view: Value,
    /// When what was asked for came about.
    pub(crate) came: Came,
}

/// When something came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Came {
    /// By this very question.
    Now,
    /// By an earlier one that was the same.
    Before,
    /// Not yet: somebody was told to.
    Later,
}

impl Came {
    fn before(repeated: bool) -> Self {
        if repeated { Self::Before } else { Self::Now }
    }
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum No {
    /// The plane refuses: an honest no.
    Refused {
        /// The word for programs.
        code: String,
        /// Why.
        detail: String,
    },
    /// It could not be asked, or the question makes no sense.
    Failed(anyhow::Error),
}

/// Statuses, of a plane's error or a daemon's answer, that say no to what was asked and not to the way it was.
fn refuses(status: u16) -> bool {
    matches!(status, 404 | 409 | 412 | 429)
}

/// What to do when nobody answered.
fn then(unknown: bool) -> &'static str {
    if unknown {
        "look whether it was done before you say it again; with the same --id or --key, saying it again is harmless"
    } else {
        "start it, or mend the way to it, and say it again; `leasehold doctor` with the same --store looks closer"
    }
}

impl Way {
    /// Asks.
    pub(crate) async fn ask(&self, question: &Question) -> Result<Answer, No> {
        match self {
            Self::Kept(kept) => kept.ask(question).await,
            Self::Served(served) => served.ask(question).await,
        }
    }
}

impl PlaneStoreArg {
    /// Asks one question. Nothing if the plane refuses, which was said then.
    pub(crate) fn ask(&self, place: &Place, question: &Question) -> anyhow::Result<Option<Answer>> {
        self.talk(place, async |way| way.ask(question).await)
    }

    /// Asks as often as it takes.
    pub(crate) fn talk<T>(
        &self,
        place: &Place,
        talk: impl AsyncFnOnce(Way) -> Result<T, No>,
    ) -> anyhow::Result<Option<T>> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .context("cannot start the runtime")?;
        runtime.block_on(async {
            match talk(self.way(place).await?).await {
                Ok(answer) => Ok(Some(answer)),
                Err(No::Refused { code, detail }) => {
                    say(&format!("{code}: {detail}"));
                    Ok(None)
                }
                Err(No::Failed(error)) => Err(error),
            }
        })
    }

    async fn way(&self, place: &Place) -> anyhow::Result<Way> {
        let url = place.store()?;
        let StoreUrl::Http { .. } = &url else {
            let kept = self.kept(&url)?;
            if matches!(kept, StoreUrl::Http { .. }) {
                bail!(
                    "--plane-store (LEASEHOLD_PLANE_STORE) names a daemon, {kept}; jobs are kept in a store\n\
                     to ask a daemon about its jobs, name it with --store {kept}"
                );
            }
            let plane = self.open(place).await?;
            return Ok(Way::Kept(kept::Kept {
                plane,
                jobs: kept,
                locks: url,
            }));
        };
        if self.named().is_some() {
            bail!(
                "--plane-store (LEASEHOLD_PLANE_STORE) does not go with a daemon: {url} says itself where its jobs are\n\
                 leave it out, or name the store of the locks with --store instead of the daemon"
            );
        }
        Ok(Way::Served(Box::new(served::Served::open(url, place)?)))
    }
}
