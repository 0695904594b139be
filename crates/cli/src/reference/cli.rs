//! The command line as one Markdown page, for `docs/reference/cli.md`.

use std::fmt::Write;

use clap::{Arg, Command};

/// The page. `all` must be built, so that global options are included.
pub(crate) fn page(all: &Command) -> String {
    let mut text = String::from(
        "# The command line\n\n\
         Generated from the command itself with `leasehold man --reference`; a test compares. The contract and the reasons \
         are in [the guide](../cli/README.md).\n",
    );
    let shared: Vec<_> = all.get_arguments().filter(|arg| arg.is_global_set()).collect();
    write_section(&mut text, all, "leasehold", 2, &shared);
    // Writing to a `String` cannot fail.
    let _infallible = write!(text, "\n## Options of every verb\n\n");
    shared.iter().for_each(|arg| write_option(&mut text, arg));
    text
}

/// `above` are options inherited from parent commands; they are described there.
fn write_section(text: &mut String, command: &Command, name: &str, depth: usize, above: &[&Arg]) {
    let about = command.get_long_about().or_else(|| command.get_about());
    // Rendering needs a mutable command.
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ");
    let _infallible = write!(
        text,
        "\n{} `{name}`\n\n{}\n\n```text\n{usage}\n```\n",
        "#".repeat(depth),
        about.map(ToString::to_string).unwrap_or_default().trim()
    );
    let own = command.get_arguments().filter(|arg| {
        let known = above.iter().any(|other| other.get_id() == arg.get_id());
        // clap adds `help` and `version` to every command.
        !known && !arg.is_hide_set() && !matches!(arg.get_id().as_str(), "help" | "version")
    });
    let own: Vec<_> = own.collect();
    if !own.is_empty() {
        text.push('\n');
        own.iter().for_each(|arg| write_option(text, arg));
    }
    let more = command.get_after_long_help().or_else(|| command.get_after_help());
    if let Some(more) = more {
        let _infallible = write!(text, "\n```text\n{}\n```\n", more.to_string().trim_end());
    }
    let shared: Vec<_> =
        above.iter().copied().chain(own.into_iter().filter(|arg| arg.is_global_set())).collect();
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set() && verb.get_name() != "help") {
        write_section(text, verb, &format!("{name} {}", verb.get_name()), 3, &shared);
    }
}

fn write_option(text: &mut String, arg: &Arg) {
    let mut names: Vec<String> = Vec::new();
    if let Some(short) = arg.get_short() {
        names.push(format!("-{short}"));
    }
    if let Some(long) = arg.get_long() {
        names.push(format!("--{long}"));
    }
    let takes = arg.get_action().takes_values();
    let value = arg.get_value_names().and_then(|names| names.first()).map(ToString::to_string);
    let value = value.unwrap_or_else(|| arg.get_id().as_str().to_uppercase());
    let shown = match (names.is_empty(), takes) {
        (true, _) => value,
        (false, true) => format!("{} {value}", names.join(", ")),
        (false, false) => names.join(", "),
    };
    let help = arg.get_long_help().or_else(|| arg.get_help());
    let help = help.map(|help| help.to_string().replace("\n\n", " ")).unwrap_or_default();
    let mut notes = Vec::new();
    let hidden = arg.is_hide_possible_values_set();
    let choices: Vec<_> =
        arg.get_possible_values().iter().map(|choice| format!("`{}`", choice.get_name())).collect();
    if takes && !choices.is_empty() && !hidden {
        notes.push(format!("one of {}", choices.join(", ")));
    }
    let defaults: Vec<_> = arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    // An empty default, as of the prefix of `list`, says nothing.
    if takes && !defaults.is_empty() && !defaults.concat().is_empty() {
        notes.push(format!("default `{}`", defaults.join(" ")));
    }
    if let Some(variable) = arg.get_env() {
        notes.push(format!("environment `{}`", variable.to_string_lossy()));
    }
    let notes = if notes.is_empty() { String::new() } else { format!(" ({})", notes.join("; ")) };
    let _infallible = writeln!(text, "- `{shown}`: {}{notes}", help.replace('\n', " ").trim());
}
