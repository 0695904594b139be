//! What a route demands of who calls it. Declared where the route is registered; the gate knows no other way in.
//!
//! To add routes from another crate, give the router and its rules to [`Mount`](crate::Mount):
//!
//! ```
//! use axum::{Router, routing::post};
//! use http::Method;
//! use leasehold_server::{Mount, auth::{Role, Rule, Space}};
//!
//! async fn submit() -> &'static str { "submitted" }
//! let jobs = Mount::new(Router::new().route("/v1/jobs", post(submit)))
//!     .rule(Method::POST, "/v1/jobs", Rule::new(Role::Hold, Space::Fixed("job")));
//! ```
//!
//! A route of that router without a rule is refused with 403.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use http::Method;
use http::request::Parts;
use leasehold::Name;

use super::Role;
use crate::problem::Refusal;

/// What a request is about, as a right must cover it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// The daemon as a whole: needs a grant on `*`.
    Whole,
    /// What the caller may see, wherever that is: the handler leaves out the rest.
    Own,
    /// One name.
    Name(Name),
    /// A whole namespace.
    Namespace(String),
}

/// What an extractor looks at: the head, the parameters of the path, and the body.
#[derive(Debug)]
pub struct Request<'a> {
    /// Method, path, headers.
    pub parts: &'a Parts,
    /// The parameters of the path, decoded.
    pub params: &'a [(String, String)],
    /// The body.
    pub body: &'a [u8],
}

impl Request<'_> {
    /// A parameter of the path.
    #[must_use]
    pub fn param(&self, name: &str) -> Option<&str> {
        let found = self.params.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// Finds out what a request is about.
pub type Look = Arc<dyn Fn(&Request<'_>) -> Result<Target, Refusal> + Send + Sync>;

/// Where in a request stands what it is about.
#[derive(Clone)]
#[non_exhaustive]
pub enum Space {
    /// About the daemon as a whole.
    Whole,
    /// About what the caller may see; the handler leaves out the rest.
    Own,
    /// The lock's name is the path's `{name}`.
    Name,
    /// The namespace is the path's `{namespace}`.
    Namespace,
    /// The lock's name is the field `name` of the JSON body.
    BodyName,
    /// Always this namespace.
    Fixed(&'static str),
    /// As this says.
    Look(Look),
}

impl Space {
    /// As this function says; an error is the answer.
    pub fn look(look: impl Fn(&Request<'_>) -> Result<Target, Refusal> + Send + Sync + 'static) -> Self {
        Self::Look(Arc::new(look))
    }

    /// What this request is about.
    ///
    /// # Errors
    /// It cannot be found out: the request makes no sense.
    pub(crate) fn target(&self, request: &Request<'_>) -> Result<Target, Refusal> {
        match self {
            Self::Whole => Ok(Target::Whole),
            Self::Own => Ok(Target::Own),
            Self::Name => Ok(Target::Name(Name::new(
                request.param("name").unwrap_or_default(),
            )?)),
            Self::Namespace => Ok(Target::Namespace(
                request.param("namespace").unwrap_or_default().to_owned(),
            )),
            Self::BodyName => {
                #[derive(serde::Deserialize)]
                struct Named {
                    name: String,
                }
                let named: Named = crate::document::read(request.body)?;
                Ok(Target::Name(Name::new(&named.name)?))
            }
            Self::Fixed(namespace) => Ok(Target::Namespace((*namespace).to_owned())),
            Self::Look(look) => look(request),
        }
    }
}

impl fmt::Debug for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Whole => "whole",
            Self::Own => "own",
            Self::Name => "name",
            Self::Namespace => "namespace",
            Self::BodyName => "name in the body",
            Self::Fixed(namespace) => namespace,
            Self::Look(_) => "looked up",
        })
    }
}

/// Out of which budget a request is paid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Budget {
    /// The caller's rate.
    Asking,
    /// What is reserved for renewals and releases: a flood of acquires cannot use it up.
    Keeping,
}

/// What a route demands.
#[derive(Debug, Clone)]
pub struct Rule {
    /// The least role; none for routes that are open to everybody.
    pub role: Option<Role>,
    /// On what.
    pub space: Space,
    /// Paid out of.
    pub budget: Budget,
    /// Someone without the right is told that there is nothing, not that it is forbidden.
    pub hidden: bool,
    /// The longest body, if it may be longer than the daemon's own limit.
    pub body: Option<usize>,
}

impl Rule {
    /// This role on that.
    #[must_use]
    pub fn new(role: Role, space: Space) -> Self {
        Self {
            role: Some(role),
            space,
            budget: Budget::Asking,
            hidden: false,
            body: None,
        }
    }

    /// Open to everybody, without an identity.
    #[must_use]
    pub fn open() -> Self {
        Self {
            role: None,
            space: Space::Whole,
            budget: Budget::Asking,
            hidden: false,
            body: None,
        }
    }

    /// Paid out of the budget for renewals and releases.
    #[must_use]
    pub fn keeping(mut self) -> Self {
        self.budget = Budget::Keeping;
        self
    }

    /// A body may be as long as this.
    #[must_use]
    pub fn body(mut self, longest: usize) -> Self {
        self.body = Some(longest);
        self
    }

    /// To those without the right, there is nothing there.
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
    /// Declares one.
    pub fn declare(&mut self, method: &Method, path: &str, rule: Rule) {
        self.0
            .entry(path.to_owned())
            .or_default()
            .insert(method.to_string(), rule);
    }

    /// The rule of a route.
    #[must_use]
    pub fn of(&self, method: &Method, path: &str) -> Option<&Rule> {
        // Where there is GET there is HEAD.
        let method = if *method == Method::HEAD {
            "GET"
        } else {
            method.as_str()
        };
        self.0.get(path)?.get(method)
    }

    /// The methods that a path takes; `None` if nothing is declared for it.
    #[must_use]
    pub fn methods(&self, path: &str) -> Option<String> {
        let methods = self.0.get(path)?;
        Some(methods.keys().cloned().collect::<Vec<_>>().join(", "))
    }

    /// Every route: method, path, rule.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str, &Rule)> {
        self.0.iter().flat_map(|(path, methods)| {
            methods
                .iter()
                .map(move |(method, rule)| (method.as_str(), path.as_str(), rule))
        })
    }
}
