//! An identified caller and its rights.

use std::fmt;
use std::sync::Arc;

use leasehold::Name;

use super::{Grant, Role, Scope, Target};

/// An identified caller with its grants. Cheap to clone.
#[derive(Clone)]
pub struct Principal {
    id: Arc<str>,
    grants: Arc<[Grant]>,
    /// The request arrived on one of the reserved connections, where no request may wait.
    on_reserved_connection: bool,
}

impl Principal {
    /// A caller with these grants. `id` is public: it appears in logs and in the audit log.
    #[must_use]
    pub fn new(id: &str, grants: impl Into<Arc<[Grant]>>) -> Self {
        Self { id: id.into(), grants: grants.into(), on_reserved_connection: false }
    }

    /// Marks the request as arrived on a reserved connection. It must be answered at once, so that
    /// renewals always find a free connection.
    #[must_use]
    pub(crate) fn on_reserved_connection(mut self, is_so: bool) -> Self {
        self.on_reserved_connection = is_so;
        self
    }

    /// Whether the request may wait, and so keep its connection busy.
    pub(crate) fn may_wait(&self) -> bool {
        !self.on_reserved_connection
    }

    /// The caller when no tokens are configured: any process on this machine, with all rights.
    #[must_use]
    pub fn local() -> Self {
        Self::new("local", [Grant::everything()])
    }

    /// The caller of routes that need no identity. It has no grants.
    #[must_use]
    pub fn anonymous() -> Self {
        Self::new("nobody", [])
    }

    /// The public id, as logs and the audit log show it.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// All grants of this caller.
    #[must_use]
    pub fn grants(&self) -> &[Grant] {
        &self.grants
    }

    /// Whether a grant covers `role` on `target`.
    #[must_use]
    pub fn may(&self, role: Role, target: &Target) -> bool {
        self.grants.iter().any(|grant| {
            grant.role >= role
                && match target {
                    Target::Daemon => grant.scope.is_everything(),
                    // Any grant of this role suffices: the handler filters the result with
                    // `covers`.
                    Target::Visible => true,
                    Target::Name(name) => grant.scope.covers(name),
                    Target::Namespace(namespace) => grant.scope.covers_namespace(namespace),
                }
        })
    }

    /// Whether a grant covers `role` on this name.
    #[must_use]
    pub fn covers(&self, role: Role, name: &Name) -> bool {
        self.grants.iter().any(|grant| grant.role >= role && grant.scope.covers(name))
    }

    /// The scopes on which this caller has at least `role`.
    pub fn scopes(&self, role: Role) -> impl Iterator<Item = &Scope> {
        self.grants.iter().filter(move |grant| grant.role >= role).map(|grant| &grant.scope)
    }
}

impl fmt::Debug for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Principal({})", self.id)
    }
}
