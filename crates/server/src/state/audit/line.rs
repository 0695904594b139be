//! One line of the audit log, and how it is sealed.

use leasehold::Fence;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::AuditEntry;
use super::key::AuditKey;

/// The action of the first line of every segment.
pub(super) const SEGMENT_OPEN: &str = "segment.open";
/// The action that records that the oldest segment is removed.
pub(super) const SEGMENT_REMOVE: &str = "segment.remove";
/// The action that records that the daemon's database had no head of an existing log.
pub(super) const HEAD_MISSING: &str = "head-missing";

/// One line. The seal covers the fields in this order, so the order is part of the format.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AuditLine {
    pub(super) seq: u64,
    pub(super) at: String,
    pub(super) actor: String,
    pub(super) action: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) fence: Option<Fence>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) detail: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) forced: Option<bool>,
    /// The segment that the line opens or removes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) segment: Option<u64>,
    /// The first of the damaged segments before this one; they were set aside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) damaged_from: Option<u64>,
    /// How many refusals of this actor were not recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) omitted: Option<u64>,
    /// The number of the line that this one repeats: that line's segment was removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) carried_from: Option<u64>,
    pub(super) prev: String,
    /// The SHA-256 of a line that a version without a key has written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) hash: Option<String>,
    /// The HMAC-SHA-256 of the line without this field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) mac: Option<String>,
}

impl AuditLine {
    pub(super) fn new(seq: u64, at: String, entry: AuditEntry, prev: String) -> Self {
        Self {
            seq,
            at,
            actor: entry.actor,
            action: entry.action.into_owned(),
            name: entry.name,
            fence: entry.fence,
            detail: entry.detail,
            forced: entry.forced,
            segment: entry.segment,
            damaged_from: entry.damaged_from,
            omitted: entry.omitted,
            carried_from: entry.carried_from,
            prev,
            hash: None,
            mac: None,
        }
    }

    /// Sets the line's MAC and returns it.
    pub(super) fn seal(&mut self, key: &AuditKey) -> String {
        let mac = key.mac(self.unsealed_text().as_bytes());
        self.mac = Some(mac.clone());
        mac
    }

    /// The hash by which versions without a key chained their lines.
    pub(super) fn unkeyed_hash(&mut self) -> String {
        to_hex(&Sha256::digest(self.unsealed_text().as_bytes()))
    }

    /// The text of the line, with its newline.
    pub(super) fn text(&self) -> String {
        let mut text = serde_json::to_string(self).unwrap_or_default();
        text.push('\n');
        text
    }

    fn unsealed_text(&mut self) -> String {
        self.hash = None;
        self.mac = None;
        serde_json::to_string(self).unwrap_or_default()
    }
}

pub(super) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
