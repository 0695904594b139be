//! What a route requires of its caller. Rules are declared where the route is registered; the gate
//! admits no other way.
//!
//! To add routes from another crate, pass the router and its rules to [`Mount`](crate::Mount):
//!
//! ```
//! use axum::{Router, routing::post};
//! use http::Method;
//! use leasehold_server::{Mount, auth::{Role, Rule, TargetSource}};
//!
//! async fn submit() -> &'static str { "submitted" }
//! let jobs = Mount::new(Router::new().route("/v1/jobs", post(submit)))
//!     .rule(Method::POST, "/v1/jobs", Rule::new(Role::Hold, TargetSource::Fixed("job")));
//! ```
//!
//! A route of that router without a rule is refused with 403.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use http::request::Parts;
use http::{Extensions, Method};
use leasehold::Name;

use super::Role;
use crate::problem::Refusal;
use crate::state::app::App;

/// What a request acts on. A grant must cover it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// The daemon as a whole; requires a grant on `*`.
    Daemon,
    /// Whatever the caller may see; the handler filters its result by the caller's grants.
    Visible,
    /// One lock name.
    Name(Name),
    /// All names of a namespace.
    Namespace(String),
}

/// The parts of a request that determine its target: head, path parameters and body.
#[derive(Debug)]
pub struct AuthRequest<'a> {
    pub(crate) app: &'a App,
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
            Self::Name => Ok(Target::Name(Name::new(param("name"))?)),
            Self::Namespace => Ok(Target::Namespace(param("namespace").to_owned())),
            Self::Lock { kind, id } => lock_target(kind, param(id)),
            Self::Fixed(namespace) => Ok(Target::Namespace((*namespace).to_owned())),
            Self::Document(read) => read(request.body, documents),
            Self::Resolve(look) => look(request),
        }
    }
}

/// The lock `kind:id`.
pub(crate) fn lock_target(kind: &str, id: &str) -> Result<Target, Refusal> {
    let name = Name::new(&format!("{kind}:{id}"));
    name.map(Target::Name).map_err(|invalid| Refusal::invalid("id", invalid.to_string()))
}

impl fmt::Debug for TargetSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Daemon => "whole",
            Self::Visible => "own",
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
pub enum Budget {
    /// The caller's ordinary request rate.
    Requests,
    /// Reserved for renewals and releases: a flood of acquires cannot use it up.
    Renewals,
}

/// What a route requires.
#[derive(Debug, Clone)]
pub struct Rule {
    /// The lowest role that may call the route; `None` opens it to callers without an identity.
    pub role: Option<Role>,
    /// Where the request names the target that a grant must cover.
    pub target: TargetSource,
    /// The rate budget that calls are charged to.
    pub budget: Budget,
    /// Answer 404 instead of 403 to a caller without the right, so that it cannot probe which ids
    /// exist.
    pub hidden: bool,
    /// A body limit for this route, if larger than the daemon's.
    pub max_body: Option<usize>,
}

impl Rule {
    /// Requires this role on the target.
    #[must_use]
    pub fn new(role: Role, space: TargetSource) -> Self {
        Self { role: Some(role), target: space, budget: Budget::Requests, hidden: false, max_body: None }
    }

    /// Open to every caller, without an identity.
    #[must_use]
    pub fn open() -> Self {
        Self { role: None, ..Self::new(Role::Read, TargetSource::Daemon) }
    }

    /// Charges calls to the budget for renewals and releases.
    #[must_use]
    pub fn renewal_budget(mut self) -> Self {
        self.budget = Budget::Renewals;
        self
    }

    /// Allows bodies of up to `longest` bytes.
    #[must_use]
    pub fn max_body(mut self, longest: usize) -> Self {
        self.max_body = Some(longest);
        self
    }

    /// Answers 404 instead of 403 to a caller without the right.
    #[must_use]
    pub fn hidden(mut self) -> Self {
        self.hidden = true;
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
            TargetSource::Document(read) => match read(body, &mut Extensions::new()) {
                Ok(Target::Name(name)) => name.to_string(),
                Ok(Target::Namespace(namespace)) => namespace,
                _ => "*".to_owned(),
            },
            _ => "*".to_owned(),
        };
        Some(format!("{}:{scope}", rule.role?))
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
            (grant(get, &["jobs", "a"], ""), "read:job:a"),
            (grant(post, &["jobs"], r#"{"work": "pull", "id": "a"}"#), "hold:job:a"),
            (grant(post, &["jobs", "commands"], r#"{"work": {"exec": ["x"]}}"#), "admin:job"),
            (grant(post, &["runs", "r 1", "cancel"], ""), "hold:run:r 1"),
            (grant(&Method::PUT, &["workflows"], ""), "admin:workflow"),
            (grant(post, &["holds"], r#"{"name": "a:b"}"#), "hold:a:b"),
            (grant(&Method::DELETE, &["holds", "h"], ""), "hold:*"),
        ] {
            assert_eq!(found.as_deref(), Some(wanted));
        }
        assert_eq!(grant(post, &["jobs", "a", "b", "c"], ""), None);
    }
}
