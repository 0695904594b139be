//! Reads the policy file: `[class.NAME]` with fields and the three legs `acquire`, `renew`,
//! `release`.
//!
//! The file is walked with the position of every key and not deserialised into structs. So all
//! problems are reported at once, each with its line, and every value keeps its position.

use std::collections::BTreeMap;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::check::check_name;
use super::draft::SettingWithOrigin;
use super::field::{Field, nearest};
use super::origin::Origin;
use super::setting::{RawValue, Setting};
use crate::types::InvalidInput;

/// One class of a file.
#[derive(Debug)]
pub(crate) struct ClassText {
    pub(crate) name: Arc<str>,
    pub(crate) place: Origin,
    // The base class, and the position of that statement.
    pub(crate) inherits: Option<(String, Origin)>,
    pub(crate) fields: BTreeMap<Field, SettingWithOrigin>,
    // A part could not be read, so a missing field may only be mistyped.
    pub(crate) flawed: bool,
}

/// The settings of the command line program in the same file. They are skipped here, so that one
/// `leasehold.toml` serves the command and every program that reads its policies.
pub const CLI_SETTING_KEYS: &[&str] = &["audit_file", "holder", "policies", "store", "timeout"];

// Tables within a class.
const CLASS_LEGS: [&str; 3] = ["acquire", "renew", "release"];

/// Parses a file. Returns the readable classes even if other parts have problems.
pub(crate) fn read(text: &str, path: &Arc<str>) -> (Vec<ClassText>, Vec<InvalidInput>) {
    let (document, errors) = DeTable::parse_recoverable(text);
    let mut reader = PolicyFileReader { text, path, problems: Vec::new() };
    for error in errors {
        let place = reader.line_origin(error.span().map_or(0, |span| span.start));
        reader.problems.push(InvalidInput {
            field: place.message_prefix().unwrap_or_default().trim_end_matches([':', ' ']).to_owned(),
            given: "is not TOML".into(),
            allowed: error.message().replace('\n', "; "),
        });
    }
    // After a syntax error the recovered rest would cause false problems.
    if !reader.problems.is_empty() {
        return (Vec::new(), reader.problems);
    }
    let mut classes = Vec::new();
    for (key, value) in document.get_ref() {
        match (key.get_ref().as_ref(), value.get_ref()) {
            ("class", DeValue::Table(table)) => {
                for (name, value) in table {
                    classes.extend(reader.read_class(name.get_ref(), name.span().start, value));
                }
            }
            ("class", _) => {
                reader.report_problem(key.span().start, "class", "", "must be tables: write [class.NAME]")
            }
            (other, _) if CLI_SETTING_KEYS.contains(&other) => {}
            (other, _) => {
                let known = ["class"].into_iter().chain(CLI_SETTING_KEYS.iter().copied());
                let all = format!("[class.NAME] tables, and before them {}", CLI_SETTING_KEYS.join(", "));
                let why = unknown_key_message(other, known, &all);
                reader.report_problem(key.span().start, other, "", &why);
            }
        }
    }
    (classes, reader.problems)
}

struct PolicyFileReader<'a> {
    text: &'a str,
    path: &'a Arc<str>,
    problems: Vec<InvalidInput>,
}

