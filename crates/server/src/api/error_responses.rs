//! Error responses that several routes share, for the OpenAPI document.

use std::collections::BTreeMap;

use utoipa::IntoResponses;
use utoipa::openapi::{ContentBuilder, Ref, RefOr, Response, ResponseBuilder};

/// An error response with a problem document.
pub(crate) fn problem_response(description: &str) -> RefOr<Response> {
    let schema = RefOr::Ref(Ref::from_schema_name("Problem"));
    let content = ContentBuilder::new().schema(Some(schema)).build();
    let response = ResponseBuilder::new().description(description);
    RefOr::T(response.content(leasehold_wire::PROBLEM_MEDIA_TYPE, content).build())
}

/// Declares sets of statuses for `responses(…)` of `#[utoipa::path]`.
macro_rules! error_responses {
    ($($(#[$meta:meta])* $set:ident { $($status:literal: $description:literal,)* })*) => {$(
        $(#[$meta])*
        pub(crate) struct $set;

        impl IntoResponses for $set {
            fn responses() -> BTreeMap<String, RefOr<Response>> {
                [$(($status, $description)),*]
                    .map(|(status, description): (u16, _)| (status.to_string(), problem_response(description)))
                    .into()
            }
        }
    )*};
}

error_responses! {
    NoSuchJob { 404: "There is no such job", }
    NoSuchRun { 404: "There is no such run", }
    NoSuchClass { 404: "There is no such class", }
    /// For a request to a hold that only its own client may make.
    NoHoldOfYours { 404: "There is no such hold of yours", 410: "It is over", }
    /// For a write to a job, which takes the job's lock.
    JobWriteErrors {
        404: "There is no such job",
        410: "The daemon lost the job's lock meanwhile: retry",
        412: "`stale_fence`: another client has written since",
    }
}
