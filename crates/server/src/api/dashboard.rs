//! `GET /` and `/assets/…`: the embedded dashboard; `POST /v1/dashboard/…`: a session for its page. Its source is `web/`; the committed build is in
//! `dashboard/`.
//!
//! The page contains no data, so it needs no identity; its script calls the API with the viewer's
//! identity. It may load its own script, style and icon, connect to its own origin, and nothing
//! else. Browsers revalidate the page on each visit and get 304 if it is unchanged. The assets
//! carry a content hash in their URL and are cached for good.
//!
//! A caller with a token can make a one-time code for it. The link to the dashboard carries the code in
//! its fragment, which browsers do not send, and the page exchanges it for the token. There are no
//! cookies, so no other page can use the session.

use std::sync::{Arc, OnceLock};

use axum::extract::{RawQuery, State};
use axum::response::{IntoResponse, Response};
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use http::{HeaderMap, HeaderValue, StatusCode};
use leasehold_wire::{ErrorCode, Problem, Secret, millis};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use utoipa::ToSchema;

use crate::api::document::{Caller, JsonBody};
use crate::api::problem::Refusal;
use crate::auth::dashboard_code::DASHBOARD_CODE_LIFETIME;
use crate::auth::gate::bearer_token;
use crate::state::app::App;

// Trusted types: scripts cannot turn text into markup, except through the policy of the framework.
const PAGE_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
     require-trusted-types-for 'script'; trusted-types svelte-trusted-html";

/// An embedded file of the build.
struct EmbeddedFile {
    kind: &'static str,
    bytes: &'static [u8],
    content_hash: OnceLock<String>,
}

static PAGE: EmbeddedFile =
    EmbeddedFile::new("text/html; charset=utf-8", include_bytes!("../../dashboard/index.html"));
static SCRIPT: EmbeddedFile =
    EmbeddedFile::new("text/javascript; charset=utf-8", include_bytes!("../../dashboard/assets/app.js"));
static STYLE: EmbeddedFile =
    EmbeddedFile::new("text/css; charset=utf-8", include_bytes!("../../dashboard/assets/app.css"));
static ICON: EmbeddedFile =
    EmbeddedFile::new("image/svg+xml", include_bytes!("../../dashboard/assets/icon.svg"));

pub(crate) async fn page(headers: HeaderMap) -> Response {
    PAGE.respond(&headers, None)
}

pub(crate) async fn script(headers: HeaderMap, RawQuery(query): RawQuery) -> Response {
    SCRIPT.respond(&headers, query.as_deref())
}

pub(crate) async fn style(headers: HeaderMap, RawQuery(query): RawQuery) -> Response {
    STYLE.respond(&headers, query.as_deref())
}

pub(crate) async fn icon(headers: HeaderMap, RawQuery(query): RawQuery) -> Response {
    ICON.respond(&headers, query.as_deref())
}

/// A code that opens the dashboard once.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = DashboardCode)]
pub(crate) struct DashboardCodeView {
    /// Open `/#code=<code>` in a browser.
    #[schema(value_type = String)]
    code: Secret,
    /// How long it can be used.
    expires_ms: u64,
}

/// The code that a page was opened with.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = DashboardSessionRequest)]
pub(crate) struct SessionRequest {
    #[schema(value_type = String, max_length = 64)]
    code: Secret,
}

/// The token that the code stands for.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = DashboardSession)]
pub(crate) struct SessionView {
    #[schema(value_type = String)]
    token: Secret,
}

