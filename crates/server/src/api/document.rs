//! The extractors and responses of handlers: a JSON document, a query, a lock name.
//!
//! Each failure to parse is a [`Refusal`] with a problem document, never axum's default text. axum's
//! `Path` cannot fail in a handler: the gate has refused a path that is not UTF-8.

use std::sync::Arc;

use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::response::{IntoResponse, Response};
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http_body_util::BodyExt;
use leasehold::Name;
use leasehold_wire::ErrorCode;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::api::problem::Refusal;
use crate::auth::{Principal, Target, TargetSource};

/// A JSON document as request body or response body.
#[derive(Debug)]
pub(crate) struct JsonBody<T>(pub T);

impl<T: Serialize> IntoResponse for JsonBody<T> {
    fn into_response(self) -> Response {
        match serde_json::to_vec(&self.0) {
            Ok(body) => {
                let kind = (CONTENT_TYPE, HeaderValue::from_static("application/json"));
                ([kind], body).into_response()
            }
            Err(_) => {
                Refusal::new(ErrorCode::Internal, "the answer cannot be written as JSON; please report it")
                    .into_response()
            }
        }
    }
}

impl<S: Send + Sync, T: DeserializeOwned + Send + Sync + 'static> FromRequest<S> for JsonBody<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, _: &S) -> Result<Self, Refusal> {
        let kind = request.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes);
        if !kind.is_some_and(is_json) {
            return Err(Refusal::new(
                ErrorCode::UnsupportedMediaType,
                "the body must be JSON; send content-type: application/json",
            ));
        }
        let (mut parts, body) = request.into_parts();
        if let Some(ParsedBody(document)) = parts.extensions.remove() {
            return Ok(Self(document));
        }
        // The gate has already read the body within its size and time limits, so this does not
        // wait.
        let body = body.collect().await.map_err(|_| body_cut_off())?;
        parse_json(&body.to_bytes()).map(Self)
    }
}

/// A body that the gate had to parse, because it names the target.
#[derive(Clone)]
struct ParsedBody<T>(T);

/// A target that `target` finds in the request's document.
pub(crate) fn target_in_body<T: DeserializeOwned + Clone + Send + Sync + 'static>(
    target: impl Fn(&T) -> Result<Target, Refusal> + Send + Sync + 'static,
) -> TargetSource {
    TargetSource::Document(Arc::new(move |body, documents| {
        let document: T = parse_json(body)?;
        let found = target(&document)?;
        documents.insert(ParsedBody(document));
        Ok(found)
    }))
}

fn is_json(kind: &[u8]) -> bool {
    let kind = kind.split(|byte| *byte == b';').next().unwrap_or_default();
    kind.trim_ascii().eq_ignore_ascii_case(b"application/json")
}

/// Parses a document. An error names the field but never repeats its value, which may be a secret.
pub(crate) fn parse_json<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    // serde accepts a list as a struct's fields in order. Refuse everything but an object first.
    if body.trim_ascii_start().first().is_some_and(|first| b"[\"0123456789-tfn".contains(first)) {
        serde_json::from_slice::<serde::de::IgnoredAny>(body).map_err(|error| not_json(&error))?;
        return Err(Refusal::invalid("body", "the body must be a JSON object"));
    }
    let mut reader = serde_json::Deserializer::from_slice(body);
    let document = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let (field, inner) = (error.path().to_string(), error.inner());
        match inner.classify() {
            serde_json::error::Category::Data => invalid_field(&field, inner),
            _ => not_json(inner),
        }
    })?;
    reader.end().map_err(|_| {
        Refusal::new(ErrorCode::BadRequest, "something follows the JSON document; send one document")
    })?;
    Ok(document)
}

fn not_json(error: &serde_json::Error) -> Refusal {
    Refusal::new(
        ErrorCode::BadRequest,
        format!("the body is not JSON: line {}, column {}", error.line(), error.column()),
    )
}

/// Names a known field in the error. An unknown field name is left out: it may be a secret in the
/// wrong place.
fn invalid_field(field: &str, error: &serde_json::Error) -> Refusal {
    let why = describe_without_value(error);
    if field == "." || why.starts_with("unknown field") || why.starts_with("missing field") {
        return Refusal::invalid("body", why);
    }
    Refusal::invalid(field, format!("{field}: {why}"))
}

/// serde's message without the offending value. serde quotes the value after its own words, so only
/// the part after `expected` is safe to repeat.
fn describe_without_value(error: &serde_json::Error) -> String {
    let text = error.to_string();
    if let Some(rest) = text.strip_prefix("unknown field `") {
        let expected = rest.split_once("`, ").map_or("", |(_, expected)| expected);
        // The position lets the caller find the field without the name being repeated.
        let place = match error.line() {
            0 => String::new(),
            line => format!(" (it ends at line {line}, column {})", error.column()),
        };
        return format!("unknown field{place}; {}", without_position(expected));
    }
    if text.starts_with("missing field") || text.starts_with("duplicate field") {
        return without_position(&text).to_owned();
    }
    match text.rsplit_once(", expected ") {
        Some((_, expected)) => format!("expected {}", without_position(expected)),
        None => "cannot be used".to_owned(),
    }
}

fn without_position(text: &str) -> &str {
    text.split_once(" at line ").map_or(text, |(text, _)| text)
}

fn body_cut_off() -> Refusal {
    Refusal::new(ErrorCode::BadRequest, "the body was cut off")
}

/// The query parameters of a request, deserialized from strings.
#[derive(Debug)]
pub(crate) struct QueryParams<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for QueryParams<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        let mut fields = serde_json::Map::new();
        for (key, value) in query_pairs(parts.uri.query().unwrap_or_default())? {
            // Refused rather than "last one wins": a proxy and the daemon may pick different
            // values.
            if fields.insert(key, serde_json::Value::String(value)).is_some() {
                return Err(Refusal::invalid("query", "a parameter is there twice"));
            }
        }
        let reader = serde_json::Value::Object(fields);
        serde_path_to_error::deserialize(reader).map(Self).map_err(|error| {
            let field = error.path().to_string();
            Refusal::invalid(&field, format!("{field}: {}", describe_without_value(error.inner())))
        })
    }
}

/// Splits and percent-decodes a query.
fn query_pairs(query: &str) -> Result<Vec<(String, String)>, Refusal> {
    let decode = |text: &str| {
        // In a query `+` stands for a space, which percent-decoding does not handle.
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

/// The lock name that the request is about, as the gate has authorized it. A handler cannot act on
/// another name than the one whose right was checked.
#[derive(Debug, Clone)]
pub(crate) struct LockName(pub Name);

impl<S: Send + Sync> FromRequestParts<S> for LockName {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        match parts.extensions.get::<Target>() {
            Some(Target::Name(name)) => Ok(Self(name.clone())),
            _ => Err(Refusal::forbidden("do anything")),
        }
    }
}

/// The caller of a request, as the gate identified it.
#[derive(Debug, Clone)]
pub struct Caller(pub Principal);

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        // A route that bypassed the gate has no principal. Refuse instead of assuming rights.
        let caller = parts.extensions.get::<Principal>().cloned();
        caller.map(Self).ok_or_else(|| Refusal::forbidden("do anything"))
    }
}
