//! `GET /openapi.json`: every route, made from the code that serves it.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use leasehold_http::wire::Problem;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::{ContentBuilder, Ref, RefOr, ResponseBuilder};
use utoipa::{Modify, OpenApi};

use crate::app::App;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Leasehold",
        description = "Locks that expire, carry a fencing number, and have a stated answer to \"what if the store fails\"."
    ),
    paths(
        crate::health::healthz,
        crate::health::readyz,
        crate::metrics::metrics,
        crate::events::follow,
        crate::past::read,
        crate::me::show,
        crate::locks::store,
        crate::locks::list,
        crate::locks::show,
        crate::locks::acquire,
        crate::locks::wait,
        crate::locks::renew,
        crate::locks::release,
        crate::locks::break_lock,
        crate::locks::renew_many,
        crate::holds::create,
        crate::holds::look,
        crate::holds::heartbeat,
        crate::holds::end,
        crate::policies::list,
        crate::policies::show,
        crate::policies::set,
        crate::policies::clear,
        crate::policies::history,
        crate::drills::read,
    ),
    components(schemas(Problem, crate::record::EventView)),
    modifiers(&Everywhere),
    security(("token" = []), ()),
)]
struct Api;

/// What every route may answer, said once.
struct Everywhere;

impl Modify for Everywhere {
    fn modify(&self, api: &mut utoipa::openapi::OpenApi) {
        let components = api.components.get_or_insert_default();
        components.add_security_scheme("token", SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer)));
        for (path, item) in &mut api.paths.paths {
            let body = [&item.post, &item.put]
                .into_iter()
                .flatten()
                .any(|operation| operation.request_body.is_some());
            let open = matches!(path.as_str(), "/healthz" | "/readyz");
            let mut statuses = vec![
                ("400", "The request makes no sense"),
                ("403", "A page of another origin, or no right"),
                ("408", "The body did not come in time"),
                ("413", "The body is too large"),
                ("421", "Without tokens, the host must be this machine"),
                ("422", "Something in it cannot be used: see `field`"),
                ("429", "Too often: see Retry-After"),
                (
                    "503",
                    "The store or the daemon cannot answer now: see Retry-After",
                ),
            ];
            if !open {
                statuses.push(("401", "Who are you?"));
            }
            if body {
                statuses.push(("415", "The body is not JSON"));
            }
            for operation in [&mut item.get, &mut item.post, &mut item.put, &mut item.delete]
                .into_iter()
                .flatten()
            {
                for (status, description) in &statuses {
                    let missing = || {
                        let schema = RefOr::Ref(Ref::from_schema_name("Problem"));
                        let content = ContentBuilder::new().schema(Some(schema)).build();
                        let response = ResponseBuilder::new().description(*description);
                        RefOr::T(response.content("application/problem+json", content).build())
                    };
                    operation
                        .responses
                        .responses
                        .entry((*status).to_owned())
                        .or_insert_with(missing);
                }
            }
        }
    }
}

/// The document of a daemon that serves everything, as it is committed.
#[must_use]
pub fn document() -> String {
    written(true)
}

/// The document of a daemon with or without the control plane.
fn written(plane: bool) -> String {
    let mut api = Api::openapi();
    if plane {
        api.merge(crate::plane::Api::openapi());
        Everywhere.modify(&mut api);
    }
    let mut text = api.to_pretty_json().unwrap_or_default();
    text.push('\n');
    text
}

/// The document.
pub(crate) async fn serve(State(app): State<Arc<App>>) -> Response {
    let kind = (CONTENT_TYPE, HeaderValue::from_static("application/json"));
    ([kind], written(app.plane.is_some())).into_response()
}
