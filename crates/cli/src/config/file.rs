//! Reads one configuration file: settings with their line numbers, and all problems at once.
//!
//! The policy book reads the `[class.NAME]` tables; this module only notes whether there are any.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::bail;
use leasehold::policy::{CLI_SETTING_KEYS, nearest};
use leasehold::{Holder, StoreUrl};
use leasehold_core::bounded_read::read_bounded;
use toml::de::{DeTable, DeValue};

use super::LayerSettings;
use super::layers::WithOrigin;
use super::restricted::ForeignWriter;

// A larger file is no configuration file; the path is probably wrong.
const MAX_CONFIG_BYTES: u64 = 1024 * 1024;

#[derive(Debug, Default)]
pub(super) struct FileSettings {
    pub(super) settings: LayerSettings,
    /// The whole text, if the file has `[class.NAME]` tables.
    pub(super) classes: Option<String>,
}

/// A configuration file as it was read.
#[derive(Debug)]
pub(super) struct ConfigFile {
    pub(super) found: FileSettings,
    pub(super) text: String,
    /// Who owns the file and who may write it.
    pub(super) owner: FileOwner,
}

/// The owner and the mode of an open file.
#[derive(Debug, Clone, Copy)]
pub(super) struct FileOwner {
    uid: u32,
    mode: u32,
}

impl FileOwner {
    pub(super) fn of(meta: &Metadata) -> Self {
        Self { uid: meta.uid(), mode: meta.mode() }
    }

    /// Why another user could have written the file; `None` if only this user and root can.
    pub(super) fn foreign_writer(self) -> Option<ForeignWriter> {
        if self.uid != 0 && self.uid != rustix::process::geteuid().as_raw() {
            Some(ForeignWriter::Owner)
        } else if self.mode & 0o022 != 0 {
            Some(ForeignWriter::Mode)
        } else {
            None
        }
    }
}

/// Reads a file; `None` if it does not exist.
///
/// # Errors
/// The file cannot be read, or a key or value is invalid.
pub(super) fn read(path: &Path) -> anyhow::Result<Option<ConfigFile>> {
    let shown = path.display();
    let file = match read_bounded(path, MAX_CONFIG_BYTES) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => bail!("cannot read {shown}: {error}\nname a configuration file, or move it away"),
        Ok(file) => file,
    };
    let owner = FileOwner::of(&file.metadata);
    let text = String::from_utf8(file.bytes)
        .map_err(|_| anyhow::anyhow!("cannot read {shown}: it is not UTF-8 text; save it as UTF-8"))?;
    let found = parse_config(&text, path)?;
    Ok(Some(ConfigFile { found, text, owner }))
}

