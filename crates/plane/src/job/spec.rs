//! The specification of a job, as submitted: plain data, validated once.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_core::{InvalidInput, Name};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::span::Span;

/// The size limit of a payload as JSON: a job should refer to its data, not carry it.
const MAX_PAYLOAD_BYTES: usize = 256 * 1024;
/// Linux executes no program with an argument of 128 KiB or more, its terminating zero included.
const MAX_ARGUMENT_BYTES: usize = 128 * 1024 - 1;
/// The size limit of a command. Arguments and variables together may have a quarter of the stack, usually 2 MiB; in a
/// container with a smaller stack, this still fits.
const MAX_COMMAND_BYTES: usize = 256 * 1024;
/// The size limit of an idempotency key, the same as for names.
const MAX_KEY_BYTES: usize = 512;
const ALLOWED_ATTEMPTS: std::ops::RangeInclusive<u32> = 1..=100;

/// How the work of a job is done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Work {
    /// A command with its arguments, without a shell. It runs under the job's lease and is killed with it.
    Exec(Vec<String>),
    /// A handler that the program registered for the topic.
    Handler,
    /// A worker that claims jobs of the topic.
    Pull,
    /// No work: the job asks a person, and succeeds when it is approved.
    Gate,
}

impl Work {
    /// Whether the dispatching replica does the work itself, under the job's own lease.
    #[must_use]
    pub fn runs_on_replica(&self) -> bool {
        !matches!(self, Self::Pull)
    }
}

/// A job to be submitted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct JobSpec {
    /// Its id; generated if not given. With a tenant other than `default`, it begins with `<tenant>:`. With an id or a `key`, a repeated submit is harmless.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// How its work is done.
    pub work: Work,
    /// The topic, which selects the handler or the pull workers.
    #[serde(default = "default_word")]
    pub topic: String,
    /// The class of its lock, which defines what happens when the lock store fails.
    #[serde(default = "default_class")]
    pub class: String,
    /// The tenant; part of the names of its resources.
    #[serde(default = "default_word")]
    pub tenant: String,
    /// Input of the work.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub payload: Value,
    /// Free labels, for people and searches.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Resources that it locks exclusively while it works.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
    /// A person must approve it first.
    #[serde(default)]
    pub requires_approval: bool,
    /// How long it may take from its submission to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub deadline: Option<Span>,
    /// How long one attempt may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub timeout: Option<Span>,
    /// How many attempts may fail before it is given up.
    #[serde(default = "default_attempts")]
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 100))]
    pub attempts: u32,
    /// The delay before the second attempt; it doubles with each further one, always jittered.
    #[serde(default = "default_backoff")]
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub backoff: Span,
    /// Idempotency key: another submit with the same key returns the same job. It counts within the tenant
    /// only, or within the part of the id before the first `:`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 512))]
    pub key: Option<String>,
}

/// The tenant of jobs and the organisation of runs that name none.
pub(crate) const DEFAULT_TENANT: &str = "default";

/// The scope of an idempotency key, from the tenant or organisation and the id of its document.
pub(crate) fn key_scope<'a>(tenant: &'a str, id: Option<&'a str>) -> &'a str {
    if !tenant.is_empty() && tenant != DEFAULT_TENANT {
        return tenant;
    }
    let prefix = id.and_then(|id| id.split_once(':')).map(|(prefix, _)| prefix);
    prefix.filter(|prefix| !prefix.is_empty()).unwrap_or(DEFAULT_TENANT)
}

/// An id of a tenant's document begins with the tenant, so that grants and keys of another tenant never
/// reach it.
pub(crate) fn check_tenant_prefix(field: &str, tenant: &str, id: &str) -> Result<(), InvalidInput> {
    if tenant == DEFAULT_TENANT {
        return Ok(());
    }
    let rest = id.strip_prefix(tenant).and_then(|rest| rest.strip_prefix(':'));
    if rest.is_some_and(|rest| !rest.is_empty()) {
        return Ok(());
    }
    let why = format!("must begin with `{tenant}:`, because the {field} is {tenant}; or leave it out");
    Err(InvalidInput::new("id", id, why))
}

/// How often a step can be begun. Each attempt leaves a job.
pub(crate) const MAX_STEP_ATTEMPTS: u32 = 100;

/// The id of a step's job. The id of a step has no dot, so the run and the step can be read from it.
pub(crate) fn step_job_id(run: &str, step: &str, attempt: u32) -> String {
    format!("{run}.{step}.{attempt}")
}

/// Whether an id has the form of a step's job. Callers cannot use this form, so that no job takes a step's
/// place beforehand.
fn is_step_job_id(id: &str) -> bool {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let mut parts = id.rsplitn(3, '.');
    let (Some(attempt), Some(step), Some(run)) = (parts.next(), parts.next(), parts.next()) else {
        return false;
    };
    // Versions, dates and addresses (`v1.2.3`) stay free. A step whose id is a number is not taken over
    // either: its job must name the step as its parent.
    !run.is_empty() && !step.is_empty() && number(attempt) && !number(step)
}

/// Checks the id that a caller chose for a new job.
pub(crate) fn check_new_id(spec: &JobSpec) -> Result<(), InvalidInput> {
    let Some(id) = &spec.id else { return Ok(()) };
    check_tenant_prefix("tenant", &spec.tenant, id)?;
    if is_step_job_id(id) {
        let why = "must not have the form RUN.STEP.NUMBER: only the jobs of workflow steps have such ids; \
                   choose another separator than `.`";
        return Err(InvalidInput::new("id", id, why));
    }
    Ok(())
}

