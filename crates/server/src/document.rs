//! What handlers take and give: a JSON document, a query, a name in the path; each refused with a problem of ours.

use axum::extract::{FromRequest, FromRequestParts, RawPathParams, Request};
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderValue, StatusCode};
use http_body_util::BodyExt;
use leasehold::Name;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::auth::Principal;
use crate::problem::Refusal;

/// A JSON document, coming or going.
#[derive(Debug)]
pub(crate) struct Doc<T>(pub T);

impl<T: Serialize> IntoResponse for Doc<T> {
    fn into_response(self) -> Response {
        match serde_json::to_vec(&self.0) {
            Ok(body) => {
                let kind = (CONTENT_TYPE, HeaderValue::from_static("application/json"));
                ([kind], body).into_response()
            }
            Err(_) => Refusal::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "internal",
                "the answer cannot be written as JSON; please report it",
            )
            .into_response(),
        }
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Doc<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, _: &S) -> Result<Self, Refusal> {
        let kind = request.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes);
        if !kind.is_some_and(is_json) {
            return Err(Refusal::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "unsupported_media_type",
                "the body must be JSON; send content-type: application/json",
            ));
        }
        // The gate has read it already, within its limits.
        let body = request.into_body().collect().await.map_err(|_| cut_off())?;
        read(&body.to_bytes()).map(Self)
    }
}

fn is_json(kind: &[u8]) -> bool {
    let kind = kind.split(|byte| *byte == b';').next().unwrap_or_default();
    kind.trim_ascii().eq_ignore_ascii_case(b"application/json")
}

/// Reads a document; says which field is wrong, without repeating what stands there: it may be a secret.
pub(crate) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    // A list would be taken for the fields of a document in their order.
    if body
        .trim_ascii_start()
        .first()
        .is_some_and(|first| b"[\"0123456789-tfn".contains(first))
    {
        serde_json::from_slice::<serde::de::IgnoredAny>(body).map_err(|error| no_json(&error))?;
        return Err(Refusal::invalid("body", "the body must be a JSON object"));
    }
    let mut reader = serde_json::Deserializer::from_slice(body);
    let document = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let (field, inner) = (error.path().to_string(), error.inner());
        match inner.classify() {
            serde_json::error::Category::Data => unusable(&field, inner),
            _ => no_json(inner),
        }
    })?;
    reader.end().map_err(|_| {
        Refusal::new(
            StatusCode::BAD_REQUEST,
            "bad_request",
            "something follows the JSON document; send one document",
        )
    })?;
    Ok(document)
}

fn no_json(error: &serde_json::Error) -> Refusal {
    Refusal::new(
        StatusCode::BAD_REQUEST,
        "bad_request",
        format!(
            "the body is not JSON: line {}, column {}",
            error.line(),
            error.column()
        ),
    )
}

/// A field that is known is named; one that is not may be a secret in the wrong place.
fn unusable(field: &str, error: &serde_json::Error) -> Refusal {
    let why = plain(error);
    if field == "." || why.starts_with("unknown field") || why.starts_with("missing field") {
        return Refusal::invalid("body", why);
    }
    Refusal::invalid(field, format!("{field}: {why}"))
}

/// What is wrong, without what was given: serde puts that between backquotes or quotes, after a word of its own.
fn plain(error: &serde_json::Error) -> String {
    let text = error.to_string();
    if let Some(rest) = text.strip_prefix("unknown field `") {
        let expected = rest.split_once("`, ").map_or("", |(_, expected)| expected);
        // Where it stands, not what: enough to find it.
        let place = match error.line() {
            0 => String::new(),
            line => format!(" (it ends at line {line}, column {})", error.column()),
        };
        return format!("unknown field{place}; {}", without_place(expected));
    }
    if text.starts_with("missing field") || text.starts_with("duplicate field") {
        return without_place(&text).to_owned();
    }
    match text.rsplit_once(", expected ") {
        Some((_, expected)) => format!("expected {}", without_place(expected)),
        None => "cannot be used".to_owned(),
    }
}

fn without_place(text: &str) -> &str {
    text.split_once(" at line ").map_or(text, |(text, _)| text)
}

fn cut_off() -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, "bad_request", "the body was cut off")
}

/// The query, field by field.
#[derive(Debug)]
pub(crate) struct Asked<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Asked<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        let mut fields = serde_json::Map::new();
        for (key, value) in pairs(parts.uri.query().unwrap_or_default())? {
            if fields.insert(key, serde_json::Value::String(value)).is_some() {
                return Err(Refusal::invalid("query", "a parameter is there twice"));
            }
        }
        let reader = serde_json::Value::Object(fields);
        serde_path_to_error::deserialize(reader)
            .map(Self)
            .map_err(|error| {
                let field = error.path().to_string();
                Refusal::invalid(&field, format!("{field}: {}", plain(error.inner())))
            })
    }
}

/// The pairs of a query, decoded.
fn pairs(query: &str) -> Result<Vec<(String, String)>, Refusal> {
    let decode = |text: &str| {
        let text = text.replace('+', " ");
        percent_encoding::percent_decode_str(&text)
            .decode_utf8()
            .map(|text| text.into_owned())
            .map_err(|_| Refusal::invalid("query", "a parameter is not UTF-8"))
    };
    query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            Ok((decode(key)?, decode(value)?))
        })
        .collect()
}

/// The lock's name in the path.
#[derive(Debug, Clone)]
pub(crate) struct LockName(pub Name);

impl<S: Send + Sync> FromRequestParts<S> for LockName {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        Ok(Self(Name::new(&parameter(parts, state, "name").await?)?))
    }
}

/// A parameter of the path, decoded.
///
/// # Errors
/// It is not UTF-8, or there is none.
pub(crate) async fn parameter<S: Send + Sync>(
    parts: &mut Parts,
    state: &S,
    name: &str,
) -> Result<String, Refusal> {
    let found = RawPathParams::from_request_parts(parts, state)
        .await
        .map_err(|_| Refusal::new(StatusCode::BAD_REQUEST, "bad_request", "the path is not UTF-8"))?;
    found
        .iter()
        .find(|(key, _)| *key == name)
        .map(|(_, value)| value.to_owned())
        .ok_or_else(|| Refusal::not_found("there is nothing at this path"))
}

/// Who asks, as the gate has found out.
#[derive(Debug, Clone)]
pub struct Caller(pub Principal);

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        // A route that the gate did not pass has no caller, and so no rights.
        let caller = parts.extensions.get::<Principal>().cloned();
        caller.map(Self).ok_or_else(|| Refusal::forbidden("do anything"))
    }
}
