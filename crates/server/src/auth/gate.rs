//! The middleware that every request passes before its handler runs.
//!
//! In this order it checks the origin, the route's rule, the caller's identity, its rate, the right
//! as far as the head names the target, the body's limits, and the right on a target that the body
//! names. A failed check is answered here, and the handler has not run.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::extract::{FromRequestParts, MatchedPath, RawPathParams, Request as HttpRequest, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use http::header::{AUTHORIZATION, CONNECTION};
use http::request::Parts;
use http::{Extensions, HeaderMap, HeaderValue};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use leasehold::clock::run_until;
use leasehold_wire::ErrorCode;

use super::admission::Credential;
use super::response_share::{check_responses, count_response};
use super::{AuthRequest, Budget, Principal, Right, Rule, Rules, Target};
use crate::problem::Refusal;
use crate::state::app::App;
use crate::state::shares::Share;
use crate::transport::browser;
use crate::transport::connection::RESERVED_REQUEST_TIMEOUT;
use crate::transport::peer::Peer;

/// The state of the middleware.
#[derive(Debug, Clone)]
pub(crate) struct AuthMiddleware {
    pub(crate) app: Arc<App>,
    pub(crate) rules: Arc<Rules>,
}

/// A request that may run.
struct AdmittedRequest {
    who: Principal,
    request: HttpRequest,
    /// The identity has more connections than its share: this one is closed after the response.
    crowded: bool,
    body_share: Share,
    /// The route's responses are small (`Rule::small_responses`).
    small_responses: bool,
}

