//! Generates command lines.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Arc;

use proptest::option::weighted;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::verb_tree::{Argument, Verb, verbs};
use super::words;

/// A command line, with the program name first.
#[derive(Clone)]
pub(super) struct CommandLine {
    pub(super) words: Vec<OsString>,
    /// The verb, if no earlier word can hide it.
    pub(super) verb: Option<String>,
}

/// Prints the line in shell syntax, so that a failure can be repeated.
impl fmt::Debug for CommandLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<_> = self.words.iter().map(|word| bash_quote(word)).collect();
        f.write_str(&words.join(" "))
    }
}

/// Quotes a word for bash.
pub(super) fn bash_quote(word: &OsStr) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_=./:@,+%".contains(byte);
    if !word.is_empty() && word.as_bytes().iter().all(plain) {
        return word.to_string_lossy().into_owned();
    }
    let graphic = |byte: &u8| byte.is_ascii_graphic() || *byte == b' ';
    if word.as_bytes().iter().all(graphic) {
        return format!("'{}'", word.to_string_lossy().replace('\'', r"'\''"));
    }
    let escaped = |byte: &u8| match byte {
        b'\'' | b'\\' => format!("\\{}", char::from(*byte)),
        byte if graphic(byte) => char::from(*byte).to_string(),
        byte => format!("\\x{byte:02x}"),
    };
    let escaped: String = word.as_bytes().iter().map(escaped).collect();
    format!("$'{escaped}'")
}

/// Words that belong together, such as an option and its value.
type WordGroup = Vec<OsString>;

/// A line for some verb: the required arguments, and arbitrary others.
pub(super) fn any_line() -> impl Strategy<Value = CommandLine> {
    select(verbs().to_vec()).prop_flat_map(|verb| {
        let before = prop::collection::vec(any_part(Arc::clone(&verb), true), 0..2);
        let after = prop::collection::vec((any_part(Arc::clone(&verb), false), any::<Index>()), 0..4);
        let rest = weighted(0.2, prop::collection::vec(any_word(&verb), 0..4));
        // Most lines are valid at first; a tenth of the required arguments is left out.
        let lacks = prop::collection::vec(prop::bool::weighted(0.1), verb.args.len());
        (before, required_args(&verb), lacks, after, rest, maybe_misspelled(&verb)).prop_map(
            move |(before, needed, lacks, after, rest, spelt)| {
                let clear = before.is_empty() && spelt == verb.path;
                let mut words: Vec<OsString> = vec!["leasehold".into()];
                words.extend(before.into_iter().flatten());
                words.extend(spelt.into_iter().map(OsString::from));
                let needed = needed.into_iter().zip(lacks).filter(|(_, lacks)| !lacks);
                let mut parts: Vec<WordGroup> = needed.map(|(part, _)| part).collect();
                for (part, at) in after {
                    parts.insert(at.index(parts.len() + 1), part);
                }
                words.extend(parts.into_iter().flatten());
                if let Some(rest) = rest {
                    words.push("--".into());
                    words.extend(rest);
                }
                CommandLine { words, verb: clear.then(|| verb.path[0].clone()) }
            },
        )
    })
}

/// The verb's path, rarely misspelled.
fn maybe_misspelled(verb: &Verb) -> impl Strategy<Value = Vec<String>> + use<> {
    let (right, last) = (verb.path.clone(), verb.path.last().cloned().unwrap_or_default());
    let wrong = words::misspelled(&last);
    prop_oneof![
        19 => Just(right.clone()),
        1 => wrong.prop_map(move |wrong| {
            let mut path = right.clone();
            path.pop();
            path.push(wrong);
            path
        }),
    ]
}

/// The required arguments of a verb, with valid values.
pub(super) fn required_args(verb: &Verb) -> Vec<BoxedStrategy<WordGroup>> {
    required_args_except(verb, |_| false)
}

