//! The built-in classes: the same kind of text as any policy file, read by the same code.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use super::draft::{Draft, Stated};
use super::field::Field;
use super::origin::Origin;
use super::schema;

/// The built-in classes as a policy file.
pub const BUILTIN: &str = include_str!("builtin.toml");

/// The class whose legs a new class starts from: the strictest.
pub(crate) const STRICTEST: &str = "scheduler";

/// What a new class does not take from the strictest: those belong to the scheduler's own work.
const OWN: [Field; 4] = [Field::Ttl, Field::Poll, Field::MaxHold, Field::Escalate];

static DRAFTS: LazyLock<BTreeMap<Arc<str>, Draft>> = LazyLock::new(|| {
    let (classes, problems) = schema::read(BUILTIN, &"built-in".into());
    debug_assert!(problems.is_empty(), "{problems:?}");
    let draft = |class: schema::ClassText| {
        let origin = Origin::BuiltIn {
            class: Arc::clone(&class.name),
        };
        let stated = |(field, stated): (Field, Stated)| {
            let origin = origin.clone();
            (field, Stated { origin, ..stated })
        };
        let fields = class.fields.into_iter().map(stated).collect();
        let name = class.name;
        (Arc::clone(&name), Draft { name, fields })
    };
    classes.into_iter().map(draft).collect()
});

/// All built-in classes.
pub(crate) fn drafts() -> &'static BTreeMap<Arc<str>, Draft> {
    &DRAFTS
}

/// What a new class starts from.
pub(crate) fn strictest(name: &Arc<str>) -> Draft {
    let mut fields = drafts()
        .get(STRICTEST)
        .map_or_else(BTreeMap::new, |draft| draft.fields.clone());
    for own in OWN {
        fields.remove(&own);
    }
    Draft {
        name: Arc::clone(name),
        fields,
    }
}
