//! Checks printed JSON against the committed schemas.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use serde_json::Value;

/// Parses printed JSON and checks it against `docs/schemas/NAME.json`.
pub(crate) fn parse_valid(name: &str, text: &str) -> Value {
    let path = format!("{}/../../docs/schemas/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let schema: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let value: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{name}: {error}: {text}"));
    if let Err(error) = jsonschema::validate(&schema, &value) {
        panic!("{name}: {error}: {value:#}");
    }
    value
}
