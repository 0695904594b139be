//! The page of HTTP routes, from the daemon's OpenAPI document.

use serde_json::Value;

use super::{page_header, table_row};

const METHODS: [&str; 5] = ["get", "post", "put", "patch", "delete"];

pub(super) fn page() -> String {
    let mut text = page_header(
        "The HTTP API",
        "Every route of the daemon. Forms of requests and answers are in `/openapi.json` ([committed](../openapi.json)), refusals in \
         [errors](errors.md).",
    );
    let document = serde_json::from_str::<Value>(leasehold_server::openapi_document()).unwrap_or_default();
    text += "| route | what it does | good answers |\n|---|---|---|\n";
    for (path, methods) in document["paths"].as_object().into_iter().flatten() {
        for method in METHODS {
            let Some(route) = methods.get(method) else {
                continue;
            };
            let good: Vec<_> = route["responses"]
                .as_object()
                .into_iter()
                .flat_map(|answers| answers.keys())
                .filter(|status| status.starts_with('2'))
                .map(String::as_str)
                .collect();
            let summary = route.get("summary").and_then(Value::as_str).unwrap_or_default();
            text += &table_row(&[&format!("`{} {path}`", method.to_uppercase()), summary, &good.join(", ")]);
        }
    }
    text
}
