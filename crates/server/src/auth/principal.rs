//! An identified caller and its rights.

use std::fmt;
use std::sync::Arc;

use leasehold::Name;

use super::admission::Admission;
use super::{Grant, Right, Rule, Scope, Target};
use crate::problem::Refusal;

/// An identified caller with its grants. Cheap to clone.
#[derive(Clone)]
pub struct Principal {
    id: Arc<str>,
    grants: Arc<[Grant]>,
    /// The request arrived on one of the reserved connections, where no request may wait.
    on_reserved_connection: bool,
    /// How the request was admitted, so that it can be checked again while it lasts.
    admission: Option<Arc<Admission>>,
}

impl Principal {
    /// A caller with these grants. `id` is public: it appears in logs and in the audit log.
    #[must_use]
    pub fn new(id: &str, grants: impl Into<Arc<[Grant]>>) -> Self {
        Self { id: id.into(), grants: grants.into(), on_reserved_connection: false, admission: None }
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

    pub(super) fn with_admission(mut self, admission: Admission) -> Self {
        self.admission = Some(Arc::new(admission));
        self
    }

    /// Notes the right that admitted the request.
    pub(super) fn admitted_by(mut self, rule: &Rule, target: &Target) -> Self {
        let admission = self.admission.take();
        self.admission = admission.map(|admission| Arc::new(admission.with_right(rule, target.clone())));
        self
    }

    /// This caller in place of `before`, in the same request.
    pub(super) fn admitted_as(mut self, before: &Self) -> Self {
        self.on_reserved_connection = before.on_reserved_connection;
        self.admission.clone_from(&before.admission);
        self
    }

    pub(super) fn admission(&self) -> Option<&Admission> {
        self.admission.as_deref()
    }

    /// The owner of a daemon without a tokens file, with all rights.
    #[must_use]
    pub fn local() -> Self {
        Self::new("local", [Grant::everything()])
    }

    /// Whether the route needs no identity, so that the caller has none.
    pub(crate) fn is_anonymous(&self) -> bool {
        self.admission.is_none() && self.grants.is_empty()
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

    /// Whether a grant gives `right` on `target`.
    #[must_use]
    pub fn may(&self, right: Right, target: &Target) -> bool {
        self.scopes(right).any(|scope| match target {
            Target::Daemon => scope.is_everything(),
            // Any grant of this right suffices: the handler filters the result with `covers`.
            Target::Visible => true,
            Target::VisibleOf(kinds) => kinds.iter().any(|kind| scope.meets_namespace(kind)),
            Target::Name(name) => scope.covers(name),
            Target::Namespace(namespace) => scope.covers_namespace(namespace),
        })
    }

    /// Whether a grant gives `right` on this name.
    #[must_use]
    pub fn covers(&self, right: Right, name: &Name) -> bool {
        self.grants.iter().any(|grant| grant.allows(right, name))
    }

    /// Whether a grant gives `right` on `target`, or on some names of the namespace `or_by`.
    pub(super) fn may_or_by(&self, right: Right, target: &Target, or_by: Option<&str>) -> bool {
        let found_by = |kind| self.scopes(right).any(|scope| scope.meets_namespace(kind));
        self.may(right, target) || or_by.is_some_and(found_by)
    }

    /// Requires `right` on something that the request touches besides its target.
    ///
    /// # Errors
    /// No grant gives the right. The refusal names the grant that would.
    pub fn require(&self, right: Right, touched: &Target) -> Result<(), Refusal> {
        if self.may(right, touched) {
            return Ok(());
        }
        Err(Refusal::forbidden_on(
            right,
            match touched {
                Target::Name(name) => name.as_str(),
                Target::Namespace(namespace) => namespace,
                Target::Daemon | Target::Visible | Target::VisibleOf(_) => "*",
            },
        ))
    }

    /// The scopes on which this caller has `right`.
    pub fn scopes(&self, right: Right) -> impl Iterator<Item = &Scope> {
        self.grants.iter().filter(move |grant| grant.right.implies(right)).map(|grant| &grant.scope)
    }
}

impl fmt::Debug for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Principal({})", self.id)
    }
}