/// Admits a request, runs the handler, and adds the common response headers.
pub(crate) async fn middleware(
    State(gate): State<AuthMiddleware>,
    request: HttpRequest,
    next: Next,
) -> Response {
    let app = Arc::clone(&gate.app);
    // From the injected randomness, so that simulated runs repeat exactly.
    let id = format!("{:016x}", app.random.bits());
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().map_or("(none)", MatchedPath::as_str).to_owned();
    let started = app.clock.now();
    // Boxed: a long poll would otherwise carry the state of admission for its whole wait.
    let (who, mut response) = match Box::pin(gate.admit(request, &route)).await {
        // The share of the request's body is held until the response is made: handlers keep the body.
        Ok(AdmittedRequest { who, request, crowded, body_share: _body_share, small_responses }) => {
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
            let mut response = response;
            if crowded {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            // Open routes answer with what is in memory anyway, or with a few bytes.
            if !who.is_anonymous() {
                response = count_response(&app, who.id(), &method, small_responses, response).await;
            }
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

impl AuthMiddleware {
    async fn admit(&self, request: HttpRequest, route: &str) -> Result<AdmittedRequest, Refusal> {
        let (mut parts, body) = request.into_parts();
        let (rule, who) = match self.recognize(&parts, route) {
            Ok(recognized) => recognized,
            // A refusal must not be cheaper for a stranger than an open route.
            Err(refusal) => {
                return Err(self.charge_address(&parts, Budget::Requests).err().unwrap_or(refusal));
            }
        };
        let peer = parts.extensions.get::<Peer>();
        // Nothing waits on a connection beyond the identity's share, and it is closed after this request.
        let crowded = rule.is_some_and(|rule| rule.right.is_some())
            && peer.is_some_and(|peer| !peer.is_in_share(who.id(), &self.app.identified_connections));
        let hurry =
            peer.and_then(|peer| peer.reserved_timeout).or(crowded.then_some(RESERVED_REQUEST_TIMEOUT));
        let who = who.on_reserved_connection(hurry.is_some());
        match rule {
            Some(rule) if rule.right.is_some() => {
                let taken = self.app.limits.take(who.id(), rule.budget, self.app.clock.now());
                taken.map_err(too_many_requests)?;
            }
            Some(rule) => self.charge_address(&parts, rule.budget)?,
            None => self.charge_address(&parts, Budget::Requests)?,
        }
        // A body costs memory and time, so everything that the head can tell is checked before it.
        if let Some(rule) = rule {
            self.authorize_head(&mut parts, rule, &who).await?;
            check_responses(&self.app, rule, &who)?;
        }
        let own = rule.and_then(|rule| rule.max_body).unwrap_or(0);
        let (body, body_share) = self.read_body(body, own, hurry, who.id()).await?;
        if let Some(rule) = rule.filter(|rule| rule.target.needs_body()) {
            self.authorize(&mut parts, &body, rule, &who).await?;
        }
        // A request that lasts is checked again by the same right.
        let who = match (rule, parts.extensions.get::<Target>()) {
            (Some(rule), Some(target)) => who.admitted_by(rule, target),
            _ => who,
        };
        parts.extensions.insert(who.clone());
        let request = HttpRequest::from_parts(parts, Body::from(body));
        let small_responses = rule.is_some_and(|rule| rule.small_responses);
        Ok(AdmittedRequest { who, request, crowded, body_share, small_responses })
    }

    /// The route's rule, and the caller as far as the rule needs to know it.
    fn recognize(&self, parts: &Parts, route: &str) -> Result<(Option<&Rule>, Principal), Refusal> {
        // With a tokens file or client certificates the daemon may have a public name.
        let config = &self.app.config;
        browser::check_origin(parts, config.tokens.is_none() && !config.accepts_client_certs())?;
        let rule = self.find_rule(parts, route)?;
        if rule.is_none_or(|rule| rule.right.is_none()) {
            return Ok((rule, Principal::anonymous()));
        }
        let who = self.identify(parts)?;
        if let Some(peer) = parts.extensions.get::<Peer>() {
            peer.set_identified();
        }
        Ok((rule, who))
    }

    /// Charges a request without an identity to the budget of its peer's address.
    fn charge_address(&self, parts: &Parts, budget: Budget) -> Result<(), Refusal> {
        let (limits, now) = (&self.app.limits, self.app.clock.now());
        let taken = match parts.extensions.get::<Peer>().and_then(|peer| peer.address) {
            Some(from) => limits.take_unidentified(from, budget, now),
            None => limits.take(Principal::anonymous().id(), budget, now),
        };
        taken.map_err(|wait| too_many_requests(wait).close())
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
            return Ok(Principal::local());
        };
        if let Some(token) = bearer_token(&parts.headers) {
            // A wrong token is refused even when the certificate is good. Falling back would hide
            // the mistake.
            let credential = token.and_then(Credential::from_token);
            return credential
                .and_then(|credential| tokens.identify(&credential))
                .ok_or_else(|| Refusal::unauthorized("this API token is not known here, or has expired"));
        }
        let certificate = parts.extensions.get::<Peer>().and_then(|peer| peer.certificate.clone());
        let Some((certificate, name)) = certificate.and_then(|certificate| {
            let name = certificate.names.first().cloned()?;
            Some((certificate, name))
        }) else {
            return Err(Refusal::unauthorized(if self.app.config.owner_token.is_some() {
                "only the user who started this daemon may use it: send `authorization: Bearer lk_…` with the token in \
                 $XDG_STATE_HOME/leasehold/tokens (~/.local/state without it), or start the daemon with --tokens"
            } else {
                "the request carries no credentials: send `authorization: Bearer lk_…`, or a client certificate"
            }));
        };
        if !certificate.is_trusted() {
            return Err(Refusal::unauthorized(
                "the authority of this client certificate was removed from the daemon's file, or it has expired",
            ));
        }
        // Unknown names never become a principal, so rate limits know configured identities only.
        tokens.identify(&Credential::Certificate(certificate)).ok_or_else(|| {
            Refusal::new(
                ErrorCode::Forbidden,
                format!(
                    "the certificate of {name} has no rights here: add `[[client]]`, `san = {name:?}` and \
                     `grants = [\"read:*\"]` to the file of --tokens"
                ),
            )
        })
    }

    async fn read_body(
        &self,
        body: Body,
        own: usize,
        reserved_timeout: Option<Duration>,
        who: &str,
    ) -> Result<(Vec<u8>, Share), Refusal> {
        let (app, limit) = (&self.app, self.app.config.body_limit.max(own));
        let timeout = app.config.body_timeout;
        let end = app.clock.now()
            + reserved_timeout.map_or(timeout, |reserved_timeout| reserved_timeout.min(timeout));
        let too_large = || Refusal::new(ErrorCode::TooLarge, format!("a body has at most {limit} bytes"));
        // Refuse by the announced length, before reading a body that is too large.
        if usize::try_from(body.size_hint().lower()).map_or(true, |announced| announced > limit) {
            return Err(too_large());
        }
        let mut body = Limited::new(body, limit);
        let reading = async {
            let (mut bytes, mut share) = (Vec::new(), app.body_bytes.empty_share(who));
            while let Some(frame) = body.frame().await {
                let frame = frame.map_err(|error| match error.downcast_ref::<LengthLimitError>() {
                    Some(_) => too_large(),
                    None => Refusal::new(ErrorCode::BadRequest, "the body was cut off"),
                })?;
                let Ok(data) = frame.into_data() else { continue };
                // Counted as it arrives: an announced length costs nothing, and must not lock others out.
                if !share.grow(data.len()) {
                    return Err(too_many_bodies());
                }
                bytes.extend_from_slice(&data);
            }
            Ok((bytes, share))
        };
        run_until(&*app.clock, end, reading)
            .await
            .unwrap_or_else(|| Err(Refusal::new(ErrorCode::RequestTimeout, "the body did not come in time")))
    }

    /// Checks the right before the body is read. If the body names the target, the caller must at
    /// least have the right on something.
    async fn authorize_head(&self, parts: &mut Parts, rule: &Rule, who: &Principal) -> Result<(), Refusal> {
        if !rule.target.needs_body() {
            return self.authorize(parts, &[], rule, who).await;
        }
        match rule.right {
            Some(right) if !rule.admits(who, &Target::Visible) => Err(refuse_right(rule, right)),
            _ => Ok(()),
        }
    }

    async fn authorize(
        &self,
        parts: &mut Parts,
        body: &[u8],
        rule: &Rule,
        who: &Principal,
    ) -> Result<(), Refusal> {
        let Some(right) = rule.right else { return Ok(()) };
        let params = RawPathParams::from_request_parts(parts, &())
            .await
            .map_err(|_| Refusal::new(ErrorCode::BadRequest, "the path is not UTF-8"))?;
        let params: Vec<_> = params.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        let mut documents = Extensions::new();
        let request = AuthRequest { app: &self.app, who, parts, params: &params, body };
        let target = rule.target.resolve(&request, &mut documents)?;
        if rule.admits(who, &target) {
            parts.extensions.extend(documents);
            parts.extensions.insert(target);
            Ok(())
        } else {
            Err(refuse_right(rule, right))
        }
    }
}

fn refuse_right(rule: &Rule, right: Right) -> Refusal {
    match rule.hidden {
        Some(text) => Refusal::not_found(text),
        None => Refusal::forbidden(right.as_str()),
    }
}

fn too_many_requests(wait: Duration) -> Refusal {
    Refusal::new(ErrorCode::RateLimited, "this client exceeds the request rate of this daemon; retry later")
        .retry_after(wait)
}

fn too_many_bodies() -> Refusal {
    Refusal::new(
        ErrorCode::TooManyBodies,
        "the request bodies that arrive at this moment are too much in sum, or those of this client; retry later",
    )
    .retry_after(Duration::from_secs(1))
    // The rest of the body is not read.
    .close()
}

/// The bearer token of the request; `Some(None)` if the header is there but holds none.
pub(crate) fn bearer_token(headers: &HeaderMap) -> Option<Option<&str>> {
    let value = headers.get(AUTHORIZATION)?;
    let token = value.to_str().ok().and_then(|value| {
        let (scheme, token) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
    });
    Some(token)
}