pub(super) fn required_args_except(
    verb: &Verb,
    without: impl Fn(&Argument) -> bool,
) -> Vec<BoxedStrategy<WordGroup>> {
    let required = verb.args.iter();
    let required = required.filter(|argument| argument.arg.is_required_set() && !without(argument));
    let value = |argument: &Arc<Argument>| -> BoxedStrategy<WordGroup> {
        let flag = OsString::from(argument.flag());
        let positional = argument.arg.is_positional();
        select(argument.accepted.clone())
            .prop_map(move |value| if positional { vec![value] } else { vec![flag.clone(), value] })
            .boxed()
    };
    // Options first: after a command's first word they would belong to the command.
    let (words, options): (Vec<_>, Vec<_>) = required.partition(|argument| argument.arg.is_positional());
    options.into_iter().chain(words).map(value).collect()
}

/// An option with or without a value, valid or not, or an unexpected word.
fn any_part(verb: Arc<Verb>, before: bool) -> impl Strategy<Value = WordGroup> {
    let usable =
        move |argument: &&Arc<Argument>| !argument.arg.is_positional() && (!before || argument.depth == 0);
    let count = verb.args.iter().filter(usable).count();
    let option = (0..count.max(1)).prop_flat_map(move |at| match verb.args.iter().filter(usable).nth(at) {
        Some(argument) => any_option(argument),
        None => Just(Vec::new()).boxed(),
    });
    prop_oneof![
        8 => option,
        1 => words::hostile_word().prop_map(|word| vec![word]),
        1 => select(words::ordinary()).prop_map(|word| vec![word]),
        1 => Just(vec!["--frob".into()]),
        1 => words::hostile_word().prop_map(|word| vec!["--frob".into(), word]),
    ]
}

fn any_option(argument: &Argument) -> BoxedStrategy<WordGroup> {
    let flag = argument.flag();
    let wrong = words::misspelled(&flag);
    let value = if argument.takes_value() {
        prop_oneof![2 => select(argument.accepted.clone()), 1 => words::hostile_word()].boxed()
    } else {
        words::hostile_word().boxed()
    };
    let (takes_value, short) = (argument.takes_value(), argument.arg.get_short());
    (value, wrong, 0..20_u8)
        .prop_map(move |(value, wrong, how)| match how {
            0 => vec![wrong.into()],
            1 => vec![wrong.into(), value],
            2 => vec![concat_words(&format!("{wrong}="), &value)],
            // Without its value, or with a value that it does not accept.
            3 => vec![flag.clone().into()],
            4 => vec![concat_words(&format!("{flag}="), &value)],
            5 if short.is_some() => vec![concat_words(&format!("-{}", short.unwrap()), &value)],
            6 if short.is_some() => vec![format!("-{}", short.unwrap()).into(), value],
            7..12 if takes_value => vec![concat_words(&format!("{flag}="), &value)],
            _ if takes_value => vec![flag.clone().into(), value],
            _ => vec![flag.clone().into()],
        })
        .boxed()
}

pub(super) fn concat_words(before: &str, value: &OsStr) -> OsString {
    let mut bytes = before.as_bytes().to_vec();
    bytes.extend(value.as_bytes());
    OsString::from_vec(bytes)
}

/// Any word, including our own options.
pub(super) fn any_word(verb: &Verb) -> impl Strategy<Value = OsString> + use<> {
    let flags: Vec<OsString> = verb.args.iter().map(|argument| argument.flag().into()).collect();
    prop_oneof![
        2 => words::hostile_word(),
        1 => select(words::ordinary()),
        1 => select(flags),
    ]
}

#[test]
fn a_line_prints_in_shell_syntax() {
    let words = ["leasehold", "a b", "", "it's", "a\nb"].map(OsString::from);
    let mut line = CommandLine { words: words.into(), verb: None };
    line.words.push(OsString::from_vec(vec![b'x', 0xff, b'\'']));
    assert_eq!(format!("{line:?}"), r"leasehold 'a b' '' 'it'\''s' $'a\x0ab' $'x\xff\''");
    let read = std::process::Command::new("bash")
        .args(["-c", &format!("printf '%s\\0' {line:?}")])
        .output()
        .unwrap();
    let read: Vec<_> = read.stdout.strip_suffix(b"\0").unwrap().split(|byte| *byte == 0).collect();
    let words: Vec<_> = line.words.iter().map(|word| word.as_bytes()).collect();
    assert_eq!(read, words);
}
