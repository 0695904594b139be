//! Finds the backend of a URL: a built-in one, or one that the program has registered.

use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use leasehold_core::InvalidInput;
use leasehold_core::store::{Backend, BackendInfo, StoreError, StoreErrorKind, StoreLocation};
use leasehold_core::testbed::{SimProfile, TestbedFactory};

use crate::backends::{LEFT_OUT, builtin};

// One list for the process: a store's URL also comes from files and the environment, where no
// registry value could be passed along.
static BACKENDS: LazyLock<RwLock<Vec<Arc<dyn Backend>>>> = LazyLock::new(|| RwLock::new(builtin()));

/// Adds a store of your own: from now on its URLs open it, in this process. Call it before the
/// first URL is parsed.
///
/// # Errors
/// One of its schemes belongs to another backend already.
pub fn register(backend: impl Backend) -> Result<(), InvalidInput> {
    let mut backends = BACKENDS.write().unwrap_or_else(PoisonError::into_inner);
    let schemes = backend.info().schemes;
    let taken = |scheme: &&&str| backends.iter().any(|other| other.info().schemes.contains(scheme));
    if let Some(scheme) = schemes.iter().find(taken) {
        return Err(InvalidInput::new("scheme", scheme, "another store has this scheme"));
    }
    backends.push(Arc::new(backend));
    Ok(())
}

/// The backends of this process, built-in ones first: for help texts and documentation.
#[must_use]
pub fn backends() -> Vec<BackendInfo> {
    let backends = BACKENDS.read().unwrap_or_else(PoisonError::into_inner);
    backends.iter().map(|backend| backend.info()).collect()
}

/// The kinds of stores that drills can start and break, in the order of [`backends`].
#[must_use]
pub fn testbeds() -> Vec<&'static dyn TestbedFactory> {
    let backends = BACKENDS.read().unwrap_or_else(PoisonError::into_inner);
    backends.iter().filter_map(|backend| backend.testbed()).collect()
}

/// How the stores behave that the simulator can imitate, in the order of [`backends`].
#[must_use]
pub fn sim_profiles() -> Vec<SimProfile> {
    let backends = BACKENDS.read().unwrap_or_else(PoisonError::into_inner);
    backends.iter().filter_map(|backend| backend.sim_profile()).collect()
}

/// The URLs that a user can write, as a list for people that ends with `conjunction`.
#[must_use]
pub fn known_urls(conjunction: &str) -> String {
    let forms: Vec<_> = backends().into_iter().flat_map(|backend| backend.url_forms).copied().collect();
    match forms.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} {conjunction} {last}", rest.join(", ")),
        _ => forms.concat(),
    }
}

/// A parsed URL with its scheme and backend.
type ResolvedUrl = (&'static str, Arc<dyn Backend>, Box<dyn StoreLocation>);

/// Finds the backend of a URL and parses it.
pub(crate) fn locate(text: &str) -> Result<ResolvedUrl, StoreError> {
    // A path must start like one: a bare `locks.db` could be a mistyped scheme.
    let path = ["/", "./", "../"].iter().any(|start| text.starts_with(start));
    let scheme = text.split_once(':').map(|(scheme, _)| scheme).filter(|_| !path);
    let found = {
        let backends = BACKENDS.read().unwrap_or_else(PoisonError::into_inner);
        backends.iter().find_map(|backend| {
            let info = backend.info();
            let known = match scheme {
                Some(scheme) => info.schemes.iter().copied().find(|known| *known == scheme),
                None => info.schemes.first().copied().filter(|_| path && info.takes_paths),
            };
            known.map(|scheme| (scheme, Arc::clone(backend)))
        })
    };
    if let Some((scheme, backend)) = found {
        let location = backend.parse(text)?;
        return Ok((scheme, backend, location));
    }
    Err(StoreError::not_done(StoreErrorKind::Misconfigured, unknown_url(scheme, LEFT_OUT)))
}

/// Why no backend was found, and which URLs are known.
fn unknown_url(scheme: Option<&str>, left_out: &[(&[&str], &str)]) -> String {
    let is_left_out =
        |(schemes, _): &&(&[&str], &str)| scheme.is_some_and(|scheme| schemes.contains(&scheme));
    match (scheme, left_out.iter().find(is_left_out)) {
        (_, Some((_, feature))) => {
            format!("this build does not contain that store; build it with the feature `{feature}`")
        }
        // The scheme is not repeated in the error: it may be a secret in the wrong place.
        (Some(_), None) => format!("no store is known by its scheme; known are {}", known_urls("and")),
        (None, None) => {
            let files = backends().into_iter().find(|backend| backend.takes_paths);
            let paths = files.map_or_else(String::new, |backend| {
                format!(", and a path that begins with / or ./ is a {} file", backend.title)
            });
            format!("it has no scheme; known are {}{paths}", known_urls("and"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_names_the_feature_of_a_store_that_was_left_out() {
        let left_out: &[(&[&str], &str)] = &[(&["tape", "tapes"], "tape")];
        assert!(unknown_url(Some("tapes"), left_out).contains("the feature `tape`"));
        assert!(unknown_url(Some("disk"), left_out).starts_with("no store is known"));
    }
}
