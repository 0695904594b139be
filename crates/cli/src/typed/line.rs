//! A command line, put together from its parts.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Arc;

use proptest::option::weighted;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::tree::{Argument, Verb, verbs};
use super::word;

/// What is typed, our own name first.
#[derive(Clone)]
pub(super) struct Line {
    pub(super) words: Vec<OsString>,
    /// The verb, if nothing before it can hide it.
    pub(super) verb: Option<String>,
}

/// As one types it in a shell, so that a failure can be repeated.
impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<_> = self.words.iter().map(|word| quoted(word)).collect();
        f.write_str(&words.join(" "))
    }
}

/// As bash reads it.
pub(super) fn quoted(word: &OsStr) -> String {
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

/// Some words that belong together, as an option and its value.
type Part = Vec<OsString>;

/// A line for some verb: what it needs, and anything else.
pub(super) fn lines() -> impl Strategy<Value = Line> {
    select(verbs().to_vec()).prop_flat_map(|verb| {
        let before = prop::collection::vec(part(Arc::clone(&verb), true), 0..2);
        let after = prop::collection::vec((part(Arc::clone(&verb), false), any::<Index>()), 0..4);
        let rest = weighted(0.2, prop::collection::vec(any_word(&verb), 0..4));
        // They begin as lines that are right; one in ten of what they need is left out.
        let lacks = prop::collection::vec(prop::bool::weighted(0.1), verb.args.len());
        (before, needed(&verb), lacks, after, rest, spelt(&verb)).prop_map(
            move |(before, needed, lacks, after, rest, spelt)| {
                let clear = before.is_empty() && spelt == verb.path;
                let mut words: Vec<OsString> = vec!["leasehold".into()];
                words.extend(before.into_iter().flatten());
                words.extend(spelt.into_iter().map(OsString::from));
                let needed = needed.into_iter().zip(lacks).filter(|(_, lacks)| !lacks);
                let mut parts: Vec<Part> = needed.map(|(part, _)| part).collect();
                for (part, at) in after {
                    parts.insert(at.index(parts.len() + 1), part);
                }
                words.extend(parts.into_iter().flatten());
                if let Some(rest) = rest {
                    words.push("--".into());
                    words.extend(rest);
                }
                Line {
                    words,
                    verb: clear.then(|| verb.path[0].clone()),
                }
            },
        )
    })
}

/// The verb, seldom misspelt.
fn spelt(verb: &Verb) -> impl Strategy<Value = Vec<String>> + use<> {
    let (right, last) = (verb.path.clone(), verb.path.last().cloned().unwrap_or_default());
    let wrong = word::misspelt(&last);
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

/// What a verb cannot do without, each as it should be.
pub(super) fn needed(verb: &Verb) -> Vec<BoxedStrategy<Part>> {
    needed_but(verb, |_| false)
}

/// The same without some of it.
pub(super) fn needed_but(verb: &Verb, without: impl Fn(&Argument) -> bool) -> Vec<BoxedStrategy<Part>> {
    let required = verb.args.iter();
    let required = required.filter(|argument| argument.arg.is_required_set() && !without(argument));
    let value = |argument: &Arc<Argument>| -> BoxedStrategy<Part> {
        let flag = OsString::from(argument.flag());
        let positional = argument.arg.is_positional();
        select(argument.right.clone())
            .prop_map(move |value| {
                if positional {
                    vec![value]
                } else {
                    vec![flag.clone(), value]
                }
            })
            .boxed()
    };
    // Options first: behind a command's first word they would be the command's.
    let (words, options): (Vec<_>, Vec<_>) = required.partition(|argument| argument.arg.is_positional());
    options.into_iter().chain(words).map(value).collect()
}

/// An option with or without its value, right or wrong, or a word that nobody asked for.
fn part(verb: Arc<Verb>, before: bool) -> impl Strategy<Value = Part> {
    let usable =
        move |argument: &&Arc<Argument>| !argument.arg.is_positional() && (!before || argument.depth == 0);
    let count = verb.args.iter().filter(usable).count();
    let option = (0..count.max(1)).prop_flat_map(move |at| match verb.args.iter().filter(usable).nth(at) {
        Some(argument) => option(argument),
        None => Just(Vec::new()).boxed(),
    });
    prop_oneof![
        8 => option,
        1 => word::hostile().prop_map(|word| vec![word]),
        1 => select(word::everyday()).prop_map(|word| vec![word]),
        1 => Just(vec!["--frob".into()]),
        1 => word::hostile().prop_map(|word| vec!["--frob".into(), word]),
    ]
}

fn option(argument: &Argument) -> BoxedStrategy<Part> {
    let flag = argument.flag();
    let wrong = word::misspelt(&flag);
    let value = if argument.takes_value() {
        prop_oneof![2 => select(argument.right.clone()), 1 => word::hostile()].boxed()
    } else {
        word::hostile().boxed()
    };
    let (takes_value, short) = (argument.takes_value(), argument.arg.get_short());
    (value, wrong, 0..20_u8)
        .prop_map(move |(value, wrong, how)| match how {
            0 => vec![wrong.into()],
            1 => vec![wrong.into(), value],
            2 => vec![glued(&format!("{wrong}="), &value)],
            // Without its value, or with one that it does not take.
            3 => vec![flag.clone().into()],
            4 => vec![glued(&format!("{flag}="), &value)],
            5 if short.is_some() => vec![glued(&format!("-{}", short.unwrap()), &value)],
            6 if short.is_some() => vec![format!("-{}", short.unwrap()).into(), value],
            7..12 if takes_value => vec![glued(&format!("{flag}="), &value)],
            _ if takes_value => vec![flag.clone().into(), value],
            _ => vec![flag.clone().into()],
        })
        .boxed()
}

pub(super) fn glued(before: &str, value: &OsStr) -> OsString {
    let mut bytes = before.as_bytes().to_vec();
    bytes.extend(value.as_bytes());
    OsString::from_vec(bytes)
}

/// Any word, options of ours among them.
pub(super) fn any_word(verb: &Verb) -> impl Strategy<Value = OsString> + use<> {
    let flags: Vec<OsString> = verb.args.iter().map(|argument| argument.flag().into()).collect();
    prop_oneof![
        2 => word::hostile(),
        1 => select(word::everyday()),
        1 => select(flags),
    ]
}

#[test]
fn a_line_prints_as_one_types_it() {
    let words = ["leasehold", "a b", "", "it's", "a\nb"].map(OsString::from);
    let mut line = Line {
        words: words.into(),
        verb: None,
    };
    line.words.push(OsString::from_vec(vec![b'x', 0xff, b'\'']));
    assert_eq!(
        format!("{line:?}"),
        r"leasehold 'a b' '' 'it'\''s' $'a\x0ab' $'x\xff\''"
    );
    let read = std::process::Command::new("bash")
        .args(["-c", &format!("printf '%s\\0' {line:?}")])
        .output()
        .unwrap();
    let read: Vec<_> = read
        .stdout
        .strip_suffix(b"\0")
        .unwrap()
        .split(|byte| *byte == 0)
        .collect();
    let words: Vec<_> = line.words.iter().map(|word| word.as_bytes()).collect();
    assert_eq!(read, words);
}