/// Problems of settings in a file that may have classes too.
pub(crate) fn settings_problems(text: &str, path: &Path) -> Vec<String> {
    let (found, problems) = parse_settings(text, path);
    // The policy book reports unknown keys and syntax errors of the same file; do not print them twice.
    let known =
        |problem: &String| !problem.contains("this key is unknown") && !problem.contains("is not TOML");
    let mut problems: Vec<_> = problems.into_iter().filter(known).collect();
    let LayerSettings { store, holder, .. } = found.settings;
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

fn parse_config(text: &str, path: &Path) -> anyhow::Result<FileSettings> {
    let (found, mut problems) = parse_settings(text, path);
    match problems.len() {
        0 => Ok(found),
        1 => bail!("{}", problems.remove(0)),
        more => bail!("{}\n(and {} more in this file)", problems.remove(0), more - 1),
    }
}

/// The settings of a text, and everything that is wrong with it.
fn parse_settings(text: &str, path: &Path) -> (FileSettings, Vec<String>) {
    let mut found = FileSettings::default();
    // `parse_recoverable` reports several syntax errors in one pass.
    let (document, errors) = DeTable::parse_recoverable(text);
    let mut problems: Vec<String> = errors
        .iter()
        .map(|error| {
            let line = line_of(text, error.span().map_or(0, |span| span.start));
            format!("{}:{line}: is not TOML: {}", path.display(), error.message().replace('\n', "; "))
        })
        .collect();
    // After a syntax error the table is incomplete, and its keys would cause misleading problems.
    if problems.is_empty() {
        for (key, value) in document.get_ref() {
            let name = key.get_ref().as_ref();
            let line = line_of(text, key.span().start);
            if name == "class" {
                found.classes = Some(text.to_owned());
            } else if let Err(why) = apply_setting(&mut found.settings, name, value.get_ref(), path, line) {
                problems.push(format!("{}:{line}: {name}: {why}", path.display()));
            }
        }
    }
    (found, problems)
}

fn apply_setting(
    settings: &mut LayerSettings,
    name: &str,
    value: &DeValue<'_>,
    path: &Path,
    line: usize,
) -> Result<(), String> {
    let at = format!("{}:{line}", path.display());
    if !CLI_SETTING_KEYS.contains(&name) {
        let near = nearest(name, CLI_SETTING_KEYS.iter().copied().chain(["class"]));
        let hint = near.map_or_else(String::new, |near| format!("did you mean `{near}`? "));
        return Err(format!(
            "this key is unknown: {hint}Known here: {}, and [class.NAME] tables",
            CLI_SETTING_KEYS.join(", ")
        ));
    }
    let DeValue::String(text) = value else {
        return Err(format!("must be a text in quotes; this is of type {}", value.type_str()));
    };
    let text = text.to_string();
    if text.is_empty() {
        return Err("is empty; leave it out instead".into());
    }
    match name {
        "store" => settings.store = Some(WithOrigin::new(text, at)),
        "policies" => settings.policies = Some(WithOrigin::new(resolve_beside(path, &text), at)),
        "holder" => settings.holder = Some(WithOrigin::new(text, at)),
        "timeout" => {
            let timeout = crate::span::parse(&text)?;
            settings.timeout = Some(WithOrigin::new(timeout, at));
        }
        // `SETTINGS` was checked above, so only `audit_file` is left.
        _ => settings.audit_file = Some(WithOrigin::new(resolve_beside(path, &text), at)),
    }
    Ok(())
}

/// A relative path in a file is relative to that file.
fn resolve_beside(file: &Path, path: &str) -> PathBuf {
    file.parent().unwrap_or(Path::new("")).join(path)
}

fn line_of(text: &str, offset: usize) -> usize {
    1 + text.as_bytes().iter().take(offset).filter(|byte| **byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_error(text: &str) -> String {
        parse_config(text, Path::new("/etc/x/config.toml")).unwrap_err().to_string()
    }

    #[test]
    fn every_setting_is_read_with_its_line_number() {
        let text = "store = \"memory:\"\npolicies = \"p.toml\"\nholder = \"h\"\ntimeout = \"2s\"\naudit_file = \"/a\"\n\
                    [class.x]\nttl = \"1s\"\n";
        let found = parse_config(text, Path::new("/etc/x/config.toml")).unwrap();
        let settings = found.settings;
        assert_eq!(found.classes.as_deref(), Some(text));
        assert_eq!(settings.store.unwrap().value, "memory:");
        let policies = settings.policies.unwrap();
        assert_eq!(policies.value, Path::new("/etc/x/p.toml"));
        assert_eq!(policies.origin, "/etc/x/config.toml:2");
        assert_eq!(settings.holder.unwrap().value, "h");
        assert_eq!(settings.timeout.unwrap().value.as_secs(), 2);
        assert_eq!(settings.audit_file.unwrap().value, Path::new("/a"));
    }

    #[test]
    fn an_invalid_setting_is_reported_with_its_line_and_the_allowed_values() {
        for (text, expected) in [
            ("\nstor = \"x\"", "config.toml:2: stor: this key is unknown: did you mean `store`?"),
            ("timeout = \"5\"", "timeout"),
            ("timeout = 5", "must be a text in quotes; this is of type integer"),
            ("holder = \"\"", "is empty"),
            ("store = \"a\"\nstore = \"b\"", "is not TOML"),
            ("colour = \"x\"", "Known here: audit_file, holder"),
        ] {
            let message = parse_error(text);
            assert!(message.contains(expected), "{text}: {message}");
        }
        assert!(parse_error("a = 1\nb = 2").contains("and 1 more"));
    }
}
