//! The one way in: every request passes here, in this order, before a handler sees it.
//!
//! Not from a foreign page; a route that was declared; an identity; within its rate; a body within its limits; a right on
//! what the request is about. What is missing is answered here, and nothing has happened then.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::extract::{FromRequestParts, MatchedPath, RawPathParams, Request as HttpRequest, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use http::header::AUTHORIZATION;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use leasehold::clock::until;

use super::{Grant, Principal, Request, Rule, Rules, browser};
use crate::app::App;
use crate::peer::Peer;
use crate::problem::Refusal;

/// What the gate works with.
#[derive(Debug, Clone)]
pub(crate) struct Gate {
    pub(crate) app: Arc<App>,
    pub(crate) rules: Arc<Rules>,
}

/// The middleware.
pub(crate) async fn pass(State(gate): State<Gate>, request: HttpRequest, next: Next) -> Response {
    let app = Arc::clone(&gate.app);
    let id = format!("{:016x}", app.random.bits());
    let method = request.method().clone();
    let route = request
        .extensions()
        .get::<MatchedPath>()
        .map_or("(none)", MatchedPath::as_str)
        .to_owned();
    let started = app.clock.now();
    // Boxed, so that a request that waits for an hour does not carry what letting it in took.
    let (who, mut response) = match Box::pin(gate.admit(request, &route)).await {
        Ok((who, request)) => {
            // A defect in a handler is one request's, not the connection's, and says nothing to the outside.
            let handled = AssertUnwindSafe(next.run(request)).catch_unwind().await;
            let response = handled.unwrap_or_else(|_| {
                tracing::error!(route, request = id, "a handler panicked");
                Refusal::new(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "internal",
                    "something went wrong in the daemon; its log has more under the request id",
                )
                .into_response()
            });
            (who.id().to_owned(), response)
        }
        Err(refusal) => ("-".to_owned(), refusal.into_response()),
    };
    let took = app.clock.now().since(started);
    // The route, not the path: names belong to their namespaces, also in logs.
    tracing::debug!(
        %method, route, status = response.status().as_u16(), who, request = id, took = ?took,
        "request"
    );
    dress(response.headers_mut(), &id);
    response
}

/// What every answer carries.
fn dress(headers: &mut HeaderMap, id: &str) {
    if let Ok(id) = HeaderValue::from_str(id) {
        headers.insert("x-request-id", id);
    }
    for (name, value) in [
        ("cache-control", "no-store"),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("x-frame-options", "DENY"),
    ] {
        headers
            .entry(name)
            .or_insert_with(|| HeaderValue::from_static(value));
    }
    headers.entry("content-security-policy").or_insert_with(|| {
        HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'; base-uri 'none'")
    });
}

impl Gate {
    async fn admit(&self, request: HttpRequest, route: &str) -> Result<(Principal, HttpRequest), Refusal> {
        let (mut parts, body) = request.into_parts();
        // With certificates, TLS has asked who it is: a page cannot show one that its browser was not given.
        browser::check(&parts, self.app.tokens.is_none() && !self.app.config.mutual())?;
        let rule = self.rule(&parts, route)?;
        let who = match rule {
            Some(rule) if rule.role.is_some() => self.identify(&parts)?,
            _ => Principal::nobody(),
        };
        let hurry = parts.extensions.get::<Peer>().and_then(|peer| peer.hurry);
        let who = who.in_passing(hurry.is_some());
        if let Some(rule) = rule {
            self.app
                .limits
                .take(who.id(), rule.budget, self.app.clock.now())
                .map_err(|wait| {
                    Refusal::new(
                        StatusCode::TOO_MANY_REQUESTS,
                        "rate_limited",
                        "you ask more often than this daemon allows; come again later",
                    )
                    .retry_after(wait)
                })?;
        }
        let own = rule.and_then(|rule| rule.body).unwrap_or(0);
        let body = self.read(body, own, hurry).await?;
        if let Some(rule) = rule {
            self.authorize(&mut parts, &body, rule, &who).await?;
        }
        parts.extensions.insert(who.clone());
        Ok((who, HttpRequest::from_parts(parts, Body::from(body))))
    }

