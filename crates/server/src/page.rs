//! `GET /`: what a person who follows the printed URL sees.

use axum::response::{IntoResponse, Response};
use http::HeaderValue;
use http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE};

const PAGE: &str = include_str!("page.html");

/// The landing page. No script, nothing from elsewhere, not to be framed.
pub(crate) async fn landing() -> Response {
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
        (
            CONTENT_SECURITY_POLICY,
            HeaderValue::from_static(
                "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
            ),
        ),
    ];
    (headers, PAGE).into_response()
}
