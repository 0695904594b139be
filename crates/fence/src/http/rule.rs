//! Decides which requests need a fence, and of which lock.

use std::fmt;
use std::sync::Arc;

use http::Method;
use http::request::Parts;
use leasehold_core::Name;

use super::problem::Problem;
use super::{Admission, read};

/// Returns the lock that guards what a request writes.
type NameOf = dyn Fn(&Parts) -> Option<Name> + Send + Sync;

/// The layer's settings. Cheap to clone, since each service has a copy.
#[derive(Clone)]
pub(super) struct FenceRule {
    /// Whether a guarded request without headers is refused.
    pub(super) required: bool,
    /// The guarded methods; `None` for all but the safe ones.
    pub(super) methods: Option<Arc<[Method]>>,
    /// The server's own mapping from request to lock, compared with the header.
    pub(super) name_of: Option<Arc<NameOf>>,
}

impl FenceRule {
    /// The fence to check before the handler runs; `None` to run it unchecked.
    pub(super) fn required_admission(&self, request: &Parts) -> Result<Option<Admission>, Problem> {
        if !self.guards(&request.method) {
            return Ok(None);
        }
        let Some(admission) = read(&request.headers).map_err(Problem::Malformed)? else {
            return if self.required { Err(Problem::Missing) } else { Ok(None) };
        };
        if let Some(name_of) = &self.name_of
            // `None` differs too: a path without a known lock is refused, not left unguarded.
            && name_of(request).as_ref() != Some(&admission.name)
        {
            return Err(Problem::WrongName { given: admission.name });
        }
        Ok(Some(admission))
    }

    fn guards(&self, method: &Method) -> bool {
        match &self.methods {
            Some(methods) => methods.contains(method),
            None => !method.is_safe(),
        }
    }
}

impl fmt::Debug for FenceRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FenceRule")
            .field("required", &self.required)
            .field("methods", &self.methods)
            .field("name_of", &self.name_of.is_some())
            .finish()
    }
}
