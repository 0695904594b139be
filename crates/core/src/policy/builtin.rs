//! The built-in classes: text like any policy file, read by the same code.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use super::draft::{Draft, SettingWithOrigin};
use super::field::Field;
use super::origin::Origin;
use super::schema;

/// The built-in classes as a policy file.
pub const BUILTIN_POLICIES: &str = include_str!("builtin.toml");

// A new class starts from the strictest legs: a policy that states little must not be lax.
pub(crate) const STRICTEST_CLASS: &str = "scheduler";

// These belong to the scheduler's own work, so a new class does not take them.
const NOT_INHERITED: [Field; 4] = [Field::Ttl, Field::Poll, Field::MaxHold, Field::Escalate];

static BUILTIN_DRAFTS: LazyLock<BTreeMap<Arc<str>, Draft>> = LazyLock::new(|| {
    let (classes, problems) = schema::read(BUILTIN_POLICIES, &"built-in".into());
    debug_assert!(problems.is_empty(), "{problems:?}");
    let draft = |class: schema::ClassText| {
        let origin = Origin::BuiltIn { class: Arc::clone(&class.name) };
        let stated = |(field, stated): (Field, SettingWithOrigin)| {
            let origin = origin.clone();
            (field, SettingWithOrigin { origin, ..stated })
        };
        let fields = class.fields.into_iter().map(stated).collect();
        let name = class.name;
        (Arc::clone(&name), Draft { name, fields })
    };
    classes.into_iter().map(draft).collect()
});

/// All built-in classes.
pub(crate) fn drafts() -> &'static BTreeMap<Arc<str>, Draft> {
    &BUILTIN_DRAFTS
}

/// The draft that a new class starts from.
pub(crate) fn draft_of_strictest(name: &Arc<str>) -> Draft {
    let mut fields = drafts().get(STRICTEST_CLASS).map_or_else(BTreeMap::new, |draft| draft.fields.clone());
    for own in NOT_INHERITED {
        fields.remove(&own);
    }
    Draft { name: Arc::clone(name), fields }
}
