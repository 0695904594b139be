//! Builds the drafts of all classes: the built-in ones, changed and extended by a file.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::builtin;
use super::draft::Draft;
use super::field::{Field, nearest};
use super::schema::{self, ClassText};
use crate::clock::Moment;
use crate::types::InvalidInput;

// A longer chain is unreadable long before it endangers the stack.
const MAX_INHERITANCE_DEPTH: usize = 16;

/// All classes by name, before overrides.
pub(crate) type Drafts = BTreeMap<Arc<str>, Draft>;

/// Reads a whole file, joins it with the built-in classes and checks the result.
pub(crate) fn read_drafts(text: &str, path: &Arc<str>) -> Result<Drafts, Vec<InvalidInput>> {
    let (classes, mut problems) = schema::read(text, path);
    let mut join = ClassJoiner {
        classes: classes.into_iter().map(|class| (Arc::clone(&class.name), class)).collect(),
        drafts: builtin::drafts().clone(),
        joined: Vec::new(),
        flawed: BTreeSet::new(),
    };
    let names: Vec<_> = join.classes.keys().cloned().collect();
    for name in &names {
        if let Err(problem) = join.join_class(name, &mut Vec::new())
            && !problems.contains(&problem)
        {
            problems.push(problem);
        }
    }
    for name in join.joined.iter().filter(|name| !join.flawed.contains(*name)) {
        if let Some(Err(found)) = join.drafts.get(name).map(|draft| draft.resolve(Moment::ZERO)) {
            problems.extend(found);
        }
    }
    if problems.is_empty() { Ok(join.drafts) } else { Err(problems) }
}

/// Joins all problems of a file into one error, one per line.
pub(crate) fn merge_problems(path: &str, mut problems: Vec<InvalidInput>) -> InvalidInput {
    match problems.len() {
        1 => problems.remove(0),
        count => {
            let lines: String = problems.iter().map(|problem| format!("\n  {problem}")).collect();
            InvalidInput { field: path.to_owned(), given: format!("has {count} problems"), allowed: lines }
        }
    }
}

struct ClassJoiner {
    classes: BTreeMap<Arc<str>, ClassText>,
    // Starts with the built-in classes; each class of the file is joined after its base.
    drafts: Drafts,
    joined: Vec<Arc<str>>,
    // Classes with unreadable parts, and those that inherit from them. Their problems are already
    // reported; checks of the rest would report false ones.
    flawed: BTreeSet<Arc<str>>,
}

impl ClassJoiner {
    /// Joins one class of the file, after the class that it inherits from.
    fn join_class(&mut self, name: &Arc<str>, below: &mut Vec<Arc<str>>) -> Result<(), InvalidInput> {
        if self.joined.contains(name) {
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
                let base =
                    self.base_draft(name, &base, &place.message_prefix().unwrap_or_default(), below)?;
                below.pop();
                base
            }
            None => match builtin::drafts().get(name) {
                Some(builtin) => builtin.clone(),
                None => builtin::draft_of_strictest(name),
            },
        };
        if let Some(class) = self.classes.get(name) {
            draft.fields.extend(class.fields.iter().map(|(field, stated)| (*field, stated.clone())));
            if !draft.fields.contains_key(&Field::Ttl) && !self.flawed.contains(name) {
                return Err(InvalidInput {
                    field: format!("{}class.{name}.ttl", class.place.message_prefix().unwrap_or_default()),
                    given: "is missing".into(),
                    allowed: format!(
                        "a new class must state at least ttl (the rest starts from {}'s legs), or inherit: \
                         `inherits = \"{}\"`",
                        builtin::STRICTEST_CLASS,
                        builtin::STRICTEST_CLASS
                    ),
                });
            }
        }
        self.drafts.insert(Arc::clone(name), draft);
        self.joined.push(Arc::clone(name));
        Ok(())
    }

    /// How many classes a class inherits from, directly or not.
    fn count_ancestors(&self, name: &str) -> usize {
        let base = |name: &str| Some(self.classes.get(name)?.inherits.as_ref()?.0.as_str());
        let mut seen = BTreeSet::new();
        // A set: classes that go in a circle have another error of their own.
        std::iter::successors(base(name), |name| base(name)).take_while(|name| seen.insert(*name)).count()
    }

    /// The inherited draft, under the name of the new class.
    fn base_draft(
        &mut self,
        name: &Arc<str>,
        base: &str,
        place: &str,
        below: &mut Vec<Arc<str>>,
    ) -> Result<Draft, InvalidInput> {
        let field = format!("{place}class.{name}.inherits");
        if below.iter().any(|class| class.as_ref() == base) {
            let mut circle: Vec<&str> = below.iter().map(AsRef::as_ref).collect();
            circle.push(base);
            let why = format!("goes in a circle: {}", circle.join(" -> "));
            return Err(InvalidInput::new(field, base, why));
        }
        if self.count_ancestors(name) > MAX_INHERITANCE_DEPTH {
            let why = format!("at most {MAX_INHERITANCE_DEPTH} classes may inherit from each other in a row");
            return Err(InvalidInput::new(field, base, why));
        }
        let Some(found) =
            self.classes.keys().chain(self.drafts.keys()).find(|known| known.as_ref() == base).cloned()
        else {
            let known: Vec<_> = self.classes.keys().chain(self.drafts.keys()).cloned().collect();
            return Err(InvalidInput::new(
                field,
                base,
                unknown_class_message(base, known.iter().map(AsRef::as_ref)),
            ));
        };
        self.join_class(&found, below)?;
        if self.flawed.contains(&found) {
            self.flawed.insert(Arc::clone(name));
        }
        let mut draft = self.drafts.get(&found).cloned().unwrap_or_else(|| builtin::draft_of_strictest(name));
        draft.name = Arc::clone(name);
        Ok(draft)
    }
}

/// The message about an unknown class.
pub(crate) fn unknown_class_message<'a>(typed: &str, known: impl Iterator<Item = &'a str>) -> String {
    let mut known: Vec<&str> = known.collect();
    known.sort_unstable();
    known.dedup();
    let hint = nearest(typed, known.iter().copied())
        .map_or_else(|| "; known".to_owned(), |near| format!("; did you mean `{near}`? Known"));
    format!("there is no such class{hint} are {}", known.join(", "))
}
