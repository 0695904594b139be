//! The HTTP API: the route table, the handlers of each route, extractors and error responses.

pub(crate) mod dashboard;
pub(crate) mod document;
pub(crate) mod documents;
pub(crate) mod drills;
pub(crate) mod error_responses;
pub(crate) mod events;
pub(crate) mod health;
pub(crate) mod history;
pub(crate) mod holds;
pub(crate) mod locks;
pub(crate) mod metrics;
pub(crate) mod openapi;
pub(crate) mod plane;
pub(crate) mod policies;
pub(crate) mod routes;
pub(crate) mod whoami;

pub(crate) use crate::problem;
