use serde::{Deserialize, Serialize};

/// The caller and its rights.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = Me))]
pub struct WhoAmI {
    /// The caller's id, as logs and the audit log show it.
    pub id: String,
    /// The caller's grants as `right:scope`: `hold:deploy`, `admin:*`.
    pub grants: Vec<String>,
}
