//! The middleware that every request passes before its handler runs.
//!
//! In this order it checks the origin, the route's rule, the caller's identity, its rate, the
//! body's limits, and the right on the request's target. A failed check is answered here, and the
//! handler has not run.

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
use http::{Extensions, HeaderMap, HeaderValue};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use leasehold::clock::run_until;
use leasehold_wire::ErrorCode;

use super::{AuthRequest, Grant, Principal, Rule, Rules};
use crate::problem::Refusal;
use crate::state::app::App;
use crate::transport::browser;
use crate::transport::peer::Peer;

/// The state of the middleware.
#[derive(Debug, Clone)]
pub(crate) struct Gate {
    pub(crate) app: Arc<App>,
    pub(crate) rules: Arc<Rules>,
}

/// Admits a request, runs the handler, and adds the common response headers.
pub(crate) async fn middleware(State(gate): State<Gate>, request: HttpRequest, next: Next) -> Response {
    let app = Arc::clone(&gate.app);
    // From the injected randomness, so that simulated runs repeat exactly.
    let id = format!("{:016x}", app.random.bits());
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().map_or("(none)", MatchedPath::as_str).to_owned();
    let started = app.clock.now();
    // Boxed: a long poll would otherwise carry the state of admission for its whole wait.
    let (who, mut response) = match Box::pin(gate.admit(request, &route)).await {
        Ok((who, request)) => {
            // A panic in a handler costs one request, not the connection, and reveals nothing to
            // the caller.
            let handled = AssertUnwindSafe(next.run(request)).catch_unwind().await;
            let response = handled.unwrap_or_else(|_| {
                tracing::error!(route, request = id, "a handler panicked");
                Refusal::new(
                    ErrorCode::Internal,
                    "something went wrong in the daemon; its log has more under the request id",
                )
                .into_response()
            });
            (who.id().to_owned(), response)
        }
        Err(refusal) => ("-".to_owned(), refusal.into_response()),
    };
    let took = app.clock.now().since(started);
    // Log the route, not the path: lock names are confidential to their namespace, also in logs.
    tracing::debug!(
        %method, route, status = response.status().as_u16(), who, request = id, took = ?took,
        "request"
    );
    add_common_headers(response.headers_mut(), &id);
    response
}

/// Adds the headers that every response carries, unless the handler has set them.
fn add_common_headers(headers: &mut HeaderMap, id: &str) {
    if let Ok(id) = HeaderValue::from_str(id) {
        headers.insert("x-request-id", id);
    }
    for (name, value) in [
        ("cache-control", "no-store"),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("x-frame-options", "DENY"),
    ] {
        headers.entry(name).or_insert_with(|| HeaderValue::from_static(value));
    }
    headers.entry("content-security-policy").or_insert_with(|| {
        HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'; base-uri 'none'")
    });
}

impl Gate {
    async fn admit(&self, request: HttpRequest, route: &str) -> Result<(Principal, HttpRequest), Refusal> {
        let (mut parts, body) = request.into_parts();
        // With client certificates TLS has identified the caller, and a page cannot use a
        // certificate that its browser does not have.
        browser::check_origin(&parts, self.app.tokens.is_none() && !self.app.config.requires_client_certs())?;
        let rule = self.find_rule(&parts, route)?;
        let who = match rule {
            Some(rule) if rule.role.is_some() => self.identify(&parts)?,
            _ => Principal::anonymous(),
        };
        let hurry = parts.extensions.get::<Peer>().and_then(|peer| peer.reserved_timeout);
        let who = who.on_reserved_connection(hurry.is_some());
        if let Some(rule) = rule {
            self.app.limits.take(who.id(), rule.budget, self.app.clock.now()).map_err(|wait| {
                Refusal::new(
                    ErrorCode::RateLimited,
                    "this client exceeds the request rate of this daemon; retry later",
                )
                .retry_after(wait)
            })?;
        }
        // After the rate limit: a body costs memory and time, a rate check does not. Before the
        // rights: a rule's target may be in the body.
        let own = rule.and_then(|rule| rule.max_body).unwrap_or(0);
        let body = self.read_body(body, own, hurry).await?;
        if let Some(rule) = rule {
            self.authorize(&mut parts, &body, rule, &who).await?;
        }
        parts.extensions.insert(who.clone());
        Ok((who, HttpRequest::from_parts(parts, Body::from(body))))
    }

