//! The table of cases, and how one runs.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use anyhow::{Context, bail};
use leasehold_core::clock::run_until;
use leasehold_core::store::Capabilities;

use crate::fixture::Fixture;

/// The result of a case: the error says which promise was broken (`I4: …`) and how.
pub type CaseResult = anyhow::Result<()>;

/// A capability that a case requires of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Need {
    /// The store sets [`Capabilities::list`].
    List,
    /// The store sets [`Capabilities::queue`].
    Queue,
    /// The store sets [`Capabilities::wake`].
    Wake,
    /// The store sets [`Capabilities::documents`].
    Documents,
    /// The store sets [`Capabilities::document_wake`].
    DocumentWake,
    /// The store sets [`Capabilities::cross_process`].
    CrossProcess,
}

impl Need {
    /// Whether the store has the capability.
    #[must_use]
    pub const fn is_met_by(self, capabilities: &Capabilities) -> bool {
        match self {
            Self::List => capabilities.list,
            Self::Queue => capabilities.queue,
            Self::Wake => capabilities.wake,
            Self::Documents => capabilities.documents,
            Self::DocumentWake => capabilities.document_wake,
            Self::CrossProcess => capabilities.cross_process,
        }
    }

    const fn missing_text(self) -> &'static str {
        match self {
            Self::List => "it cannot list its leases",
            Self::Queue => "it keeps no queue of waiters",
            Self::Wake => "it cannot wake waiters",
            Self::Documents => "it has no documents",
            Self::DocumentWake => "it cannot wake followers of documents",
            Self::CrossProcess => "processes cannot share it",
        }
    }
}

/// The function of a case.
pub type Body = for<'a> fn(&'a dyn Fixture) -> Pin<Box<dyn Future<Output = CaseResult> + 'a>>;

/// One case of the suite.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Case {
    /// `module::case`, the name of the test.
    pub id: &'static str,
    /// The capabilities that the case requires.
    pub needs: &'static [Need],
    /// Runs the case on a fixture.
    pub body: Body,
}

impl std::fmt::Debug for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Case").field("id", &self.id).field("needs", &self.needs).finish_non_exhaustive()
    }
}

impl Case {
    /// Why this store skips the case; `None` if it does not.
    #[must_use]
    pub fn skip_reason(&self, capabilities: &Capabilities) -> Option<String> {
        let missing: Vec<_> = self
            .needs
            .iter()
            .filter(|need| !need.is_met_by(capabilities))
            .map(|need| need.missing_text())
            .collect();
        (!missing.is_empty())
            .then(|| format!("the {} store says that {}", capabilities.kind, missing.join(" and ")))
    }

    /// Runs the case on this fixture. A case that does not end in time fails.
    ///
    /// # Errors
    /// The store broke a promise; the error says which and how.
    pub async fn run(&self, fixture: &dyn Fixture) -> CaseResult {
        let clock = fixture.clock();
        // Under virtual time, a case that waits for ever reaches this limit at once.
        let limit = clock.now() + CASE_TIME_LIMIT;
        match run_until(clock.as_ref(), limit, (self.body)(fixture)).await {
            Some(verdict) => verdict,
            None => bail!("not finished after {CASE_TIME_LIMIT:?}"),
        }
    }
}

/// Time limit of a case: far more than any needs, but below the test runner's own limit.
const CASE_TIME_LIMIT: Duration = Duration::from_secs(170);

/// Builds [`CASES`] from the list.
#[doc(hidden)]
#[macro_export]
macro_rules! case_table {
    ([] $($module:ident { $($case:ident [$($need:ident)*];)* })*) => {
        /// All cases of the suite.
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
pub fn find_case(id: &str) -> Option<&'static Case> {
    CASES.iter().find(|case| case.id == id)
}

/// Ids of the cases that a store with these capabilities skips.
#[must_use]
pub fn skipped_case_ids(capabilities: &Capabilities) -> Vec<&'static str> {
    CASES.iter().filter(|case| case.skip_reason(capabilities).is_some()).map(|case| case.id).collect()
}

/// The clock that a suite runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Time {
    /// The runtime's paused clock: it jumps to the next timer when no task is ready.
    Virtual,
    /// The machine's clock.
    Real,
}

impl Time {
    fn runtime(self) -> anyhow::Result<tokio::runtime::Runtime> {
        match self {
            Self::Virtual => {
                tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()
            }
            Self::Real => tokio::runtime::Builder::new_multi_thread()
                // Two threads, so that racing tasks really run in parallel.
                .worker_threads(2)
                .enable_all()
                .build(),
        }
        .context("the runtime for a case could not be started")
    }
}

/// Runs one case on a fresh fixture, as a test of its own.
///
/// # Panics
/// The store failed the case, or its fixture could not be created.
#[allow(clippy::panic)]
pub fn play<F: Fixture>(time: Time, id: &str, fixture: impl Future<Output = F>) {
    let played = time.runtime().and_then(|runtime| {
        runtime.block_on(async {
            let case = find_case(id).with_context(|| format!("there is no case `{id}`"))?;
            let fixture = fixture.await;
            let capabilities = fixture.open().await?.capabilities();
            if let Some(reason) = case.skip_reason(&capabilities) {
                // A pass, not a failure: `check_skips` makes sure that the
                // store's author has declared it.
                println!("skipped: {reason}");
                return Ok(());
            }
            case.run(&fixture).await
        })
    });
    if let Err(failed) = played {
        panic!("{id}: {failed:#}");
    }
}

/// Compares the skipped cases with the declared ones, so that no case is skipped unnoticed.
///
/// # Panics
/// The two lists differ.
#[allow(clippy::panic)]
pub fn check_skips<F: Fixture>(time: Time, fixture: impl Future<Output = F>, declared: &[&str]) {
    let found = time.runtime().and_then(|runtime| {
        runtime.block_on(async { Ok(skipped_case_ids(&fixture.await.open().await?.capabilities())) })
    });
    let found = found.unwrap_or_else(|failed| panic!("the fixture cannot open its store: {failed:#}"));
    // `crossprocess::*` stands for all cases of a file.
    let declares = |id: &str| {
        declared.iter().any(|message| {
            *message == id || message.strip_suffix('*').is_some_and(|module| id.starts_with(module))
        })
    };
    let silent: Vec<_> = found.iter().filter(|id| !declares(id)).collect();
    // A declared case that runs is an error too, or the list would go out of date.
    let stale: Vec<_> = CASES
        .iter()
        .filter(|case| declares(case.id) && !found.contains(&case.id))
        .map(|case| case.id)
        .collect();
    let unknown: Vec<_> = declared
        .iter()
        .filter(|message| !CASES.iter().any(|case| case.id.starts_with(message.trim_end_matches('*'))))
        .collect();
    assert!(
        silent.is_empty() && stale.is_empty() && unknown.is_empty(),
        "skipped without being declared: {silent:?}; declared as skipped but played: {stale:?}; declared but no \
         such case: {unknown:?}"
    );
}
