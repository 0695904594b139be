//! `/v1/policies`: shows the classes in force and overrides single values for a limited time.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use leasehold::policy::Origin;
use leasehold_wire::{
    ClassValueView, ClassView, ErrorCode, PolicyChangeList, PolicyChangeView, PolicyList, PolicyOverride,
    Problem, millis,
};
use rusqlite::params;

use crate::api::document::{Caller, JsonBody};
use crate::api::error_responses::NoSuchClass;
use crate::api::history::{state_db_unavailable, take_history_share};
use crate::api::problem::Refusal;
use crate::auth::{Principal, Right, Target};
use crate::state::app::App;
use crate::state::audit::AuditEntry;
use crate::state::record::{format_micros, without_reason};

/// Show the classes in force
///
/// Each value is shown with its origin.
#[utoipa::path(
    get, path = "/v1/policies", tag = "policies", operation_id = "listPolicies",
    responses((status = 200, description = "All classes", body = PolicyList)),
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    Caller(who): Caller,
) -> Result<JsonBody<PolicyList>, Refusal> {
    let names = app.locks.policies().classes();
    let classes = names.iter().map(|name| class_view(&app, &who, name)).collect::<Result<_, _>>()?;
    Ok(JsonBody(PolicyList { classes }))
}

/// Show a class
#[utoipa::path(
    get, path = "/v1/policies/{class}", tag = "policies", operation_id = "showPolicy",
    params(("class" = String, Path, description = "The class", min_length = 1, max_length = 64)),
    responses(
        (status = 200, description = "The class", body = ClassView),
        NoSuchClass,
    ),
)]
pub(crate) async fn show(
    State(app): State<Arc<App>>,
    Caller(who): Caller,
    Path(class): Path<String>,
) -> Result<JsonBody<ClassView>, Refusal> {
    require_class(&app, &class)?;
    class_view(&app, &who, &class).map(JsonBody)
}

/// Whether the caller sees who changed a class, and why. Classes are the daemon's, so every reader of some
/// names may see their values; the reasons are free text of operators.
pub(super) fn sees_reasons(who: &Principal) -> bool {
    who.may(Right::Read, &Target::Daemon)
}

fn require_class(app: &App, class: &str) -> Result<(), Refusal> {
    match app.class(class) {
        Ok(_) => Ok(()),
        Err(invalid) => Err(Refusal::not_found(&invalid.to_string())),
    }
}

fn class_view(app: &App, who: &Principal, class: &str) -> Result<ClassView, Refusal> {
    let resolved = app.locks.policies().explain(class, app.clock.now())?;
    let value = |[field, value, origin]: [String; 3]| {
        let (reverts_in_ms, origin) = match resolved.origins.get(&field) {
            Some(Origin::Override { until, .. }) => {
                let origin = if sees_reasons(who) { origin } else { "override".to_owned() };
                (Some(millis(until.since(resolved.at))), origin)
            }
            _ => (None, origin),
        };
        ClassValueView { field, value, origin, reverts_in_ms }
    };
    Ok(ClassView { class: class.to_owned(), values: resolved.rows().into_iter().map(value).collect() })
}

