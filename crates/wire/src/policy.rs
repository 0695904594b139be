use serde::{Deserialize, Serialize};

/// One value of a class and where it comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = ValueView))]
pub struct ClassValueView {
    /// The value's path, for example `renew.every`.
    pub field: String,
    /// The value in force.
    pub value: String,
    /// Where the value comes from: a default, a file or an override.
    pub origin: String,
    /// If overridden: the time until it reverts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reverts_in_ms: Option<u64>,
}

/// A class in force, with all its values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ClassView {
    /// The class's name.
    pub class: String,
    /// Every value of the class.
    pub values: Vec<ClassValueView>,
}

/// All classes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = Policies))]
pub struct PolicyList {
    /// The classes, ordered by name.
    pub classes: Vec<ClassView>,
}

/// The body of `POST /v1/policies/{class}/overrides`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = Override))]
pub struct PolicyOverride {
    /// The value to override, for example `acquire.on_error`.
    #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 64))]
    pub field: String,
    /// The new value, written as in a policy file.
    #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 128))]
    pub value: String,
    /// The reason; every reader of the policy sees it.
    #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 512))]
    pub reason: String,
    /// How long the override lasts; then it reverts by itself.
    #[cfg_attr(feature = "schema", schema(minimum = 1000, maximum = 604_800_000))]
    pub lasting_ms: u64,
}

/// One change of a class.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = ChangeView))]
pub struct PolicyChangeView {
    /// The class that changed.
    pub class: String,
    /// The field, its old and new value and the reason, in one line.
    pub change: String,
    /// The time of the change; missing in the response to the change itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(format = DateTime, value_type = Option<String>))]
    pub at: Option<String>,
}

/// The changes of all classes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = Changes))]
pub struct PolicyChangeList {
    /// The changes, newest first.
    pub changes: Vec<PolicyChangeView>,
}
