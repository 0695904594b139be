//! A duration as written in files and JSON: always with a unit.

use std::time::Duration;

use leasehold::policy::duration;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A duration that reads and writes as `10s`, `1m30s`, `25ms`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(value_type = String))]
pub struct Span(pub Duration);

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&duration::exact(self.0))
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let read = duration::parse(&text);
        read.map(Self).map_err(|why| serde::de::Error::custom(format!("{text:?} {why}")))
    }
}
