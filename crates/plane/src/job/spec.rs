//! What a caller says about a job: plain data, validated once.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_core::{Invalid, Name};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::span::Span;

/// The longest payload, as JSON: jobs are orders, not data.
const PAYLOAD: usize = 256 * 1024;
/// Fewer make no job, more make no sense.
const ATTEMPTS: std::ops::RangeInclusive<u32> = 1..=100;

/// How a job's work is done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Work {
    /// A command with its arguments, without a shell. It runs under the job's lease and dies with it.
    Exec(Vec<String>),
    /// A handler that the program has registered for the topic.
    Handler,
    /// A worker that asks for work of the topic.
    Pull,
    /// Nothing: the job is a question to a person, and done when it is approved.
    Gate,
}

impl Work {
    /// The replica that dispatched it does it too, under the job's own lease.
    #[must_use]
    pub fn local(&self) -> bool {
        !matches!(self, Self::Pull)
    }
}

/// A job to be submitted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct JobSpec {
    /// Its id; made up if not given. Give one, or a `key`, and a repeated submit is harmless.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// How its work is done.
    pub work: Work,
    /// Who serves it.
    #[serde(default = "default_word")]
    pub topic: String,
    /// The class its lock is taken under: what happens when the lock store fails.
    #[serde(default = "default_class")]
    pub class: String,
    /// Whose it is; part of its resources' names.
    #[serde(default = "default_word")]
    pub tenant: String,
    /// What the work should know.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub payload: Value,
    /// For people and searches.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// What it needs for itself alone while it works.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
    /// A person must say yes first.
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
    /// How often it may fail before it is given up.
    #[serde(default = "default_attempts")]
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 100))]
    pub attempts: u32,
    /// The pause before the second attempt; it doubles with each further one, always jittered.
    #[serde(default = "default_backoff")]
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub backoff: Span,
    /// Another submit with the same key is the same job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

fn default_word() -> String {
    "default".into()
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
    /// A job with this work and otherwise defaults.
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

    /// Names the field that cannot be used, and what is allowed.
    ///
    /// # Errors
    /// The first such field.
    pub fn check(&self) -> Result<(), Invalid> {
        if let Some(id) = &self.id {
            Name::new(&format!("job:{id}")).map_err(|error| Invalid::new("id", id, error.to_string()))?;
        }
        if let Work::Exec(argv) = &self.work
            && argv.first().is_none_or(String::is_empty)
        {
            return Err(Invalid::new("work.exec", "[]", "must name a command"));
        }
        for resource in &self.resources {
            self.resource(resource)?;
        }
        for (field, word) in [("topic", &self.topic), ("tenant", &self.tenant)] {
            Name::new(word).map_err(|error| Invalid::new(field, word, error.to_string()))?;
        }
        if !ATTEMPTS.contains(&self.attempts) {
            return Err(Invalid::new(
                "attempts",
                self.attempts.to_string(),
                "must be from 1 to 100",
            ));
        }
        let long = self.payload.to_string().len();
        if long > PAYLOAD {
            let why = format!(
                "is {long} bytes long; at most {PAYLOAD} are allowed: put the data elsewhere and name it here"
            );
            return Err(Invalid::new("payload", "…", why));
        }
        Ok(())
    }

    /// The lock's name of one of its resources.
    ///
    /// # Errors
    /// It cannot be a name.
    pub fn resource(&self, resource: &str) -> Result<Name, Invalid> {
        Name::new(&format!("res:{}:{resource}", self.tenant))
            .map_err(|error| Invalid::new("resources", resource, error.to_string()))
    }
}
