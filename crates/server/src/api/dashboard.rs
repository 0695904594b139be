//! `GET /` and `/assets/…`: the embedded dashboard. Its source is `web/`; the committed build is in
//! `dashboard/`.
//!
//! The page contains no data, so it needs no identity; its script calls the API with the viewer's
//! identity. It may load its own script, style and icon, connect to its own origin, and nothing
//! else. Browsers revalidate the page on each visit and get 304 if it is unchanged. The assets
//! carry a content hash in their URL and are cached for good.

use axum::extract::RawQuery;
use axum::response::{IntoResponse, Response};
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use http::{HeaderMap, HeaderValue, StatusCode};
use sha2::{Digest, Sha256};

// Trusted types: scripts cannot turn text into markup, except through the policy of the framework.
const PAGE_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
     require-trusted-types-for 'script'; trusted-types svelte-trusted-html";

/// An embedded file of the build.
struct EmbeddedFile {
    kind: &'static str,
    bytes: &'static [u8],
}

static PAGE: EmbeddedFile =
    EmbeddedFile { kind: "text/html; charset=utf-8", bytes: include_bytes!("../../dashboard/index.html") };
static SCRIPT: EmbeddedFile = EmbeddedFile {
    kind: "text/javascript; charset=utf-8",
    bytes: include_bytes!("../../dashboard/assets/app.js"),
};
static STYLE: EmbeddedFile =
    EmbeddedFile { kind: "text/css; charset=utf-8", bytes: include_bytes!("../../dashboard/assets/app.css") };
static ICON: EmbeddedFile =
    EmbeddedFile { kind: "image/svg+xml", bytes: include_bytes!("../../dashboard/assets/icon.svg") };

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

impl EmbeddedFile {
    /// The first 16 hex digits of the SHA-256, as the build puts them into the URL.
    fn content_hash(&self) -> String {
        let hash = Sha256::digest(self.bytes);
        hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }

    fn respond(&self, headers: &HeaderMap, query: Option<&str>) -> Response {
        let sum = self.content_hash();
        let tag = format!("\"{sum}\"");
        // A URL with the content hash can never refer to other content, so it may be cached for
        // good.
        let named = query.and_then(|query| query.strip_prefix("v=")) == Some(sum.as_str());
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
