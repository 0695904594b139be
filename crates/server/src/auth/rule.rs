//! What a route requires of its caller. Rules are declared where the route is registered; the gate
//! admits no other way.
//!
//! To add routes from another crate, pass the router and its rules to [`Mount`](crate::Mount):
//!
//! ```
//! use axum::{Router, routing::post};
//! use http::Method;
//! use leasehold_server::{Mount, auth::{Right, Rule, TargetSource}};
//!
//! async fn submit() -> &'static str { "submitted" }
//! let jobs = Mount::new(Router::new().route("/v1/jobs", post(submit)))
//!     .rule(Method::POST, "/v1/jobs", Rule::new(Right::Submit, TargetSource::Fixed("job")));
//! ```
//!
//! A route of that router without a rule is refused with 403.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use http::request::Parts;
use http::{Extensions, Method};
use leasehold::Name;

use super::{Principal, Right};
use crate::problem::Refusal;
use crate::state::app::App;

/// What a request acts on. A grant must cover it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Target {
    /// The daemon as a whole; requires a grant on `*`.
    Daemon,
    /// Whatever the caller may see; the handler filters its result by the caller's grants.
    Visible,
    /// What the caller may see of these namespaces; a grant on a part of one suffices, and the handler
    /// filters its result.
    VisibleOf(&'static [&'static str]),
    /// One lock name.
    Name(Name),
    /// All names of a namespace.
    Namespace(String),
}

/// The parts of a request that determine its target: head, path parameters and body.
#[derive(Debug)]
#[non_exhaustive]
pub struct AuthRequest<'a> {
    pub(crate) app: &'a App,
    /// Ids of kept holds belong to their owner.
    pub(crate) who: &'a Principal,
    /// Method, path and headers.
    pub parts: &'a Parts,
    /// The path parameters, percent-decoded.
    pub params: &'a [(String, String)],
    /// The whole body, already read within the route's limits.
    pub body: &'a [u8],
}

impl AuthRequest<'_> {
    /// The path parameter of this name.
    #[must_use]
    pub fn param(&self, name: &str) -> Option<&str> {
        let found = self.params.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// A function that determines a request's target, or refuses the request.
pub type TargetResolver = Arc<dyn Fn(&AuthRequest<'_>) -> Result<Target, Refusal> + Send + Sync>;

/// Parses a body, keeps the document for the handler, and returns the target that it names.
pub type DocumentTarget = Arc<dyn Fn(&[u8], &mut Extensions) -> Result<Target, Refusal> + Send + Sync>;

/// Where a request names its target.
#[derive(Clone)]
#[non_exhaustive]
pub enum TargetSource {
    /// The target is the daemon as a whole.
    Daemon,
    /// The target is whatever the caller may see; the handler filters its result.
    Visible,
    /// The target is what the caller may see of these namespaces; the handler filters its result.
    VisibleOf(&'static [&'static str]),
    /// The lock's name is the path's `{name}`.
    Name,
    /// The namespace is the path's `{namespace}`.
    Namespace,
    /// The lock `kind:id`, with the path parameter of this name as its id.
    Lock {
        /// The first part of the lock's name, for example `job`.
        kind: &'static str,
        /// The name of the path parameter.
        id: &'static str,
    },
    /// The target is always this namespace.
    Fixed(&'static str),
    /// The body names the target. The gate parses the body, and the handler gets that document.
    Document(DocumentTarget),
    /// A function determines the target.
    Resolve(TargetResolver),
}

impl TargetSource {
    /// Determines the target with a function; its error becomes the response.
    pub fn resolver(
        look: impl Fn(&AuthRequest<'_>) -> Result<Target, Refusal> + Send + Sync + 'static,
    ) -> Self {
        Self::Resolve(Arc::new(look))
    }

    /// Whether the target can only be determined from the body.
    pub(crate) fn needs_body(&self) -> bool {
        matches!(self, Self::Document(_) | Self::Resolve(_))
    }

    /// The target of this request.
    ///
    /// # Errors
    /// The request does not name a valid target.
    pub(crate) fn resolve(
        &self,
        request: &AuthRequest<'_>,
        documents: &mut Extensions,
    ) -> Result<Target, Refusal> {
        let param = |name: &str| request.param(name).unwrap_or_default();
        match self {
            Self::Daemon => Ok(Target::Daemon),
            Self::Visible => Ok(Target::Visible),
            Self::VisibleOf(kinds) => Ok(Target::VisibleOf(kinds)),
            Self::Name => Ok(Target::Name(Name::new(param("name"))?)),
            Self::Namespace => Ok(Target::Namespace(param("namespace").to_owned())),
            Self::Lock { kind, id } => name_of(id, kind, param(id)).map(Target::Name),
            Self::Fixed(namespace) => Ok(Target::Namespace((*namespace).to_owned())),
            Self::Document(read) => read(request.body, documents),
            Self::Resolve(look) => look(request),
        }
    }
}

/// The name `kind:id`. `field` is the part of the request that has the id.
pub(crate) fn name_of(field: &str, kind: &str, id: &str) -> Result<Name, Refusal> {
    Name::new(&format!("{kind}:{id}")).map_err(|invalid| Refusal::invalid(field, invalid.to_string()))
}

impl fmt::Debug for TargetSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Daemon => "whole",
            Self::Visible | Self::VisibleOf(_) => "own",
            Self::Name => "name",
            Self::Namespace => "namespace",
            Self::Lock { kind, .. } => kind,
            Self::Fixed(namespace) => namespace,
            Self::Document(_) => "in the body",
            Self::Resolve(_) => "looked up",
        })
    }
}

