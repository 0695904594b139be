//! What can be typed: the verbs, and for each of their arguments which values it takes.

use std::ffi::OsString;
use std::fmt;
use std::sync::{Arc, LazyLock};

use clap::{Arg, Command, CommandFactory};

use super::word;
use crate::args::Cli;

/// A verb that does something, with the verbs above it.
pub(super) struct Verb {
    /// E.g. `job`, `submit`.
    pub(super) path: Vec<String>,
    /// Its own arguments and those it inherits.
    pub(super) args: Vec<Arc<Argument>>,
}

/// So that a failure is short enough to be read.
impl fmt::Debug for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path.join(" "))
    }
}

/// An argument.
pub(super) struct Argument {
    pub(super) arg: Arg,
    /// What it takes, of the words that everybody types.
    pub(super) right: Vec<OsString>,
    /// How many verbs stand before it at least: none if it belongs to `leasehold` itself.
    pub(super) depth: usize,
}

impl fmt::Debug for Argument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the whole of clap's description, and not as clap prints it, which it can only once it has built the tree.
        f.write_str(self.arg.get_id().as_str())
    }
}

impl Argument {
    fn new(arg: &Arg, depth: usize) -> Self {
        let possible = arg.get_possible_values();
        let right = if possible.is_empty() {
            // What its own parser takes, and not what its name seems to say.
            let takes = |word: &OsString| {
                let alone = Arg::new("v")
                    .allow_hyphen_values(true)
                    .value_parser(arg.get_value_parser().clone());
                let typed = [OsString::from("x"), word.clone()];
                Command::new("x").arg(alone).try_get_matches_from(typed).is_ok()
            };
            word::everyday().into_iter().filter(takes).collect()
        } else {
            possible.iter().map(|value| value.get_name().into()).collect()
        };
        Self {
            arg: arg.clone(),
            right,
            depth,
        }
    }

    pub(super) fn takes_value(&self) -> bool {
        self.arg.get_action().takes_values()
    }

    /// All that follows is its: a command with its own options.
    pub(super) fn is_command(&self) -> bool {
        self.arg.is_trailing_var_arg_set()
    }

    /// It takes durations and nothing like a text.
    pub(super) fn is_duration(&self) -> bool {
        self.takes("10s") && !self.takes("x")
    }

    /// It takes whole numbers and nothing like a text.
    pub(super) fn is_number(&self) -> bool {
        ["1", "16"].iter().any(|number| self.takes(number)) && !self.takes("x") && !self.takes("10s")
    }

    fn takes(&self, word: &str) -> bool {
        self.right.iter().any(|right| right == word)
    }

    /// `--long`, or `-s` if there is no other.
    pub(super) fn flag(&self) -> String {
        match (self.arg.get_long(), self.arg.get_short()) {
            (Some(long), _) => format!("--{long}"),
            (None, Some(short)) => format!("-{short}"),
            (None, None) => String::new(),
        }
    }
}

/// Every verb that does something.
pub(super) fn verbs() -> &'static [Arc<Verb>] {
    static VERBS: LazyLock<Vec<Arc<Verb>>> = LazyLock::new(|| {
        let mut found = Vec::new();
        walk(&Cli::command(), &mut Vec::new(), &[], &mut found);
        found
    });
    &VERBS
}

fn walk(at: &Command, path: &mut Vec<String>, inherited: &[Arc<Argument>], found: &mut Vec<Arc<Verb>>) {
    let own = at
        .get_arguments()
        .map(|arg| Arc::new(Argument::new(arg, path.len())));
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
        walk(verb, path, &global, found);
        path.pop();
    }
}

/// Otherwise its lines would all be refused at once, and show little.
#[test]
fn there_is_a_right_value_for_every_argument() {
    assert!(verbs().len() > 40, "{}", verbs().len());
    for verb in verbs() {
        for argument in &verb.args {
            assert!(
                !argument.takes_value() || !argument.right.is_empty(),
                "none of `word::everyday` is a value for {argument:?} of `{}`: add one",
                verb.path.join(" ")
            );
        }
    }
}
