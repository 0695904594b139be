//! The bound on label values that come from names and classes.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

// Bounds memory and metric cardinality when values have no small common set.
const MAX_LABEL_VALUES: usize = 100;

/// The value of a label for everything that has no value of its own.
pub const OTHER_LABEL: &str = "other";

/// The values of one label that have series of their own. Later ones share [`OTHER_LABEL`].
#[derive(Debug, Default)]
pub struct LabelValues {
    known: Mutex<HashSet<String>>,
}

impl LabelValues {
    /// The label value for this text.
    #[must_use]
    pub fn label_for<'a>(&self, value: &'a str) -> &'a str {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.contains(value) {
            if known.len() >= MAX_LABEL_VALUES {
                return OTHER_LABEL;
            }
            known.insert(value.to_owned());
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_beyond_the_limit_share_a_label() {
        let values = LabelValues::default();
        for number in 0..MAX_LABEL_VALUES {
            assert_eq!(values.label_for(&format!("v{number}")), format!("v{number}"));
        }
        assert_eq!(values.label_for("one more"), OTHER_LABEL);
        assert_eq!(values.label_for("v0"), "v0", "a known value keeps its label");
    }
}