/// The rate budget that a request is charged to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Budget {
    /// The caller's ordinary request rate.
    Requests,
    /// Reserved for renewals and releases: a flood of acquires cannot use it up.
    Renewals,
    /// The probes of an orchestrator: by peer address, apart from everything else.
    Probes,
}

/// What a route requires.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Rule {
    /// The right that a call needs on its target; `None` opens the route to callers without an identity.
    pub right: Option<Right>,
    /// Where the request names the target that a grant must cover.
    pub target: TargetSource,
    /// A grant of the right on some names of this namespace passes the gate too. The handler must
    /// then check the right on what it finds.
    pub or_by: Option<&'static str>,
    /// The rate budget that calls are charged to.
    pub budget: Budget,
    /// Answer 404 with this text instead of 403 to a caller without the right, so that it cannot probe
    /// which ids exist. The target's own *not found* must have the same text.
    pub hidden: Option<&'static str>,
    /// A body limit for this route, if larger than the daemon's.
    pub max_body: Option<usize>,
    /// Answers also callers whose earlier responses use up their share. For routes whose responses are small.
    pub small_responses: bool,
}

impl Rule {
    /// Requires this right on the target.
    #[must_use]
    pub fn new(right: Right, target: TargetSource) -> Self {
        let (right, budget) = (Some(right), Budget::Requests);
        Self { right, target, or_by: None, budget, hidden: None, max_body: None, small_responses: false }
    }

    /// Also admits callers that have the right on some names of this namespace. The handler must check
    /// it on what it finds: a job may be read by its id or by its topic, and only the job knows its topic.
    #[must_use]
    pub fn or_by(mut self, namespace: &'static str) -> Self {
        self.or_by = Some(namespace);
        self
    }

    /// Open to every caller, without an identity.
    #[must_use]
    pub fn open() -> Self {
        Self { right: None, ..Self::new(Right::Read, TargetSource::Daemon) }
    }

    /// Whether the caller may use the route on this target, as far as the gate can tell.
    pub(crate) fn admits(&self, who: &Principal, target: &Target) -> bool {
        self.right.is_none_or(|right| who.may_or_by(right, target, self.or_by))
    }

    /// Open to every caller, with a budget for probes only.
    #[must_use]
    pub fn probe() -> Self {
        Self { budget: Budget::Probes, ..Self::open() }
    }

    /// Charges calls to the budget for renewals and releases, whose responses are small.
    #[must_use]
    pub fn renewal_budget(mut self) -> Self {
        self.budget = Budget::Renewals;
        self.small_responses = true;
        self
    }

    /// Refuses callers whose earlier responses use up their share: these responses may be large.
    #[must_use]
    pub fn large_responses(mut self) -> Self {
        self.small_responses = false;
        self
    }

    /// Allows bodies of up to `longest` bytes.
    #[must_use]
    pub fn max_body(mut self, longest: usize) -> Self {
        self.max_body = Some(longest);
        self
    }

    /// Answers 404 with this text instead of 403 to a caller without the right.
    #[must_use]
    pub fn hidden(mut self, not_found: &'static str) -> Self {
        self.hidden = Some(not_found);
        self
    }
}

/// The rules of all routes, by path and method.
#[derive(Debug, Clone, Default)]
pub struct Rules(BTreeMap<String, BTreeMap<String, Rule>>);

impl Rules {
    /// Declares the rule of a route; a second declaration replaces the first.
    pub fn declare(&mut self, method: &Method, path: &str, rule: Rule) {
        self.0.entry(path.to_owned()).or_default().insert(method.to_string(), rule);
    }

