//! The page of settings and built-in classes.

use leasehold::clock::{BootClock, Clock};
use leasehold::policy::{CLI_SETTING_KEYS, Field, PolicyBook};

use super::{page_header, table_row};

pub(super) fn page() -> anyhow::Result<String> {
    let mut text = page_header(
        "Settings and classes",
        "One file, `leasehold.toml`, has the settings at its top and the classes as `[class.NAME]` tables; \
         see the [example](../leasehold.example.toml).",
    );
    text += "## Settings\n\nEach is a text in quotes. `leasehold config show --origin` says what is in force and where it comes from.\n\n\
             | setting | what it says | also |\n|---|---|---|\n";
    for setting in CLI_SETTING_KEYS {
        let (says, also) = describe_setting(setting);
        text += &table_row(&[&format!("`{setting}`"), says, also]);
    }
    text += "\n## Fields of a class\n\nA duration always has a unit.\n\n| field | allowed |\n|---|---|\n";
    for field in Field::ALL {
        text += &table_row(&[&format!("`{}`", field.path()), &field.allowed()]);
    }
    let book = PolicyBook::builtin();
    let now = BootClock.now();
    let mut classes = Vec::new();
    for name in book.classes() {
        classes.push((name.to_string(), book.explain(&name, now)?));
    }
    text += "\n## The built-in classes\n\n| field |";
    classes.iter().for_each(|(name, _)| text += &format!(" `{name}` |"));
    text += "\n|---|";
    classes.iter().for_each(|_| text += "---|");
    text.push('\n');
    for field in Field::ALL {
        let path = field.path();
        let mut cells = vec![format!("`{path}`")];
        cells.extend(classes.iter().map(|(_, class)| class.value(path).unwrap_or("").to_owned()));
        let cells: Vec<_> = cells.iter().map(String::as_str).collect();
        text += &table_row(&cells);
    }
    Ok(text)
}

/// The description of a setting, and its flag and environment variable.
fn describe_setting(setting: &str) -> (&'static str, &'static str) {
    match setting {
        "audit_file" => ("where `break` writes who ended whose lease and why", ""),
        "holder" => ("who you are to others; host:pid if not given", "`--holder`"),
        "policies" => ("the file with the classes, seen from this one", "`--policies`, `LEASEHOLD_POLICIES`"),
        "store" => ("where the locks are", "`--store`, `LEASEHOLD_STORE`"),
        "timeout" => ("how long a store may take to answer a verb; 5s if not given", ""),
        // A new setting without a description yields an empty cell, which the test of the pages finds.
        _ => ("", ""),
    }
}
