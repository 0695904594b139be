//! Every route with its rule. There is no other way to add one.

use std::sync::Arc;

use axum::Router;
use axum::handler::Handler;
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodFilter, on};
use http::Method;

use crate::app::App;
use crate::auth::gate::{self, Gate};
use crate::auth::{Role, Rule, Rules, Space};
use crate::{dashboard, drills, events, health, holds, locks, me, metrics, openapi, past, plane, policies};

/// A router of another crate, with the rules of its routes. See [`auth::rule`](crate::auth::Rule).
#[derive(Debug, Default)]
#[must_use = "nothing is served until it is mounted"]
pub struct Mount {
    router: Router,
    rules: Vec<(Method, String, Rule)>,
}

impl Mount {
    /// These routes; each is refused until a rule is declared for it.
    pub fn new(router: Router) -> Self {
        Self {
            router,
            rules: Vec::new(),
        }
    }

    /// Declares what a route demands. `path` as the router has it, parameters in braces.
    pub fn rule(mut self, method: Method, path: &str, rule: Rule) -> Self {
        self.rules.push((method, path.to_owned(), rule));
        self
    }
}

/// Routes and rules, growing together.
pub(crate) struct Routes {
    router: Router<Arc<App>>,
    rules: Rules,
}

impl Routes {
    pub(crate) fn get<H, T>(self, path: &str, rule: Rule, handler: H) -> Self
    where
        H: Handler<T, Arc<App>>,
        T: 'static,
    {
        self.add(&Method::GET, MethodFilter::GET, path, rule, handler)
    }

    pub(crate) fn post<H, T>(self, path: &str, rule: Rule, handler: H) -> Self
    where
        H: Handler<T, Arc<App>>,
        T: 'static,
    {
        self.add(&Method::POST, MethodFilter::POST, path, rule, handler)
    }

    pub(crate) fn put<H, T>(self, path: &str, rule: Rule, handler: H) -> Self
    where
        H: Handler<T, Arc<App>>,
        T: 'static,
    {
        self.add(&Method::PUT, MethodFilter::PUT, path, rule, handler)
    }

    fn delete<H, T>(self, path: &str, rule: Rule, handler: H) -> Self
    where
        H: Handler<T, Arc<App>>,
        T: 'static,
    {
        self.add(&Method::DELETE, MethodFilter::DELETE, path, rule, handler)
    }

    fn add<H, T>(mut self, method: &Method, filter: MethodFilter, path: &str, rule: Rule, handler: H) -> Self
    where
        H: Handler<T, Arc<App>>,
        T: 'static,
    {
        self.rules.declare(method, path, rule);
        self.router = self.router.route(path, on(filter, handler));
        self
    }
}

/// Everything the daemon serves, behind the gate.
pub(crate) fn router(app: &Arc<App>, mounts: Vec<Mount>) -> (Router, Arc<Rules>) {
    let hold = || Rule::new(Role::Hold, Space::Name);
    let own = || Rule::new(Role::Read, Space::Own);
    let held = |role| Rule::new(role, holds::space(app)).hidden();
    let mut routes = Routes {
        router: Router::new(),
        rules: Rules::default(),
    }
    .get("/", Rule::open(), dashboard::page)
    .get("/assets/app.js", Rule::open(), dashboard::script)
    .get("/assets/app.css", Rule::open(), dashboard::style)
    .get("/assets/icon.svg", Rule::open(), dashboard::icon)
    .get("/healthz", Rule::open(), health::healthz)
    .get("/readyz", Rule::open(), health::readyz)
    .get("/v1/me", own(), me::show)
    .get("/v1/store", Rule::new(Role::Read, Space::Own), locks::store)
    .get("/v1/locks", Rule::new(Role::Read, Space::Own), locks::list)
    .get(
        "/v1/locks/{name}",
        Rule::new(Role::Read, Space::Name),
        locks::show,
    )
    .post("/v1/locks/{name}/acquire", hold(), locks::acquire)
    .post("/v1/locks/{name}/wait", hold().keeping(), locks::wait)
    .post("/v1/locks/{name}/renew", hold().keeping(), locks::renew)
    .post("/v1/locks/{name}/release", hold().keeping(), locks::release)
    .post(
        "/v1/locks/{name}/break",
        Rule::new(Role::Admin, Space::Name),
        locks::break_lock,
    )
    .post(
        "/v1/namespaces/{namespace}/renew",
        Rule::new(Role::Hold, Space::Namespace).keeping(),
        locks::renew_many,
    )
    .post("/v1/holds", Rule::new(Role::Hold, Space::BodyName), holds::create)
    .get("/v1/holds/{id}", held(Role::Read), holds::look)
    .post(
        "/v1/holds/{id}/heartbeat",
        held(Role::Hold).keeping(),
        holds::heartbeat,
    )
    .delete("/v1/holds/{id}", held(Role::Hold).keeping(), holds::end)
    .get("/v1/events", own(), events::follow)
    .get("/v1/history", own(), past::read)
    .get("/v1/policies", own(), policies::list)
    .get("/v1/policies/{class}", own(), policies::show)
    .post(
        "/v1/policies/{class}/overrides",
        Rule::new(Role::Admin, Space::Whole),
        policies::set,
    )
    .delete(
        "/v1/policies/{class}/overrides/{field}",
        Rule::new(Role::Admin, Space::Whole),
        policies::clear,
    )
    .get("/v1/policy-history", own(), policies::history)
    .get("/v1/drills", Rule::new(Role::Read, Space::Whole), drills::read)
    .get("/metrics", Rule::new(Role::Read, Space::Whole), metrics::metrics)
    .get("/openapi.json", Rule::open(), openapi::serve);
    if app.plane.is_some() {
        routes = plane::routes(routes);
    }
    let mut router = routes.router.with_state(Arc::clone(app));
    for mount in mounts {
        router = router.merge(mount.router);
        for (method, path, rule) in mount.rules {
            routes.rules.declare(&method, &path, rule);
        }
    }
    let rules = Arc::new(routes.rules);
    let gate = Gate {
        app: Arc::clone(app),
        rules: Arc::clone(&rules),
    };
    let without = Arc::clone(app);
    let router = router
        .fallback(move |path: http::Uri| async move { plane::nowhere(&without, path.path()) })
        .layer(from_fn_with_state(gate, gate::pass));
    (router, rules)
}