/// Checks that `text`, as part of the lock name `name`, can be acquired and looks like no other. Only for new documents:
/// the plane itself locks what is stored already.
pub(crate) fn check_name(field: &str, text: &str, name: &str) -> Result<(), InvalidInput> {
    let checked = Name::new(name).and_then(|name| name.check_visible());
    checked.map_err(|error| InvalidInput::new(field, text, error.allowed))
}

/// Checks that the system can execute a command: an accepted job must be able to run.
fn check_command(argv: &[String]) -> Result<(), InvalidInput> {
    let refuse = |given: &str, why: String| Err(InvalidInput::new("work.exec", given, why));
    if argv.first().is_none_or(String::is_empty) {
        return refuse("[]", "must name a command".to_owned());
    }
    for (at, argument) in argv.iter().enumerate() {
        let long = argument.len();
        if long > MAX_ARGUMENT_BYTES {
            let why = format!(
                "argument {at} is {long} bytes long; at most {MAX_ARGUMENT_BYTES} are allowed: pass the data as the payload"
            );
            return refuse(argument, why);
        }
        if argument.contains('\0') {
            return refuse(argument, format!("argument {at} must not contain a zero byte"));
        }
    }
    // Each argument ends with a zero byte and needs a pointer.
    let all: usize = argv.iter().map(|argument| argument.len() + 1 + size_of::<usize>()).sum();
    if all > MAX_COMMAND_BYTES {
        let why = format!(
            "is {all} bytes long; at most {MAX_COMMAND_BYTES} are allowed: pass the data as the payload"
        );
        return refuse("…", why);
    }
    Ok(())
}

/// Checks the size of a payload.
///
/// # Errors
/// It is too long.
pub fn check_payload(payload: &Value) -> Result<(), InvalidInput> {
    check_json_size("payload", payload).map(drop)
}

/// Checks the size of a value that becomes a payload, and returns it.
pub(crate) fn check_json_size(field: &str, value: &Value) -> Result<usize, InvalidInput> {
    let long = value.to_string().len();
    if long > MAX_PAYLOAD_BYTES {
        let why = format!(
            "is {long} bytes long; at most {MAX_PAYLOAD_BYTES} are allowed: put the data elsewhere and name it here"
        );
        return Err(InvalidInput::new(field, "…", why));
    }
    Ok(long)
}

/// Checks an idempotency key.
pub(crate) fn check_key(key: Option<&str>) -> Result<(), InvalidInput> {
    match key {
        Some(key) if key.is_empty() || key.len() > MAX_KEY_BYTES || key.chars().any(char::is_control) => {
            let why = format!("must be 1 to {MAX_KEY_BYTES} bytes without control characters");
            Err(InvalidInput::new("key", key.chars().take(40).collect::<String>(), why))
        }
        _ => Ok(()),
    }
}

fn default_word() -> String {
    DEFAULT_TENANT.into()
}

fn default_class() -> String {
    "scheduler".into()
}

fn default_attempts() -> u32 {
    3
}

fn default_backoff() -> Span {
    Span(Duration::from_secs(1))
}

impl JobSpec {
    /// A job with this work and defaults for the rest.
    #[must_use]
    pub fn new(work: Work) -> Self {
        Self {
            id: None,
            work,
            topic: default_word(),
            class: default_class(),
            tenant: default_word(),
            payload: Value::Null,
            labels: BTreeMap::new(),
            resources: Vec::new(),
            requires_approval: false,
            deadline: None,
            timeout: None,
            attempts: default_attempts(),
            backoff: default_backoff(),
            key: None,
        }
    }

    /// The scope of its idempotency key: its tenant, else the part of its id before the first `:`, else
    /// `default`. The same key in two scopes means two jobs.
    #[must_use]
    pub fn key_scope(&self) -> &str {
        key_scope(&self.tenant, self.id.as_deref())
    }

    /// Checks each field. What a *new* id must look like is checked at the submit: a repeated submit of an
    /// earlier version's job may have another one.
    ///
    /// # Errors
    /// The first invalid field, with what is allowed.
    pub fn check(&self) -> Result<(), InvalidInput> {
        if let Some(id) = &self.id {
            // The id becomes part of the lock's name, so the rules for names are the rules for ids.
            check_name("id", id, &format!("job:{id}"))?;
        }
        if let Work::Exec(argv) = &self.work {
            check_command(argv)?;
        }
        for resource in &self.resources {
            self.resource_lock_name(resource)?;
            check_name("resources", resource, resource)?;
        }
        for (field, word) in [("topic", &self.topic), ("tenant", &self.tenant)] {
            check_name(field, word, word)?;
        }
        check_key(self.key.as_deref())?;
        if !ALLOWED_ATTEMPTS.contains(&self.attempts) {
            return Err(InvalidInput::new("attempts", self.attempts.to_string(), "must be from 1 to 100"));
        }
        check_payload(&self.payload)
    }

    /// The lock name of one of its resources.
    ///
    /// # Errors
    /// The resource cannot be part of a lock name.
    pub fn resource_lock_name(&self, resource: &str) -> Result<Name, InvalidInput> {
        Name::new(&format!("res:{}:{resource}", self.tenant))
            .map_err(|error| InvalidInput::new("resources", resource, error.to_string()))
    }
}
