//! One configuration file: its settings with the line each stands in, and every problem told at once.
//!
//! The classes in it are the policy book's to read; here it only counts whether there are any.

use std::path::{Path, PathBuf};

use anyhow::bail;
use leasehold::policy::{SETTINGS, nearest};
use leasehold::{Holder, StoreUrl};
use toml::de::{DeTable, DeValue};

use super::Settings;
use super::layers::Valued;

/// A configuration file larger than this is not one.
const LARGEST: u64 = 1024 * 1024;

/// What a file says.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Its settings.
    pub(super) settings: Settings,
    /// It has `[class.NAME]` tables.
    pub(super) classes: bool,
}

/// Reads a file; `None` if there is none.
///
/// # Errors
/// It cannot be read, or something in it is not a setting: every problem, with its line.
pub(super) fn read(path: &Path) -> anyhow::Result<Option<Found>> {
    let shown = path.display();
    match std::fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => bail!("cannot read {shown}: {error}"),
        Ok(found) if !found.is_file() => {
            bail!("{shown} is not a file: name a configuration file, or move it away")
        }
        Ok(found) if found.len() > LARGEST => {
            bail!(
                "{shown} has {} bytes; a configuration file has at most {LARGEST}",
                found.len()
            )
        }
        Ok(_) => {}
    }
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => bail!("cannot read {shown}: {error}"),
    };
    parse(&text, path).map(Some)
}

/// What is wrong with the values of settings in a file that may have classes too; keys that are not known are the policy
/// book's to tell.
pub(crate) fn problems(text: &str, path: &Path) -> Vec<String> {
    let (found, problems) = examine(text, path);
    let known =
        |problem: &String| !problem.contains("this key is unknown") && !problem.contains("is not TOML");
    let mut problems: Vec<_> = problems.into_iter().filter(known).collect();
    let Settings { store, holder, .. } = found.settings;
    if let Some(store) = store
        && let Err(invalid) = StoreUrl::parse(&store.value)
    {
        problems.push(format!("{}: {invalid}", store.origin));
    }
    if let Some(holder) = holder
        && let Err(invalid) = Holder::new(&holder.value)
    {
        problems.push(format!("{}: {invalid}", holder.origin));
    }
    problems
}

fn parse(text: &str, path: &Path) -> anyhow::Result<Found> {
    let (found, mut problems) = examine(text, path);
    match problems.len() {
        0 => Ok(found),
        1 => bail!("{}", problems.remove(0)),
        more => bail!("{}\n(and {} more in this file)", problems.remove(0), more - 1),
    }
}

/// What a text says, and everything that is wrong with it.
fn examine(text: &str, path: &Path) -> (Found, Vec<String>) {
    let mut found = Found::default();
    let (document, errors) = DeTable::parse_recoverable(text);
    let mut problems: Vec<String> = errors
        .iter()
        .map(|error| {
            let line = line_of(text, error.span().map_or(0, |span| span.start));
            format!(
                "{}:{line}: is not TOML: {}",
                path.display(),
                error.message().replace('\n', "; ")
            )
        })
        .collect();
    if problems.is_empty() {
        for (key, value) in document.get_ref() {
            let name = key.get_ref().as_ref();
            let line = line_of(text, key.span().start);
            if name == "class" {
                found.classes = true;
            } else if let Err(why) = take(&mut found.settings, name, value.get_ref(), path, line) {
                problems.push(format!("{}:{line}: {name}: {why}", path.display()));
            }
        }
    }
    (found, problems)
}

fn take(
    settings: &mut Settings,
    name: &str,
    value: &DeValue<'_>,
    path: &Path,
    line: usize,
) -> Result<(), String> {
    let at = format!("{}:{line}", path.display());
    if !SETTINGS.contains(&name) {
        let near = nearest(name, SETTINGS.iter().copied().chain(["class"]));
        let hint = near.map_or_else(String::new, |near| format!("did you mean `{near}`? "));
        return Err(format!(
            "this key is unknown: {hint}Known here: {}, and [class.NAME] tables",
            SETTINGS.join(", ")
        ));
    }
    let DeValue::String(text) = value else {
        return Err(format!(
            "must be a text in quotes; this is of type {}",
            value.type_str()
        ));
    };
    let text = text.to_string();
    if text.is_empty() {
        return Err("is empty; leave it out instead".into());
    }
    match name {
        "store" => settings.store = Some(Valued::new(text, at)),
        "policies" => settings.policies = Some(Valued::new(beside(path, &text), at)),
        "holder" => settings.holder = Some(Valued::new(text, at)),
        "timeout" => {
            let timeout = crate::span::parse(&text)?;
            settings.timeout = Some(Valued::new(timeout, at));
        }
        // The list of known keys is longer than this match only if someone forgot one.
        _ => settings.audit_file = Some(Valued::new(beside(path, &text), at)),
    }
    Ok(())
}

/// A path in a file is seen from that file.
fn beside(file: &Path, path: &str) -> PathBuf {
    file.parent().unwrap_or(Path::new("")).join(path)
}

fn line_of(text: &str, offset: usize) -> usize {
    1 + text
        .as_bytes()
        .iter()
        .take(offset)
        .filter(|byte| **byte == b'\n')
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> String {
        parse(text, Path::new("/etc/x/config.toml"))
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn every_setting_is_read_with_its_line() {
        let text = "store = \"memory:\"\npolicies = \"p.toml\"\nholder = \"h\"\ntimeout = \"2s\"\naudit_file = \"/a\"\n\
                    [class.x]\nttl = \"1s\"\n";
        let found = parse(text, Path::new("/etc/x/config.toml")).unwrap();
        let settings = found.settings;
        assert!(found.classes);
        assert_eq!(settings.store.unwrap().value, "memory:");
        let policies = settings.policies.unwrap();
        assert_eq!(policies.value, Path::new("/etc/x/p.toml"));
        assert_eq!(policies.origin, "/etc/x/config.toml:2");
        assert_eq!(settings.holder.unwrap().value, "h");
        assert_eq!(settings.timeout.unwrap().value.as_secs(), 2);
        assert_eq!(settings.audit_file.unwrap().value, Path::new("/a"));
    }

    #[test]
    fn what_cannot_be_used_names_the_line_and_what_is_allowed() {
        for (text, expected) in [
            (
                "\nstor = \"x\"",
                "config.toml:2: stor: this key is unknown: did you mean `store`?",
            ),
            ("timeout = \"5\"", "timeout"),
            ("timeout = 5", "must be a text in quotes; this is of type integer"),
            ("holder = \"\"", "is empty"),
            ("store = \"a\"\nstore = \"b\"", "is not TOML"),
            ("colour = \"x\"", "Known here: audit_file, holder"),
        ] {
            let said = said(text);
            assert!(said.contains(expected), "{text}: {said}");
        }
        assert!(said("a = 1\nb = 2").contains("and 1 more"));
    }
}
