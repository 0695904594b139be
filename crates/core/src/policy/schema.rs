//! The policy file's shape: `[class.NAME]` with fields and the three legs `acquire`, `renew`, `release`.
//!
//! The file is walked with the position of every key, not deserialised into structs: so all its problems are
//! told at once, each with its line, and every value remembers where it stands.

use std::collections::BTreeMap;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::check::check_name;
use super::draft::Stated;
use super::field::{Field, nearest};
use super::origin::Origin;
use super::setting::{Raw, Setting};
use crate::word::Invalid;

/// What a file says about one class.
#[derive(Debug)]
pub(crate) struct ClassText {
    pub(crate) name: Arc<str>,
    /// Where it begins.
    pub(crate) place: Origin,
    /// The class it starts from, and where that is said.
    pub(crate) inherits: Option<(String, Origin)>,
    pub(crate) fields: BTreeMap<Field, Stated>,
    /// Something in it could not be read, so what it lacks may only have been mistyped.
    pub(crate) flawed: bool,
}

/// What a configuration file may say besides its classes: the command's own settings, which `leasehold` reads. Here they
/// are passed over, so that one `leasehold.toml` serves the command and every program that opens it as its policies.
pub const SETTINGS: &[&str] = &["audit_file", "holder", "policies", "store", "timeout"];

/// The legs of a class: tables within it.
const LEGS: [&str; 3] = ["acquire", "renew", "release"];

/// Reads a file's text. What could be read comes back even if other parts have problems.
pub(crate) fn read(text: &str, path: &Arc<str>) -> (Vec<ClassText>, Vec<Invalid>) {
    let (document, errors) = DeTable::parse_recoverable(text);
    let mut reader = Reader {
        text,
        path,
        problems: Vec::new(),
    };
    for error in errors {
        let place = reader.place(error.span().map_or(0, |span| span.start));
        reader.problems.push(Invalid {
            field: place
                .place()
                .unwrap_or_default()
                .trim_end_matches([':', ' '])
                .to_owned(),
            given: "is not TOML".into(),
            allowed: error.message().replace('\n', "; "),
        });
    }
    // After a syntax error the recovered rest would raise problems that are not there.
    if !reader.problems.is_empty() {
        return (Vec::new(), reader.problems);
    }
    let mut classes = Vec::new();
    for (key, value) in document.get_ref() {
        match (key.get_ref().as_ref(), value.get_ref()) {
            ("class", DeValue::Table(table)) => {
                for (name, value) in table {
                    classes.extend(reader.class(name.get_ref(), name.span().start, value));
                }
            }
            ("class", _) => reader.problem(
                key.span().start,
                "class",
                "",
                "must be tables: write [class.NAME]",
            ),
            (other, _) if SETTINGS.contains(&other) => {}
            (other, _) => {
                let known = ["class"].into_iter().chain(SETTINGS.iter().copied());
                let all = format!("[class.NAME] tables, and before them {}", SETTINGS.join(", "));
                let why = unknown(other, known, &all);
                reader.problem(key.span().start, other, "", &why);
            }
        }
    }
    (classes, reader.problems)
}

struct Reader<'a> {
    text: &'a str,
    path: &'a Arc<str>,
    problems: Vec<Invalid>,
}