    /// The route's rule. `None` if no such route exists, which the router reports itself.
    fn find_rule(&self, parts: &Parts, route: &str) -> Result<Option<&Rule>, Refusal> {
        if parts.extensions.get::<MatchedPath>().is_none() {
            return Ok(None);
        }
        if let Some(rule) = self.rules.find(&parts.method, route) {
            return Ok(Some(rule));
        }
        match self.rules.methods(route) {
            Some(methods) => {
                Err(Refusal::new(ErrorCode::MethodNotAllowed, format!("this path takes {methods}"))
                    .allow(methods))
            }
            None => Err(Refusal::new(
                ErrorCode::Forbidden,
                "no access rule covers this route, so no caller may use it",
            )),
        }
    }

    fn identify(&self, parts: &Parts) -> Result<Principal, Refusal> {
        let Some(tokens) = &self.app.tokens else {
            if !self.app.config.requires_client_certs() {
                return Ok(Principal::local());
            }
            // Without a tokens file, every certificate signed by the configured authority has all
            // rights.
            let name = parts.extensions.get::<Peer>().and_then(|peer| peer.names.first());
            return name
                .map(|name| Principal::new(&format!("san:{name}"), [Grant::everything()]))
                .ok_or_else(|| Refusal::unauthorized("your certificate has no name (SAN)"));
        };
        if let Some(value) = parts.headers.get(AUTHORIZATION) {
            // A wrong token is refused even when the certificate is good. Falling back would hide
            // the mistake.
            return value
                .to_str()
                .ok()
                .and_then(bearer_token)
                .and_then(|token| tokens.find(token))
                .ok_or_else(|| Refusal::unauthorized("this API token is not known here, or has expired"));
        }
        let peer = parts.extensions.get::<Peer>();
        peer.and_then(|peer| tokens.find_client(&peer.names)).ok_or_else(|| {
            Refusal::unauthorized("the request carries no credentials: send `authorization: Bearer lk_…`, or a client certificate")
        })
    }

    async fn read_body(
        &self,
        body: Body,
        own: usize,
        reserved_timeout: Option<Duration>,
    ) -> Result<Vec<u8>, Refusal> {
        let (app, limit) = (&self.app, self.app.config.body_limit.max(own));
        let timeout = app.config.body_timeout;
        let end = app.clock.now()
            + reserved_timeout.map_or(timeout, |reserved_timeout| reserved_timeout.min(timeout));
        let too_large = || Refusal::new(ErrorCode::TooLarge, format!("a body has at most {limit} bytes"));
        // Refuse by the announced length, before reading a body that is too large.
        if usize::try_from(body.size_hint().lower()).map_or(true, |announced| announced > limit) {
            return Err(too_large());
        }
        let reading = Limited::new(body, limit).collect();
        match run_until(&*app.clock, end, reading).await {
            Some(Ok(body)) => Ok(body.to_bytes().into()),
            Some(Err(error)) if error.downcast_ref::<LengthLimitError>().is_some() => Err(too_large()),
            Some(Err(_)) => Err(Refusal::new(ErrorCode::BadRequest, "the body was cut off")),
            None => Err(Refusal::new(ErrorCode::RequestTimeout, "the body did not come in time")),
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
            .map_err(|_| Refusal::new(ErrorCode::BadRequest, "the path is not UTF-8"))?;
        let params: Vec<_> = params.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        let mut documents = Extensions::new();
        let request = AuthRequest { app: &self.app, parts, params: &params, body };
        let target = rule.target.resolve(&request, &mut documents)?;
        if who.may(role, &target) {
            parts.extensions.extend(documents);
            parts.extensions.insert(target);
            Ok(())
        } else if rule.hidden {
            Err(Refusal::not_found("there is nothing at this path"))
        } else {
            Err(Refusal::forbidden(role.as_str()))
        }
    }
}

fn bearer_token(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}
