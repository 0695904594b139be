//! The verbs and their arguments, with the values that each argument accepts.

use std::ffi::OsString;
use std::fmt;
use std::sync::{Arc, LazyLock};

use clap::{Arg, Command};
use leasehold_cli::testing::definition;

use super::words;

/// A leaf verb, with the verbs above it.
pub(super) struct Verb {
    /// E.g. `job`, `submit`.
    pub(super) path: Vec<String>,
    /// Its own arguments and those it inherits.
    pub(super) args: Vec<Arc<Argument>>,
}

/// Short, so that a failure can be read.
impl fmt::Debug for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path.join(" "))
    }
}

pub(super) struct Argument {
    pub(super) arg: Arg,
    /// The ordinary words that the argument accepts.
    pub(super) accepted: Vec<OsString>,
    /// How many verbs must precede it: 0 for options of `leasehold` itself.
    pub(super) depth: usize,
}

impl fmt::Debug for Argument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // clap's own `Debug` is long, and its `Display` works only after the tree was built.
        f.write_str(self.arg.get_id().as_str())
    }
}

impl Argument {
    fn new(arg: &Arg, depth: usize) -> Self {
        let possible = arg.get_possible_values();
        let right = if possible.is_empty() {
            // Ask the argument's own parser instead of guessing from its name.
            let takes = |word: &OsString| {
                let alone =
                    Arg::new("v").allow_hyphen_values(true).value_parser(arg.get_value_parser().clone());
                let typed = [OsString::from("x"), word.clone()];
                Command::new("x").arg(alone).try_get_matches_from(typed).is_ok()
            };
            words::ordinary().into_iter().filter(takes).collect()
        } else {
            possible.iter().map(|value| value.get_name().into()).collect()
        };
        Self { arg: arg.clone(), accepted: right, depth }
    }

    pub(super) fn takes_value(&self) -> bool {
        self.arg.get_action().takes_values()
    }

    /// It takes all following words: a command with its own options.
    pub(super) fn is_command(&self) -> bool {
        self.arg.is_trailing_var_arg_set()
    }

    /// It accepts durations and no other text.
    pub(super) fn is_duration(&self) -> bool {
        self.accepts("10s") && !self.accepts("x")
    }

    /// It accepts whole numbers and no other text.
    pub(super) fn is_number(&self) -> bool {
        ["1", "16"].iter().any(|number| self.accepts(number)) && !self.accepts("x") && !self.accepts("10s")
    }

    fn accepts(&self, word: &str) -> bool {
        self.accepted.iter().any(|right| right == word)
    }

    /// `--long`, or `-s` if there is no long form.
    pub(super) fn flag(&self) -> String {
        match (self.arg.get_long(), self.arg.get_short()) {
            (Some(long), _) => format!("--{long}"),
            (None, Some(short)) => format!("-{short}"),
            (None, None) => String::new(),
        }
    }
}

/// Every leaf verb.
pub(super) fn verbs() -> &'static [Arc<Verb>] {
    static VERBS: LazyLock<Vec<Arc<Verb>>> = LazyLock::new(|| {
        let mut found = Vec::new();
        collect_verbs(&definition(), &mut Vec::new(), &[], &mut found);
        found
    });
    &VERBS
}

fn collect_verbs(
    at: &Command,
    path: &mut Vec<String>,
    inherited: &[Arc<Argument>],
    found: &mut Vec<Arc<Verb>>,
) {
    let own = at.get_arguments().map(|arg| Arc::new(Argument::new(arg, path.len())));
    let args: Vec<_> = inherited.iter().cloned().chain(own).collect();
    if at.get_subcommands().next().is_none() {
        let path = path.clone();
        found.push(Arc::new(Verb { path, args }));
        return;
    }
    let global = args.into_iter().filter(|argument| argument.arg.is_global_set());
    let global: Vec<_> = global.collect();
    for verb in at.get_subcommands() {
        path.push(verb.get_name().to_owned());
        collect_verbs(verb, path, &global, found);
        path.pop();
    }
}

// Without a valid value, all lines of a verb would be refused at once and show little.
#[test]
fn there_is_a_valid_value_for_every_argument() {
    assert!(verbs().len() > 40, "{}", verbs().len());
    for verb in verbs() {
        for argument in &verb.args {
            assert!(
                !argument.takes_value() || !argument.accepted.is_empty(),
                "none of `word::everyday` is a value for {argument:?} of `{}`: add one",
                verb.path.join(" ")
            );
        }
    }
}