/// Make a link to the dashboard
///
/// The code stands for the token of this request. It works once, within ten minutes.
#[utoipa::path(
    post, path = "/v1/dashboard/codes", tag = "daemon", operation_id = "makeDashboardCode",
    responses(
        (status = 200, description = "A code", body = DashboardCodeView),
        (status = 422, description = "The caller is not identified by a token", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn make_code(
    State(app): State<Arc<App>>,
    Caller(who): Caller,
    headers: HeaderMap,
) -> Result<JsonBody<DashboardCodeView>, Refusal> {
    let token = bearer_token(&headers).flatten().filter(|_| app.tokens.is_some()).ok_or_else(|| {
        let why = "a code stands for an API token, and this request was not identified by one";
        Refusal::new(ErrorCode::Unsupported, why)
    })?;
    let code = app.dashboard_codes.make(who.id(), token, &*app.random, app.clock.now());
    Ok(JsonBody(DashboardCodeView { code: Secret::new(code), expires_ms: millis(DASHBOARD_CODE_LIFETIME) }))
}

/// Open the dashboard with a code
///
/// Needs no identity: the code is one, and works once.
#[utoipa::path(
    post, path = "/v1/dashboard/session", tag = "daemon", operation_id = "openDashboardSession",
    request_body = SessionRequest,
    responses(
        (status = 200, description = "The token that the code stands for", body = SessionView),
        (status = 401, description = "The code is not known, was used, or has expired", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn open_session(
    State(app): State<Arc<App>>,
    JsonBody(SessionRequest { code }): JsonBody<SessionRequest>,
) -> Result<JsonBody<SessionView>, Refusal> {
    let token = app.dashboard_codes.exchange(code.expose(), app.clock.now()).ok_or_else(|| {
        Refusal::unauthorized(
            "this link to the dashboard was used or has expired: `leasehold dashboard` prints a new one",
        )
    })?;
    Ok(JsonBody(SessionView { token }))
}

/// The link that opens the dashboard of this daemon with a one-time code.
#[must_use]
pub fn dashboard_url(daemon: &str, code: &str) -> String {
    format!("{daemon}/#code={code}")
}

impl EmbeddedFile {
    const fn new(kind: &'static str, bytes: &'static [u8]) -> Self {
        Self { kind, bytes, content_hash: OnceLock::new() }
    }

    /// The first 16 hex digits of the SHA-256, as the build puts them into the URL. Computed once:
    /// callers need no identity, and a digest per request would cost them nothing.
    fn content_hash(&self) -> &str {
        self.content_hash.get_or_init(|| {
            let hash = Sha256::digest(self.bytes);
            hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
        })
    }

    fn respond(&self, headers: &HeaderMap, query: Option<&str>) -> Response {
        let sum = self.content_hash();
        let tag = format!("\"{sum}\"");
        // A URL with the content hash can never refer to other content, so it may be cached for
        // good.
        let named = query.and_then(|query| query.strip_prefix("v=")) == Some(sum);
        let keep = if named { "public, max-age=31536000, immutable" } else { "no-cache" };
        let mut response = if headers.get(IF_NONE_MATCH).is_some_and(|known| *known == *tag) {
            StatusCode::NOT_MODIFIED.into_response()
        } else {
            ([(CONTENT_TYPE, HeaderValue::from_static(self.kind))], self.bytes).into_response()
        };
        let dress = response.headers_mut();
        dress.insert(CACHE_CONTROL, HeaderValue::from_static(keep));
        dress.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(PAGE_SECURITY_POLICY));
        if let Ok(tag) = HeaderValue::from_str(&tag) {
            dress.insert(ETAG, tag);
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assets_are_named_by_hash_and_nothing_is_inline_or_external() {
        let page = std::str::from_utf8(PAGE.bytes).unwrap();
        for (path, file) in
            [("/assets/app.js", &SCRIPT), ("/assets/app.css", &STYLE), ("/assets/icon.svg", &ICON)]
        {
            assert!(page.contains(&format!("\"{path}?v={}\"", file.content_hash())), "{path}: {page}");
        }
        for forbidden in ["://", "<style", " style=", "onload="] {
            assert!(!page.contains(forbidden), "{forbidden} in {page}");
        }
        assert!(!page.replace("<script type=\"module\" crossorigin src=", "").contains("<script"));
    }
}
