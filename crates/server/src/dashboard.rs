//! `GET /` and `/assets/…`: the dashboard, embedded. Its source is `web/`; what is embedded is its build, committed in `dashboard/`.
//!
//! The page itself shows nothing that is anyone's: it is open to everybody, and asks the API as whoever looks. It may load its own
//! script, style and icon, talk to its own origin, and nothing else. The page is asked for anew each time and answered with 304 if
//! it is the same; its parts are named with a number made of their bytes, and are kept for good under that name.

use axum::extract::RawQuery;
use axum::response::{IntoResponse, Response};
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use http::{HeaderMap, HeaderValue, StatusCode};
use sha2::{Digest, Sha256};

/// What a page of ours may do. Scripts cannot make markup out of text, except by the framework's own policy.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
     require-trusted-types-for 'script'; trusted-types svelte-trusted-html";

/// A file of the build.
struct File {
    kind: &'static str,
    bytes: &'static [u8],
}

static PAGE: File = File {
    kind: "text/html; charset=utf-8",
    bytes: include_bytes!("../dashboard/index.html"),
};
static SCRIPT: File = File {
    kind: "text/javascript; charset=utf-8",
    bytes: include_bytes!("../dashboard/assets/app.js"),
};
static STYLE: File = File {
    kind: "text/css; charset=utf-8",
    bytes: include_bytes!("../dashboard/assets/app.css"),
};
static ICON: File = File {
    kind: "image/svg+xml",
    bytes: include_bytes!("../dashboard/assets/icon.svg"),
};

/// The page.
pub(crate) async fn page(headers: HeaderMap) -> Response {
    PAGE.answer(&headers, None)
}

/// Its script.
pub(crate) async fn script(headers: HeaderMap, RawQuery(query): RawQuery) -> Response {
    SCRIPT.answer(&headers, query.as_deref())
}

/// Its style.
pub(crate) async fn style(headers: HeaderMap, RawQuery(query): RawQuery) -> Response {
    STYLE.answer(&headers, query.as_deref())
}

/// Its icon.
pub(crate) async fn icon(headers: HeaderMap, RawQuery(query): RawQuery) -> Response {
    ICON.answer(&headers, query.as_deref())
}

impl File {
    /// The first 16 hex digits of its SHA-256, as the build names it.
    fn sum(&self) -> String {
        let hash = Sha256::digest(self.bytes);
        hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }

    fn answer(&self, headers: &HeaderMap, query: Option<&str>) -> Response {
        let sum = self.sum();
        let tag = format!("\"{sum}\"");
        // Under its own number it can never be another file.
        let named = query.and_then(|query| query.strip_prefix("v=")) == Some(sum.as_str());
        let keep = if named {
            "public, max-age=31536000, immutable"
        } else {
            "no-cache"
        };
        let mut response = if headers.get(IF_NONE_MATCH).is_some_and(|known| *known == *tag) {
            StatusCode::NOT_MODIFIED.into_response()
        } else {
            ([(CONTENT_TYPE, HeaderValue::from_static(self.kind))], self.bytes).into_response()
        };
        let dress = response.headers_mut();
        dress.insert(CACHE_CONTROL, HeaderValue::from_static(keep));
        dress.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
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
    fn the_page_names_its_parts_by_their_bytes_and_has_nothing_inline_or_from_elsewhere() {
        let page = std::str::from_utf8(PAGE.bytes).unwrap();
        for (path, file) in [
            ("/assets/app.js", &SCRIPT),
            ("/assets/app.css", &STYLE),
            ("/assets/icon.svg", &ICON),
        ] {
            assert!(
                page.contains(&format!("\"{path}?v={}\"", file.sum())),
                "{path}: {page}"
            );
        }
        for forbidden in ["://", "<style", " style=", "onload="] {
            assert!(!page.contains(forbidden), "{forbidden} in {page}");
        }
        assert!(
            !page
                .replace("<script type=\"module\" crossorigin src=", "")
                .contains("<script")
        );
    }
}