    /// The rule of a route, if one is declared.
    #[must_use]
    pub fn find(&self, method: &Method, path: &str) -> Option<&Rule> {
        // axum serves HEAD with the GET handler, so the GET rule applies.
        let method = if *method == Method::HEAD { "GET" } else { method.as_str() };
        self.0.get(path)?.get(method)
    }

    /// The grant that a request needs, in the form of `token new --grant`; `path` has no leading `v1`. A
    /// target that only a running daemon knows is `*`.
    #[must_use]
    pub fn required_grant(&self, method: &Method, path: &[&str], body: &[u8]) -> Option<String> {
        let (params, rule) = self.0.iter().find_map(|(pattern, methods)| {
            let params = match_path(pattern.strip_prefix("/v1/")?, path)?;
            Some((params, methods.get(method.as_str())?))
        })?;
        let param = |name: &str| params.iter().find(|(key, _)| *key == name).map_or("*", |(_, value)| value);
        let scope = match &rule.target {
            TargetSource::Name => param("name").to_owned(),
            TargetSource::Namespace => param("namespace").to_owned(),
            TargetSource::Lock { kind, id } => format!("{kind}:{}", param(id)),
            TargetSource::Fixed(namespace) => (*namespace).to_owned(),
            TargetSource::VisibleOf(kinds) => kinds.first().map_or("*", |kind| kind).to_owned(),
            TargetSource::Document(read) => match read(body, &mut Extensions::new()) {
                Ok(Target::Name(name)) => name.to_string(),
                Ok(Target::Namespace(namespace)) => namespace,
                _ => "*".to_owned(),
            },
            _ => "*".to_owned(),
        };
        Some(format!("{}:{scope}", rule.right?))
    }

    /// The methods that a path accepts; `None` if nothing is declared for it.
    #[must_use]
    pub fn methods(&self, path: &str) -> Option<String> {
        let methods = self.0.get(path)?;
        Some(methods.keys().cloned().collect::<Vec<_>>().join(", "))
    }

    /// Every route: method, path, rule.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str, &Rule)> {
        self.0.iter().flat_map(|(path, methods)| {
            methods.iter().map(move |(method, rule)| (method.as_str(), path.as_str(), rule))
        })
    }
}

/// The parameters of a path that has the form of this pattern.
fn match_path<'a>(pattern: &'a str, path: &[&'a str]) -> Option<Vec<(&'a str, &'a str)>> {
    let pattern: Vec<_> = pattern.split('/').collect();
    let mut params = Vec::new();
    for (part, given) in pattern.iter().zip(path) {
        match part.strip_prefix('{').and_then(|part| part.strip_suffix('}')) {
            Some(name) => params.push((name, *given)),
            None if part != given => return None,
            None => {}
        }
    }
    (pattern.len() == path.len()).then_some(params)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grant_of_a_request_is_that_of_its_route() {
        let table = crate::api::routes::RouteTable::new(utoipa::openapi::OpenApi::default(), true);
        let grant = |method: &Method, path: &[&str], body: &str| {
            table.rules.required_grant(method, path, body.as_bytes())
        };
        let (get, post) = (&Method::GET, &Method::POST);
        for (found, wanted) in [
            (grant(get, &["jobs"], ""), "read:job"),
            (grant(get, &["runs"], ""), "read:run"),
            (grant(get, &["jobs", "a"], ""), "read:job:a"),
            (grant(post, &["jobs"], r#"{"work": "pull", "id": "a"}"#), "submit:job:a"),
            (grant(post, &["jobs"], r#"{"work": "pull", "tenant": "acme"}"#), "submit:job:acme"),
            (grant(post, &["jobs", "commands"], r#"{"work": {"exec": ["x"]}}"#), "command:job"),
            (grant(post, &["runs"], r#"{"workflow": "w", "org": "acme"}"#), "submit:run:acme"),
            (grant(post, &["runs", "r 1", "cancel"], ""), "submit:run:r 1"),
            (grant(post, &["topics", "pay", "claim"], ""), "work:topic:pay"),
            (grant(post, &["approvals", "a", "approve"], ""), "approve:job:a"),
            (
                grant(&Method::PUT, &["workflows"], "name = \"w\"\n[[step]]\nid = \"a\"\npull = \"t\""),
                "define:workflow:w",
            ),
            (grant(&Method::PUT, &["workflows"], ""), "define:*"),
            (grant(post, &["holds"], r#"{"name": "a:b"}"#), "hold:a:b"),
            (grant(&Method::DELETE, &["holds", "h"], ""), "hold:*"),
        ] {
            assert_eq!(found.as_deref(), Some(wanted));
        }
        assert_eq!(grant(post, &["jobs", "a", "b", "c"], ""), None);
    }
}