/// Change a value for a while
///
/// Existing holds of the class follow it at once. It reverts by itself.
#[utoipa::path(
    post, path = "/v1/policies/{class}/overrides", tag = "policies", operation_id = "overridePolicy",
    params(("class" = String, Path, description = "The class", min_length = 1, max_length = 64)),
    request_body = PolicyOverride,
    responses(
        (status = 200, description = "In force", body = PolicyChangeView),
        NoSuchClass,
    ),
)]
pub(crate) async fn set(
    State(app): State<Arc<App>>,
    Caller(who): Caller,
    Path(class): Path<String>,
    JsonBody(want): JsonBody<PolicyOverride>,
) -> Result<JsonBody<PolicyChangeView>, Refusal> {
    require_class(&app, &class)?;
    let lasting = crate::api::locks::parse_duration("lasting_ms", Some(want.lasting_ms), 1000, 604_800_000)?;
    let lasting = lasting.unwrap_or(Duration::from_secs(1));
    if want.reason.trim().is_empty() || want.reason.len() > 512 || want.reason.chars().any(char::is_control) {
        return Err(Refusal::invalid("reason", "reason: must say in 1 to 512 printable bytes why"));
    }
    let act = AuditEntry::new("policy.set", &who).detail(&format!("{class}.{}: {}", want.field, want.reason));
    // The audit line comes first: a change without a durable record must not happen.
    require_audited(app.audit.record_before(act).await)?;
    // The stored reason names the caller, so the policy history shows who made the change.
    let reason = format!("{}: {}", who.id(), want.reason);
    let change = app.locks.set_policy(&class, &want.field, &want.value, &reason, lasting)?;
    Ok(JsonBody(PolicyChangeView { class, change: change.to_string(), at: None }))
}

/// Take an override back
#[utoipa::path(
    delete, path = "/v1/policies/{class}/overrides/{field}", tag = "policies", operation_id = "clearOverride",
    params(
        ("class" = String, Path, description = "The class", min_length = 1, max_length = 64),
        ("field" = String, Path, description = "Which value, e.g. acquire.on_error", min_length = 1, max_length = 64),
    ),
    responses(
        (status = 200, description = "Taken back", body = PolicyChangeView),
        (status = 404, description = "There is no such class or override", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn clear(
    State(app): State<Arc<App>>,
    Caller(who): Caller,
    Path((class, field)): Path<(String, String)>,
) -> Result<JsonBody<PolicyChangeView>, Refusal> {
    require_class(&app, &class)?;
    let act = AuditEntry::new("policy.clear", &who).detail(&format!("{class}.{field}"));
    require_audited(app.audit.record_before(act).await)?;
    let change =
        app.locks.clear_policy(&class, &field).map_err(|invalid| Refusal::not_found(&invalid.to_string()))?;
    Ok(JsonBody(PolicyChangeView { class, change: change.to_string(), at: None }))
}

/// Read what changed
///
/// Every change of every class, by an operator, a file or an expired override. Who made it and why is shown to
/// callers with `read:*`.
#[utoipa::path(
    get, path = "/v1/policy-history", tag = "policies", operation_id = "readPolicyHistory",
    responses((status = 200, description = "Newest first, at most a thousand", body = PolicyChangeList)),
)]
pub(crate) async fn history(
    State(app): State<Arc<App>>,
    Caller(who): Caller,
) -> Result<JsonBody<PolicyChangeList>, Refusal> {
    let share = take_history_share(&app, &who)?;
    let changes = app
        .state_db
        .read(move |db| {
            // The share belongs to the query, as in the history of holds.
            let _held = share;
            let mut statement = db
                .prepare_cached("SELECT at, class, change FROM policy_change ORDER BY seq DESC LIMIT 1000")?;
            let rows = statement.query_map(params![], |row| {
                Ok(PolicyChangeView {
                    at: Some(format_micros(row.get(0)?)),
                    class: row.get(1)?,
                    change: row.get(2)?,
                })
            })?;
            rows.collect()
        })
        .await;
    let mut changes: Vec<PolicyChangeView> = changes.map_err(state_db_unavailable)?;
    if !sees_reasons(&who) {
        changes.iter_mut().for_each(|change| change.change = without_reason(&change.change));
    }
    Ok(JsonBody(PolicyChangeList { changes }))
}

/// Refuses an admin action whose audit line is not on the disk.
pub(crate) fn require_audited(written: bool) -> Result<(), Refusal> {
    if written {
        Ok(())
    } else {
        Err(Refusal::new(ErrorCode::Overloaded, "the audit log cannot be written, so nothing was changed")
            .retry_after(Duration::from_secs(5)))
    }
}