impl PolicyFileReader<'_> {
    /// The origin for a byte offset, with its line.
    fn line_origin(&self, offset: usize) -> Origin {
        let before = self.text.as_bytes().iter().take(offset);
        Origin::File { path: Arc::clone(self.path), line: 1 + before.filter(|byte| **byte == b'\n').count() }
    }

    fn report_problem(&mut self, offset: usize, field: &str, given: &str, why: &str) {
        let place = self.line_origin(offset).message_prefix().unwrap_or_default();
        let field = format!("{place}{field}");
        self.problems.push(if given.is_empty() {
            InvalidInput { field, given: "is not allowed".into(), allowed: why.into() }
        } else {
            InvalidInput::new(field, given, why)
        });
    }

    fn read_class(&mut self, name: &str, at: usize, value: &Spanned<DeValue<'_>>) -> Option<ClassText> {
        if let Err(invalid) = check_name(name) {
            self.report_problem(at, "class", name, &invalid.allowed);
            return None;
        }
        let DeValue::Table(table) = value.get_ref() else {
            let why = format!("must be a table: write [class.{name}]");
            self.report_problem(at, &format!("class.{name}"), "", &why);
            return None;
        };
        let mut class = ClassText {
            name: name.into(),
            place: self.line_origin(at),
            inherits: None,
            fields: BTreeMap::new(),
            flawed: false,
        };
        let before = self.problems.len();
        for (spanned, value) in table {
            let (key, at) = (spanned.get_ref().as_ref(), spanned.span().start);
            match (key, value.get_ref()) {
                ("inherits", DeValue::String(base)) => {
                    class.inherits = Some((base.clone().into_owned(), self.line_origin(at)));
                }
                ("inherits", _) => {
                    let why = "must be the name of a class, e.g. \"scheduler\"";
                    self.report_problem(at, &format!("class.{name}.inherits"), "", why);
                }
                (leg, DeValue::Table(fields)) if CLASS_LEGS.contains(&leg) => {
                    for (key, value) in fields {
                        self.read_field(&mut class, leg, key, value);
                    }
                }
                (leg, _) if CLASS_LEGS.contains(&leg) => {
                    let why = format!("must be a table: write [class.{name}.{leg}]");
                    self.report_problem(at, &format!("class.{name}.{leg}"), "", &why);
                }
                _ => self.read_field(&mut class, "", spanned, value),
            }
        }
        class.flawed = self.problems.len() > before;
        Some(class)
    }

    fn read_field(
        &mut self,
        class: &mut ClassText,
        leg: &str,
        key: &Spanned<DeString<'_>>,
        value: &Spanned<DeValue<'_>>,
    ) {
        let (key, at) = (key.get_ref().as_ref(), key.span().start);
        let path = if leg.is_empty() { key.to_owned() } else { format!("{leg}.{key}") };
        let full = format!("class.{}.{path}", class.name);
        // A quoted dotted key, `"renew.every" = …`, is one odd key and not the field of that path.
        let Some(field) = Field::find(&path).filter(|_| !key.contains('.')) else {
            return self.report_problem(at, &full, "", &unknown_field_message(leg, key));
        };
        let raw = raw_value(value.get_ref());
        match Setting::read(field, &raw) {
            Ok(setting) => {
                let origin = self.line_origin(at);
                class.fields.insert(field, SettingWithOrigin { setting, origin });
            }
            Err(why) => self.report_problem(at, &full, &raw.given(), &why),
        }
    }
}

/// Converts a TOML value for [`Setting::read`].
fn raw_value<'a>(value: &'a DeValue<'_>) -> RawValue<'a> {
    match value {
        DeValue::String(text) => RawValue::Text(text),
        DeValue::Integer(number) if number.radix() == 10 => RawValue::Integer(number.as_str()),
        DeValue::Array(items) => items
            .iter()
            .map(|item| item.get_ref().as_str())
            .collect::<Option<Vec<_>>>()
            .map_or(RawValue::Other("list of other things than texts"), RawValue::List),
        other => RawValue::Other(other.type_str()),
    }
}

/// The message about an unknown key.
fn unknown_key_message<'a>(
    typed: &str,
    known: impl IntoIterator<Item = &'a str> + Clone,
    all: &str,
) -> String {
    let hint = nearest(typed, known).map_or_else(String::new, |near| format!(": did you mean `{near}`?"));
    let stop = if hint.is_empty() { "." } else { "" };
    format!("this key is unknown{hint}{stop} Known here: {all}")
}

/// The message about an unknown field, which may also be a known one in the wrong table.
fn unknown_field_message(leg: &str, key: &str) -> String {
    let here = |field: &Field| {
        let path = field.path();
        match path.split_once('.') {
            Some((at, key)) => (at == leg).then_some(key),
            None => leg.is_empty().then_some(path),
        }
    };
    let mut known: Vec<&str> = Field::ALL.iter().filter_map(here).collect();
    if leg.is_empty() {
        known.extend(CLASS_LEGS);
        known.push("inherits");
    }
    let elsewhere = Field::ALL
        .iter()
        .map(|field| field.path())
        .find(|path| *path == key || path.rsplit('.').next() == Some(key));
    if let Some(elsewhere) = elsewhere.filter(|_| nearest(key, known.iter().copied()) != Some(key)) {
        return format!("this key is unknown here: did you mean `{elsewhere}`?");
    }
    unknown_key_message(key, known.iter().copied(), &known.join(", "))
}
