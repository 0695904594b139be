//! From a file's text to drafts: built-in classes, overridden and joined by the file's own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::builtin;
use super::draft::Draft;
use super::field::{Field, nearest};
use super::schema::{self, ClassText};
use crate::clock::Moment;
use crate::word::Invalid;

/// All classes by name, before overrides.
pub(crate) type Drafts = BTreeMap<Arc<str>, Draft>;

/// Reads, joins and checks a whole file.
pub(crate) fn compose(text: &str, path: &Arc<str>) -> Result<Drafts, Vec<Invalid>> {
    let (classes, mut problems) = schema::read(text, path);
    let mut join = Join {
        classes: classes
            .into_iter()
            .map(|class| (Arc::clone(&class.name), class))
            .collect(),
        drafts: builtin::drafts().clone(),
        done: Vec::new(),
        flawed: BTreeSet::new(),
    };
    let names: Vec<_> = join.classes.keys().cloned().collect();
    for name in &names {
        if let Err(problem) = join.class(name, &mut Vec::new())
            && !problems.contains(&problem)
        {
            problems.push(problem);
        }
    }
    for name in join.done.iter().filter(|name| !join.flawed.contains(*name)) {
        if let Some(Err(found)) = join.drafts.get(name).map(|draft| draft.resolve(Moment::ZERO)) {
            problems.extend(found);
        }
    }
    if problems.is_empty() {
        Ok(join.drafts)
    } else {
        Err(problems)
    }
}

/// All problems of a file as one error: each on a line of its own.
pub(crate) fn merge(path: &str, mut problems: Vec<Invalid>) -> Invalid {
    match problems.len() {
        1 => problems.remove(0),
        count => {
            let lines: String = problems.iter().map(|problem| format!("\n  {problem}")).collect();
            Invalid {
                field: path.to_owned(),
                given: format!("has {count} problems"),
                allowed: lines,
            }
        }
    }
}

struct Join {
    classes: BTreeMap<Arc<str>, ClassText>,
    /// Built-in classes at first; replaced and joined by the file's, each after its base.
    drafts: Drafts,
    done: Vec<Arc<str>>,
    /// Classes that could not be read whole, and those that inherit from them. Their problems have been told;
    /// sums over what is left would only raise more that are not there.
    flawed: BTreeSet<Arc<str>>,
}

impl Join {
    /// Joins one class of the file, after the one it inherits from.
    fn class(&mut self, name: &Arc<str>, below: &mut Vec<Arc<str>>) -> Result<(), Invalid> {
        if self.done.contains(name) {
            return Ok(());
        }
        let Some(class) = self.classes.get(name) else {
            return Ok(());
        };
        let inherits = class.inherits.clone();
        if class.flawed {
            self.flawed.insert(Arc::clone(name));
        }
        let mut draft = match inherits {
            Some((base, place)) => {
                below.push(Arc::clone(name));
                let base = self.base(name, &base, &place.place().unwrap_or_default(), below)?;
                below.pop();
                base
            }
            None => match builtin::drafts().get(name) {
                Some(builtin) => builtin.clone(),
                None => builtin::strictest(name),
            },
        };
        if let Some(class) = self.classes.get(name) {
            draft.fields.extend(
                class
                    .fields
                    .iter()
                    .map(|(field, stated)| (*field, stated.clone())),
            );
            if !draft.fields.contains_key(&Field::Ttl) && !self.flawed.contains(name) {
                return Err(Invalid {
                    field: format!("{}class.{name}.ttl", class.place.place().unwrap_or_default()),
                    given: "is missing".into(),
                    allowed: format!(
                        "a new class must state at least ttl (the rest starts from {}'s legs), or inherit: \
                         `inherits = \"{}\"`",
                        builtin::STRICTEST,
                        builtin::STRICTEST
                    ),
                });
            }
        }
        self.drafts.insert(Arc::clone(name), draft);
        self.done.push(Arc::clone(name));
        Ok(())
    }

    /// The draft that a class inherits, under its own name.
    fn base(
        &mut self,
        name: &Arc<str>,
        base: &str,
        place: &str,
        below: &mut Vec<Arc<str>>,
    ) -> Result<Draft, Invalid> {
        let field = format!("{place}class.{name}.inherits");
        if below.iter().any(|class| class.as_ref() == base) {
            let mut circle: Vec<&str> = below.iter().map(AsRef::as_ref).collect();
            circle.push(base);
            let why = format!("goes in a circle: {}", circle.join(" -> "));
            return Err(Invalid::new(field, base, why));
        }
        // Deep chains are unreadable long before they are a danger to the stack.
        if below.len() > 16 {
            return Err(Invalid::new(
                field,
                base,
                "at most 16 classes may inherit from each other in a row",
            ));
        }
        let Some(found) = self
            .classes
            .keys()
            .chain(self.drafts.keys())
            .find(|known| known.as_ref() == base)
            .cloned()
        else {
            let known: Vec<_> = self.classes.keys().chain(self.drafts.keys()).cloned().collect();
            return Err(Invalid::new(
                field,
                base,
                no_such_class(base, known.iter().map(AsRef::as_ref)),
            ));
        };
        self.class(&found, below)?;
        if self.flawed.contains(&found) {
            self.flawed.insert(Arc::clone(name));
        }
        let mut draft = self
            .drafts
            .get(&found)
            .cloned()
            .unwrap_or_else(|| builtin::strictest(name));
        draft.name = Arc::clone(name);
        Ok(draft)
    }
}

/// What to say about a class nobody knows.
pub(crate) fn no_such_class<'a>(typed: &str, known: impl Iterator<Item = &'a str>) -> String {
    let mut known: Vec<&str> = known.collect();
    known.sort_unstable();
    known.dedup();
    let hint = nearest(typed, known.iter().copied()).map_or_else(
        || "; known".to_owned(),
        |near| format!("; did you mean `{near}`? Known"),
    );
    format!("there is no such class{hint} are {}", known.join(", "))
}