    /// The route's rule; `None` if there is no such route, which the router says itself.
    fn rule(&self, parts: &Parts, route: &str) -> Result<Option<&Rule>, Refusal> {
        if parts.extensions.get::<MatchedPath>().is_none() {
            return Ok(None);
        }
        if let Some(rule) = self.rules.of(&parts.method, route) {
            return Ok(Some(rule));
        }
        match self.rules.methods(route) {
            Some(methods) => Err(Refusal::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "method_not_allowed",
                format!("this path takes {methods}"),
            )
            .allow(methods)),
            None => Err(Refusal::new(
                StatusCode::FORBIDDEN,
                "forbidden",
                "nobody has said who may use this route, so nobody may",
            )),
        }
    }

    fn identify(&self, parts: &Parts) -> Result<Principal, Refusal> {
        let Some(tokens) = &self.app.tokens else {
            if !self.app.config.mutual() {
                return Ok(Principal::local());
            }
            // Without a file that says more, every certificate that the authority has signed may do everything.
            let name = parts.extensions.get::<Peer>().and_then(|peer| peer.names.first());
            return name
                .map(|name| Principal::new(&format!("san:{name}"), [Grant::everything()]))
                .ok_or_else(|| Refusal::unauthorized("your certificate has no name (SAN)"));
        };
        if let Some(value) = parts.headers.get(AUTHORIZATION) {
            // A token that is wrong is not a certificate that is right.
            return value
                .to_str()
                .ok()
                .and_then(bearer)
                .and_then(|token| tokens.find(token))
                .ok_or_else(|| Refusal::unauthorized("this API token is not known here, or has expired"));
        }
        let peer = parts.extensions.get::<Peer>();
        peer.and_then(|peer| tokens.find_client(&peer.names))
            .ok_or_else(|| {
                Refusal::unauthorized(
                    "who are you? send `authorization: Bearer lk_…`, or a client certificate",
                )
            })
    }

    async fn read(&self, body: Body, own: usize, hurry: Option<Duration>) -> Result<Vec<u8>, Refusal> {
        let (app, limit) = (&self.app, self.app.config.body_limit.max(own));
        let patience = app.config.body_timeout;
        let end = app.clock.now() + hurry.map_or(patience, |hurry| hurry.min(patience));
        let too_large = || {
            Refusal::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                "too_large",
                format!("a body has at most {limit} bytes"),
            )
        };
        // Announced: not worth waiting for.
        if usize::try_from(body.size_hint().lower()).map_or(true, |announced| announced > limit) {
            return Err(too_large());
        }
        let reading = Limited::new(body, limit).collect();
        match until(&*app.clock, end, reading).await {
            Some(Ok(body)) => Ok(body.to_bytes().into()),
            Some(Err(error)) if error.downcast_ref::<LengthLimitError>().is_some() => Err(too_large()),
            Some(Err(_)) => Err(Refusal::new(
                StatusCode::BAD_REQUEST,
                "bad_request",
                "the body was cut off",
            )),
            None => Err(Refusal::new(
                StatusCode::REQUEST_TIMEOUT,
                "request_timeout",
                "the body did not come in time",
            )),
        }
    }

    async fn authorize(
        &self,
        parts: &mut Parts,
        body: &[u8],
        rule: &Rule,
        who: &Principal,
    ) -> Result<(), Refusal> {
        let Some(role) = rule.role else { return Ok(()) };
        let params = RawPathParams::from_request_parts(parts, &())
            .await
            .map_err(|_| Refusal::new(StatusCode::BAD_REQUEST, "bad_request", "the path is not UTF-8"))?;
        let params: Vec<_> = params
            .iter()
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect();
        let target = rule.space.target(&Request {
            parts,
            params: &params,
            body,
        })?;
        if who.may(role, &target) {
            Ok(())
        } else if rule.hidden {
            Err(Refusal::not_found("there is nothing at this path"))
        } else {
            Err(Refusal::forbidden(role.as_str()))
        }
    }
}

fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}
