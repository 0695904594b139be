//! The table of cases, and how one is played.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use anyhow::{Context, bail};
use leasehold_core::clock::until;
use leasehold_core::store::Capabilities;

use crate::fixture::Fixture;

/// A case's verdict: the message says which promise was broken (`I4: …`) and how.
pub type Verdict = anyhow::Result<()>;

/// What a store must be able to do for a case to make sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// [`Capabilities::list`].
    List,
    /// [`Capabilities::queue`].
    Queue,
    /// [`Capabilities::wake`].
    Wake,
    /// [`Capabilities::cross_process`].
    CrossProcess,
}

impl Need {
    /// The store can do it.
    #[must_use]
    pub const fn met_by(self, capabilities: &Capabilities) -> bool {
        match self {
            Self::List => capabilities.list,
            Self::Queue => capabilities.queue,
            Self::Wake => capabilities.wake,
            Self::CrossProcess => capabilities.cross_process,
        }
    }

    const fn missing(self) -> &'static str {
        match self {
            Self::List => "it cannot list its leases",
            Self::Queue => "it keeps no queue of waiters",
            Self::Wake => "it cannot wake waiters",
            Self::CrossProcess => "processes cannot share it",
        }
    }
}

/// A case's function.
pub type Body = for<'a> fn(&'a dyn Fixture) -> Pin<Box<dyn Future<Output = Verdict> + 'a>>;

/// One case.
#[derive(Clone, Copy)]
pub struct Case {
    /// `module::case`, as the test is called.
    pub id: &'static str,
    /// What the store must be able to do.
    pub needs: &'static [Need],
    /// The case itself.
    pub body: Body,
}

impl std::fmt::Debug for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Case")
            .field("id", &self.id)
            .field("needs", &self.needs)
            .finish_non_exhaustive()
    }
}

impl Case {
    /// Why this store is not asked, if it is not.
    #[must_use]
    pub fn ruled_out(&self, capabilities: &Capabilities) -> Option<String> {
        let missing: Vec<_> = self
            .needs
            .iter()
            .filter(|need| !need.met_by(capabilities))
            .map(|need| need.missing())
            .collect();
        (!missing.is_empty()).then(|| {
            format!(
                "the {} store says that {}",
                capabilities.kind,
                missing.join(" and ")
            )
        })
    }

    /// Plays it on this fixture; a case that never ends is a failure too.
    ///
    /// # Errors
    /// The store broke a promise; the message says which and how.
    pub async fn verdict(&self, fixture: &dyn Fixture) -> Verdict {
        let clock = fixture.clock();
        // Under virtual time this many seconds pass at once when a case waits for what never comes.
        let limit = clock.now() + LIMIT;
        match until(clock.as_ref(), limit, (self.body)(fixture)).await {
            Some(verdict) => verdict,
            None => bail!("not finished after {LIMIT:?}"),
        }
    }
}

/// The longest a case may take: far beyond what any needs, below the runner's own limit.
const LIMIT: Duration = Duration::from_secs(170);

/// Makes [`CASES`] of the list.
#[doc(hidden)]
#[macro_export]
macro_rules! case_table {
    ([] $($module:ident { $($case:ident [$($need:ident)*];)* })*) => {
        /// Every case there is.
        pub static CASES: &[Case] = &[$($(
            Case {
                id: concat!(stringify!($module), "::", stringify!($case)),
                needs: &[$(Need::$need),*],
                body: |fixture| Box::pin($crate::cases::$module::$case(fixture)),
            },
        )*)*];
    };
}
crate::for_cases! { case_table }

/// The case with this id.
#[must_use]
pub fn find(id: &str) -> Option<&'static Case> {
    CASES.iter().find(|case| case.id == id)
}

/// The ids of the cases that a store with these capabilities is not asked.
#[must_use]
pub fn skipped(capabilities: &Capabilities) -> Vec<&'static str> {
    CASES
        .iter()
        .filter(|case| case.ruled_out(capabilities).is_some())
        .map(|case| case.id)
        .collect()
}

/// Whose time a suite runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Time {
    /// The runtime's, paused: it jumps to the next timer when nothing else is left to do.
    Virtual,
    /// The machine's.
    Real,
}

impl Time {
    fn runtime(self) -> anyhow::Result<tokio::runtime::Runtime> {
        match self {
            Self::Virtual => tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .start_paused(true)
                .build(),
            Self::Real => tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build(),
        }
        .context("the runtime for a case could not be started")
    }
}

/// Plays one case on a fresh fixture, as a test of its own: panics if the store fails it.
///
/// # Panics
/// The store failed the case, or its fixture could not be made.
#[allow(clippy::panic)]
pub fn play<F: Fixture>(time: Time, id: &str, fixture: impl Future<Output = F>) {
    let played = time.runtime().and_then(|runtime| {
        runtime.block_on(async {
            let case = find(id).with_context(|| format!("there is no case `{id}`"))?;
            let fixture = fixture.await;
            let capabilities = fixture.open().await?.capabilities();
            if let Some(reason) = case.ruled_out(&capabilities) {
                println!("skipped: {reason}");
                return Ok(());
            }
            case.verdict(&fixture).await
        })
    });
    if let Err(failed) = played {
        panic!("{id}: {failed:#}");
    }
}

/// Compares what this store is not asked with what its author declared, so that silence cannot creep in.
///
/// # Panics
/// The two differ.
#[allow(clippy::panic)]
pub fn check_skips<F: Fixture>(time: Time, fixture: impl Future<Output = F>, declared: &[&str]) {
    let found = time.runtime().and_then(|runtime| {
        runtime.block_on(async { Ok(skipped(&fixture.await.open().await?.capabilities())) })
    });
    let found = found.unwrap_or_else(|failed| panic!("the fixture cannot open its store: {failed:#}"));
    // `crossprocess::*` stands for all cases of a file.
    let declares = |id: &str| {
        declared.iter().any(|said| {
            *said == id
                || said
                    .strip_suffix('*')
                    .is_some_and(|module| id.starts_with(module))
        })
    };
    let silent: Vec<_> = found.iter().filter(|id| !declares(id)).collect();
    let stale: Vec<_> = CASES
        .iter()
        .filter(|case| declares(case.id) && !found.contains(&case.id))
        .map(|case| case.id)
        .collect();
    let unknown: Vec<_> = declared
        .iter()
        .filter(|said| {
            !CASES
                .iter()
                .any(|case| case.id.starts_with(said.trim_end_matches('*')))
        })
        .collect();
    assert!(
        silent.is_empty() && stale.is_empty() && unknown.is_empty(),
        "skipped without being declared: {silent:?}; declared as skipped but played: {stale:?}; declared but no \
         such case: {unknown:?}"
    );
}
