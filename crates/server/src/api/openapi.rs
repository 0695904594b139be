//! `GET /openapi.json`: the OpenAPI document, generated from the route table.

use std::sync::{Arc, LazyLock};

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use leasehold_wire::Problem;
use utoipa::OpenApi;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};

use crate::api::error_responses::problem_response;
use crate::api::routes::RouteTable;
use crate::state::app::App;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Leasehold",
        description = "Locks that expire, carry a fencing number, and have a stated answer to \"what if the store fails\"."
    ),
    components(schemas(Problem, crate::state::record::EventView)),
    security(("token" = []), ()),
)]
struct DaemonApi;

/// Adds the responses that every route may give.
fn add_common_responses(api: &mut utoipa::openapi::OpenApi) {
    let components = api.components.get_or_insert_default();
    components.add_security_scheme("token", SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer)));
    for (path, item) in &mut api.paths.paths {
        let body =
            [&item.post, &item.put].into_iter().flatten().any(|operation| operation.request_body.is_some());
        let open = matches!(path.as_str(), "/healthz" | "/readyz");
        let mut statuses = vec![
            ("400", "The request makes no sense"),
            ("403", "A page of another origin, or no right"),
            ("408", "The body did not come in time"),
            ("413", "The body is too large"),
            ("421", "Without tokens, the host must be this machine"),
            ("422", "Something in it cannot be used: see `field`"),
            ("429", "Too often: see Retry-After"),
            ("503", "The store or the daemon cannot answer now: see Retry-After"),
        ];
        if !open {
            statuses.push(("401", "No valid token or certificate"));
        }
        if body {
            statuses.push(("415", "The body is not JSON"));
        }
        for operation in
            [&mut item.get, &mut item.post, &mut item.put, &mut item.delete].into_iter().flatten()
        {
            for (status, description) in &statuses {
                let stated = operation.responses.responses.entry((*status).to_owned());
                // A route's own description of a status is more specific and stays.
                stated.or_insert_with(|| problem_response(description));
            }
        }
    }
}

static WITHOUT_PLANE: LazyLock<String> = LazyLock::new(|| render_document(false));
static WITH_PLANE: LazyLock<String> = LazyLock::new(|| render_document(true));

/// The OpenAPI document of a daemon with the control plane, as committed in `docs/openapi.json`.
#[must_use]
pub fn document() -> &'static str {
    &WITH_PLANE
}

/// The OpenAPI document of a daemon with or without the control plane.
fn render_document(plane: bool) -> String {
    let mut api = RouteTable::new(DaemonApi::openapi(), plane).into_openapi();
    add_common_responses(&mut api);
    let mut text = api.to_pretty_json().unwrap_or_default();
    text.push('\n');
    text
}

pub(crate) async fn serve(State(app): State<Arc<App>>) -> Response {
    let kind = (CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let document = if app.plane.is_some() { &WITH_PLANE } else { &WITHOUT_PLANE };
    ([kind], document.as_str()).into_response()
}
