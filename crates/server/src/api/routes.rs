//! The route table: every route once, with its handler and its rule. Path, method and OpenAPI
//! description come from the handler's `#[utoipa::path]`.

use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodRouter, get};
use http::Method;
use leasehold::Name;
use leasehold_wire::HoldRequest;
use utoipa::openapi::OpenApi;
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter};
use utoipa_axum::routes;

use super::{
    dashboard, documents, drills, events, health, history, holds, locks, metrics, openapi, plane, policies,
    whoami,
};
use crate::api::document::target_in_body;
use crate::auth::gate::{self, AuthMiddleware};
use crate::auth::{Right, Rule, Rules, Target, TargetSource};
use crate::state::app::App;
use crate::state::holds::NO_SUCH_HOLD;

/// A router of another crate with the rules of its routes. See [`auth::Rule`](crate::auth::Rule).
#[derive(Debug, Default)]
#[must_use = "nothing is served until it is mounted"]
pub struct Mount {
    router: Router,
    rules: Vec<(Method, String, Rule)>,
}

impl Mount {
    /// Wraps a router. Each route is refused until a rule is declared for it.
    pub fn new(router: Router) -> Self {
        Self { router, rules: Vec::new() }
    }

    /// Declares what a route requires. `path` is written as in the router, with parameters in
    /// braces.
    pub fn rule(mut self, method: Method, path: &str, rule: Rule) -> Self {
        self.rules.push((method, path.to_owned(), rule));
        self
    }
}

/// A router, its OpenAPI document and its rules, built together so that no route lacks a rule.
pub(crate) struct RouteTable {
    router: OpenApiRouter<Arc<App>>,
    pub(crate) rules: Rules,
}

impl RouteTable {
    /// All routes of a daemon with or without the control plane.
    pub(crate) fn new(api: OpenApi, with_plane: bool) -> Self {
        let table = Self { router: OpenApiRouter::with_openapi(api), rules: Rules::default() };
        let table = daemon_routes(table);
        if with_plane { plane::routes(table) } else { table }
    }

    /// Adds the handler of one route. The control plane's routes state their right in the document.
    pub(crate) fn route(mut self, rule: Rule, mut route: UtoipaMethodRouter<Arc<App>>) -> Self {
        for (path, item) in &mut route.1.paths {
            let right = rule.right.filter(|_| plane::is_plane_path(path));
            for (method, operation) in [
                (Method::GET, &mut item.get),
                (Method::POST, &mut item.post),
                (Method::PUT, &mut item.put),
                (Method::DELETE, &mut item.delete),
            ] {
                let Some(operation) = operation else { continue };
                if let Some(right) = right {
                    let stated = operation.extensions.get_or_insert_default();
                    stated.insert("x-right".to_owned(), right.as_str().into());
                }
                self.rules.declare(&method, path, rule.clone());
            }
        }
        self.router = self.router.routes(route);
        self
    }

    /// Adds a page that is open to every caller and not part of the API.
    fn page(mut self, path: &str, page: MethodRouter<Arc<App>>) -> Self {
        self.rules.declare(&Method::GET, path, Rule::open());
        self.router = self.router.route(path, page);
        self
    }

    /// The OpenAPI document of the table.
    pub(crate) fn into_openapi(self) -> OpenApi {
        self.router.into_openapi()
    }
}

