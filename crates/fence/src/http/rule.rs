//! Which requests need a fence, and whose.

use std::fmt;
use std::sync::Arc;

use http::Method;
use http::request::Parts;
use leasehold_core::Name;

use super::problem::Problem;
use super::{Admission, read};

/// The lock that guards what a request writes.
type NameOf = dyn Fn(&Parts) -> Option<Name> + Send + Sync;

/// What the layer was told. Cheap to clone: each service has one.
#[derive(Clone)]
pub(super) struct Rule {
    /// A guarded request without headers is refused.
    pub(super) required: bool,
    /// The guarded methods; `None` for all but the safe ones.
    pub(super) methods: Option<Arc<[Method]>>,
    /// The server's own idea of the lock, to compare the header with.
    pub(super) name_of: Option<Arc<NameOf>>,
}

impl Rule {
    /// What to check before the handler may run; `None` to let it run unchecked.
    pub(super) fn ask(&self, request: &Parts) -> Result<Option<Admission>, Problem> {
        if !self.guards(&request.method) {
            return Ok(None);
        }
        let Some(admission) = read(&request.headers).map_err(Problem::Malformed)? else {
            return if self.required {
                Err(Problem::Missing)
            } else {
                Ok(None)
            };
        };
        if let Some(name_of) = &self.name_of
            && name_of(request).as_ref() != Some(&admission.name)
        {
            return Err(Problem::WrongName {
                given: admission.name,
            });
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

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rule")
            .field("required", &self.required)
            .field("methods", &self.methods)
            .field("name_of", &self.name_of.is_some())
            .finish()
    }
}