impl Reader<'_> {
    /// The line of a byte offset.
    fn place(&self, offset: usize) -> Origin {
        let before = self.text.as_bytes().iter().take(offset);
        Origin::File {
            path: Arc::clone(self.path),
            line: 1 + before.filter(|byte| **byte == b'\n').count(),
        }
    }

    fn problem(&mut self, offset: usize, field: &str, given: &str, why: &str) {
        let place = self.place(offset).place().unwrap_or_default();
        let field = format!("{place}{field}");
        self.problems.push(if given.is_empty() {
            Invalid {
                field,
                given: "is not allowed".into(),
                allowed: why.into(),
            }
        } else {
            Invalid::new(field, given, why)
        });
    }

    fn class(&mut self, name: &str, at: usize, value: &Spanned<DeValue<'_>>) -> Option<ClassText> {
        if let Err(invalid) = check_name(name) {
            self.problem(at, "class", name, &invalid.allowed);
            return None;
        }
        let DeValue::Table(table) = value.get_ref() else {
            let why = format!("must be a table: write [class.{name}]");
            self.problem(at, &format!("class.{name}"), "", &why);
            return None;
        };
        let mut class = ClassText {
            name: name.into(),
            place: self.place(at),
            inherits: None,
            fields: BTreeMap::new(),
            flawed: false,
        };
        let before = self.problems.len();
        for (spanned, value) in table {
            let (key, at) = (spanned.get_ref().as_ref(), spanned.span().start);
            match (key, value.get_ref()) {
                ("inherits", DeValue::String(base)) => {
                    class.inherits = Some((base.clone().into_owned(), self.place(at)));
                }
                ("inherits", _) => {
                    let why = "must be the name of a class, e.g. \"scheduler\"";
                    self.problem(at, &format!("class.{name}.inherits"), "", why);
                }
                (leg, DeValue::Table(fields)) if LEGS.contains(&leg) => {
                    for (key, value) in fields {
                        self.field(&mut class, leg, key, value);
                    }
                }
                (leg, _) if LEGS.contains(&leg) => {
                    let why = format!("must be a table: write [class.{name}.{leg}]");
                    self.problem(at, &format!("class.{name}.{leg}"), "", &why);
                }
                _ => self.field(&mut class, "", spanned, value),
            }
        }
        class.flawed = self.problems.len() > before;
        Some(class)
    }

    fn field(
        &mut self,
        class: &mut ClassText,
        leg: &str,
        key: &Spanned<DeString<'_>>,
        value: &Spanned<DeValue<'_>>,
    ) {
        let (key, at) = (key.get_ref().as_ref(), key.span().start);
        let path = if leg.is_empty() {
            key.to_owned()
        } else {
            format!("{leg}.{key}")
        };
        let full = format!("class.{}.{path}", class.name);
        // A dotted key in quotes, `"renew.every" = …`, is one odd key and not the field of that path.
        let Some(field) = Field::find(&path).filter(|_| !key.contains('.')) else {
            return self.problem(at, &full, "", &unknown_field(leg, key));
        };
        let raw = raw(value.get_ref());
        match Setting::read(field, &raw) {
            Ok(setting) => {
                let origin = self.place(at);
                class.fields.insert(field, Stated { setting, origin });
            }
            Err(why) => self.problem(at, &full, &raw.given(), &why),
        }
    }
}

/// A TOML value as a setting is read from it.
fn raw<'a>(value: &'a DeValue<'_>) -> Raw<'a> {
    match value {
        DeValue::String(text) => Raw::Text(text),
        DeValue::Integer(number) if number.radix() == 10 => Raw::Integer(number.as_str()),
        DeValue::Array(items) => items
            .iter()
            .map(|item| item.get_ref().as_str())
            .collect::<Option<Vec<_>>>()
            .map_or(Raw::Other("list of other things than texts"), Raw::List),
        other => Raw::Other(other.type_str()),
    }
}

/// What to say about a key nobody knows.
fn unknown<'a>(typed: &str, known: impl IntoIterator<Item = &'a str> + Clone, all: &str) -> String {
    let hint = nearest(typed, known).map_or_else(String::new, |near| format!(": did you mean `{near}`?"));
    let stop = if hint.is_empty() { "." } else { "" };
    format!("this key is unknown{hint}{stop} Known here: {all}")
}

/// The same for a field, which may also be right but stand in the wrong table.
fn unknown_field(leg: &str, key: &str) -> String {
    let here = |field: &Field| {
        let path = field.path();
        match path.split_once('.') {
            Some((at, key)) => (at == leg).then_some(key),
            None => leg.is_empty().then_some(path),
        }
    };
    let mut known: Vec<&str> = Field::ALL.iter().filter_map(here).collect();
    if leg.is_empty() {
        known.extend(LEGS);
        known.push("inherits");
    }
    let elsewhere = Field::ALL
        .iter()
        .map(|field| field.path())
        .find(|path| *path == key || path.rsplit('.').next() == Some(key));
    if let Some(elsewhere) = elsewhere.filter(|_| nearest(key, known.iter().copied()) != Some(key)) {
        return format!("this key is unknown here: did you mean `{elsewhere}`?");
    }
    unknown(key, known.iter().copied(), &known.join(", "))
}