fn daemon_routes(table: RouteTable) -> RouteTable {
    let hold = || Rule::new(Right::Hold, TargetSource::Name);
    let own = || Rule::new(Right::Read, TargetSource::Visible);
    let daemon = |right| Rule::new(right, TargetSource::Daemon);
    // Hidden: a caller without the right must not learn which hold ids exist.
    let held = |right| Rule::new(right, holds::hold_target()).hidden(NO_SUCH_HOLD);
    let read_name = Rule::new(Right::Read, TargetSource::Name);
    let break_name = Rule::new(Right::Admin, TargetSource::Name);
    let renew_many = Rule::new(Right::Hold, TargetSource::Namespace)
        .renewal_budget()
        .max_body(locks::MAX_BATCH_BODY_BYTES);
    let document = |right| Rule::new(right, TargetSource::Lock { kind: documents::KIND, id: "name" });
    let own_documents = Rule::new(Right::Read, TargetSource::VisibleOf(&[documents::KIND]));
    let write_document = document(Right::Admin).max_body(documents::MAX_PUT_BODY_BYTES);
    let create_hold =
        Rule::new(Right::Hold, target_in_body(|hold: &HoldRequest| Ok(Target::Name(Name::new(&hold.name)?))));
    table
        .page("/", get(dashboard::page))
        .page("/assets/app.js", get(dashboard::script))
        .page("/assets/app.css", get(dashboard::style))
        .page("/assets/icon.svg", get(dashboard::icon))
        .page("/openapi.json", get(openapi::serve))
        .route(Rule::probe(), routes!(health::healthz))
        .route(Rule::probe(), routes!(health::readyz))
        .route(Rule::open(), routes!(dashboard::open_session))
        .route(own(), routes!(dashboard::make_code))
        .route(own(), routes!(whoami::show))
        .route(own(), routes!(locks::store))
        .route(own(), routes!(locks::list))
        .route(read_name, routes!(locks::show))
        .route(hold(), routes!(locks::acquire))
        .route(hold().renewal_budget(), routes!(locks::wait))
        .route(hold().renewal_budget(), routes!(locks::renew))
        .route(hold().renewal_budget(), routes!(locks::release))
        .route(break_name, routes!(locks::break_lock))
        .route(renew_many, routes!(locks::renew_many))
        .route(create_hold, routes!(holds::create))
        .route(held(Right::Read), routes!(holds::show_hold))
        .route(held(Right::Hold).renewal_budget(), routes!(holds::heartbeat))
        .route(held(Right::Hold).renewal_budget(), routes!(holds::end))
        .route(own_documents, routes!(documents::list))
        .route(document(Right::Read), routes!(documents::read))
        .route(write_document, routes!(documents::write))
        .route(document(Right::Admin), routes!(documents::delete))
        .route(own(), routes!(events::follow))
        .route(own(), routes!(history::read))
        .route(own(), routes!(policies::list))
        .route(own(), routes!(policies::show))
        .route(daemon(Right::Admin), routes!(policies::set))
        .route(daemon(Right::Admin), routes!(policies::clear))
        .route(own(), routes!(policies::history))
        .route(daemon(Right::Read), routes!(drills::read))
        .route(daemon(Right::Read), routes!(metrics::metrics))
}

/// The grant that a request to a daemon needs, in the form of `token new --grant`. `path` has no leading
/// `v1`.
#[must_use]
pub fn required_grant(method: &Method, path: &[&str], body: &[u8]) -> Option<String> {
    RouteTable::new(OpenApi::default(), true).rules.required_grant(method, path, body)
}

/// The daemon's router behind the gate, and the rules of all routes.
pub(crate) fn router(app: &Arc<App>, mounts: Vec<Mount>) -> (Router, Arc<Rules>) {
    let RouteTable { router, mut rules } = RouteTable::new(OpenApi::default(), app.plane.is_some());
    let mut router = Router::from(router).with_state(Arc::clone(app));
    for mount in mounts {
        router = router.merge(mount.router);
        for (method, path, rule) in mount.rules {
            rules.declare(&method, &path, rule);
        }
    }
    let rules = Arc::new(rules);
    let gate = AuthMiddleware { app: Arc::clone(app), rules: Arc::clone(&rules) };
    let without = Arc::clone(app);
    // The layer comes last, so that it also covers mounted routes and the fallback.
    let router = router
        .fallback(move |path: http::Uri| async move { plane::unknown_path(&without, path.path()) })
        .layer(from_fn_with_state(gate, gate::middleware));
    (router, rules)
}
