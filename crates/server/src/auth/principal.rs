//! Someone who asks, with their rights.

use std::fmt;
use std::sync::Arc;

use leasehold::Name;

use super::{Grant, Role, Scope, Target};

/// Who asks. Cheap to clone.
#[derive(Clone)]
pub struct Principal {
    id: Arc<str>,
    grants: Arc<[Grant]>,
    /// It asks over one of the last connections.
    in_passing: bool,
}

impl Principal {
    /// Someone with these rights. `id` is public: it stands in logs and in the audit log.
    #[must_use]
    pub fn new(id: &str, grants: impl Into<Arc<[Grant]>>) -> Self {
        Self {
            id: id.into(),
            grants: grants.into(),
            in_passing: false,
        }
    }

    /// The same, asking over one of the last connections: it is answered at once, or told to come again, so that whoever must
    /// renew finds one.
    #[must_use]
    pub(crate) fn in_passing(mut self, is_so: bool) -> Self {
        self.in_passing = is_so;
        self
    }

    /// May keep its connection for as long as it waits.
    pub(crate) fn may_wait(&self) -> bool {
        !self.in_passing
    }

    /// Everybody on this machine, if no tokens are configured.
    #[must_use]
    pub fn local() -> Self {
        Self::new("local", [Grant::everything()])
    }

    /// Nobody: for routes that are open to all.
    #[must_use]
    pub fn nobody() -> Self {
        Self::new("nobody", [])
    }

    /// The public name.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Everything it may do.
    #[must_use]
    pub fn grants(&self) -> &[Grant] {
        &self.grants
    }

    /// May do this there.
    #[must_use]
    pub fn may(&self, role: Role, target: &Target) -> bool {
        self.grants.iter().any(|grant| {
            grant.role >= role
                && match target {
                    Target::Whole => grant.scope.is_everything(),
                    // Somewhere at all: the handler shows only what `covers` lets through.
                    Target::Own => true,
                    Target::Name(name) => grant.scope.covers(name),
                    Target::Namespace(namespace) => grant.scope.covers_namespace(namespace),
                }
        })
    }

    /// May do this with this name.
    #[must_use]
    pub fn covers(&self, role: Role, name: &Name) -> bool {
        self.grants
            .iter()
            .any(|grant| grant.role >= role && grant.scope.covers(name))
    }

    /// Where it may do this.
    pub fn scopes(&self, role: Role) -> impl Iterator<Item = &Scope> {
        self.grants
            .iter()
            .filter(move |grant| grant.role >= role)
            .map(|grant| &grant.scope)
    }
}

impl fmt::Debug for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Principal({})", self.id)
    }
}
