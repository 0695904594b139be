//! Which key a name has, and which name a key has.
//!
//! A name's longest matching rule decides: its prefix is replaced by the rule's key prefix, the rest stays. The map
//! is checked when it is built: no two names may have one key (hazard R17), and no name may reach the reserved
//! prefix under which queues, tombstones and counters live.

use leasehold_core::word::{Name, Token};

use crate::slot;

/// Everything of ours that is not a lock lives under this prefix. The number is the layout's version.
pub const RESERVED: &str = "lh1:";
/// What precedes a name's key unless the URL says otherwise.
pub const DEFAULT_PREFIX: &str = "lock:";
/// The longest key prefix, in bytes.
const PREFIX_MAX: usize = 256;

/// The rules by which names become keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyMap {
    /// Longest name prefix first; the last one's is empty and matches every name.
    rules: Vec<Rule>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    names: String,
    keys: String,
}

impl KeyMap {
    /// `prefix` for every name, except those that start with one of the `rules`' name prefixes: they get that
    /// rule's key prefix instead of their own.
    ///
    /// # Errors
    /// Says which two rules could give one key to two names, or which prefix cannot be used, and why.
    pub fn new(prefix: &str, rules: &[(String, String)]) -> Result<Self, String> {
        let mut all = vec![Rule {
            names: String::new(),
            keys: prefix.to_owned(),
        }];
        for (names, keys) in rules {
            if names.is_empty() {
                return Err(format!(
                    "the map to {keys:?} has no name prefix; use `prefix=` for the names no map matches"
                ));
            }
            if all.iter().any(|rule| rule.names == *names) {
                return Err(format!("names starting with {names:?} are mapped twice"));
            }
            all.push(Rule {
                names: names.clone(),
                keys: keys.clone(),
            });
        }
        for rule in &all {
            check_prefix(&rule.keys)?;
        }
        all.sort_by_key(|rule| std::cmp::Reverse(rule.names.len()));
        check_injective(&all)?;
        Ok(Self { rules: all })
    }

    /// The lock's key.
    #[must_use]
    pub fn key(&self, name: &Name) -> String {
        self.rules
            .iter()
            .find_map(|rule| {
                let rest = name.as_str().strip_prefix(rule.names.as_str())?;
                Some([rule.keys.as_str(), rest].concat())
            })
            .unwrap_or_default()
    }

    /// The name whose key this is, if it is one by this map.
    #[must_use]
    pub fn name(&self, key: &str) -> Option<Name> {
        self.rules.iter().find_map(|rule| {
            let rest = key.strip_prefix(rule.keys.as_str())?;
            let name = Name::new(&format!("{}{rest}", rule.names)).ok()?;
            // A longer rule may own that name; then this key is nobody's.
            (self.key(&name) == key).then_some(name)
        })
    }

    /// `SCAN` patterns that together match the keys of every name with this prefix.
    #[must_use]
    pub fn patterns(&self, prefix: &str) -> Vec<String> {
        self.rules
            .iter()
            .filter_map(|rule| {
                let rest = match prefix.strip_prefix(rule.names.as_str()) {
                    Some(rest) => rest,
                    None if rule.names.starts_with(prefix) => "",
                    None => return None,
                };
                Some(format!("{}*", escape_glob(&format!("{}{rest}", rule.keys))))
            })
            .collect()
    }

    /// Every key that belongs to a name.
    pub(crate) fn of(&self, name: &Name) -> LockKeys {
        let lock = self.key(name);
        let slot = slot::slot(&lock);
        LockKeys {
            fence: tagged("fence:{", &slot::tag(slot).to_string(), ""),
            flag: tagged("waits:{", &lock, ""),
            queue: tagged("queue:{", &lock, ""),
            places: tagged("place:{", &lock, ""),
            slot,
            lock,
        }
    }
}

impl Default for KeyMap {
    fn default() -> Self {
        Self {
            rules: vec![Rule {
                names: String::new(),
                keys: DEFAULT_PREFIX.to_owned(),
            }],
        }
    }
}

/// The keys of one lock, all in one slot.
#[derive(Debug)]
pub(crate) struct LockKeys {
    /// The lock itself: a plain string.
    pub(crate) lock: String,
    /// The last fence granted in the lock's slot.
    pub(crate) fence: String,
    /// There exactly while somebody may be waiting, so that one read tells that nobody is.
    pub(crate) flag: String,
    /// Waiting tokens in the order in which they came.
    pub(crate) queue: String,
    /// For each waiting token: until when, and where to wake it.
    pub(crate) places: String,
    /// The slot of all of them.
    pub(crate) slot: u16,
}

impl LockKeys {
    /// There while this token is refused.
    pub(crate) fn tombstone(&self, token: &Token) -> String {
        let mut key = tagged("void:{", &self.lock, ":");
        key.push_str(token.random());
        key
    }
}

/// A key of ours with a hash tag. Several of these are made for every call, so none is formatted.
fn tagged(kind: &str, tag: &str, more: &str) -> String {
    // The room is for a token's random part.
    let mut key = String::with_capacity(RESERVED.len() + kind.len() + tag.len() + 34);
    for part in [RESERVED, kind, tag, "}", more] {
        key.push_str(part);
    }
    key
}

fn check_prefix(keys: &str) -> Result<(), String> {
    let refuse = |why: &str| Err(format!("the key prefix {keys:?} {why}"));
    if keys.contains(['{', '}']) {
        return refuse(
            "contains a brace; braces choose a Redis Cluster slot and would part a lock from its queue",
        );
    }
    if keys.chars().any(|ch| ch.is_whitespace() || ch.is_control()) {
        return refuse("contains a space or a control character; operators could not type it");
    }
    if keys.len() > PREFIX_MAX {
        return refuse(&format!("is longer than {PREFIX_MAX} bytes"));
    }
    if keys.starts_with(RESERVED) || RESERVED.starts_with(keys) {
        return refuse(&format!(
            "could reach keys under {RESERVED:?}, which is reserved; use another, e.g. {DEFAULT_PREFIX:?}"
        ));
    }
    Ok(())
}

/// Two names under one rule differ in the rest and so in the key. Under two rules they can meet only if one key
/// prefix continues the other; unless every name that would continue it so belongs to a longer rule anyway.
fn check_injective(rules: &[Rule]) -> Result<(), String> {
    for (at, short) in rules.iter().enumerate() {
        for (other, long) in rules.iter().enumerate() {
            let Some(more) = long.keys.strip_prefix(short.keys.as_str()) else {
                continue;
            };
            if at == other {
                continue;
            }
            let reaching = format!("{}{more}", short.names);
            let taken = rules
                .iter()
                .any(|rule| rule.names.len() > short.names.len() && reaching.starts_with(&rule.names));
            if !taken {
                return Err(format!(
                    "names starting with {reaching:?} and with {:?} would have the same keys ({:?}…); give them key \
                     prefixes of which none continues the other",
                    long.names, long.keys
                ));
            }
        }
    }
    Ok(())
}

fn escape_glob(text: &str) -> String {
    text.chars()
        .flat_map(|ch| {
            let mark = matches!(ch, '*' | '?' | '[' | ']' | '\\').then_some('\\');
            mark.into_iter().chain([ch])
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rules(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(a, b)| ((*a).into(), (*b).into())).collect()
    }

    fn plane() -> KeyMap {
        let pairs = rules(&[("job:", "cordum:scheduler:job:"), ("run:", "cordum:wf:run:lock:")]);
        KeyMap::new("lock:", &pairs).unwrap()
    }

    #[test]
    fn the_longest_rule_decides() {
        let map = plane();
        for (name, key) in [
            ("job:42", "cordum:scheduler:job:42"),
            ("run:7", "cordum:wf:run:lock:7"),
            ("jo", "lock:jo"),
        ] {
            let name = Name::new(name).unwrap();
            assert_eq!(map.key(&name), key);
            assert_eq!(map.name(key), Some(name));
        }
        // `lock:job:42` is no name's key: the name `job:42` lives elsewhere.
        assert_eq!(map.name("lock:job:42"), None);
        assert_eq!(map.name("other:42"), None);
    }

    #[test]
    fn r17_colliding_maps_are_refused_with_the_pair() {
        for (prefix, pairs, why) in [
            ("lock:", rules(&[("a:", "k:"), ("b:", "k:")]), "same keys"),
            ("lock:", rules(&[("a:", "k:"), ("b:", "k:x:")]), "same keys"),
            ("k:", rules(&[("a:", "k:b:")]), "same keys"),
            ("lock:", rules(&[("a:", "k:"), ("a:", "l:")]), "twice"),
            ("lock:", rules(&[("", "k:")]), "no name prefix"),
            ("", vec![], "reserved"),
            ("lh", vec![], "reserved"),
            ("lh1:queue:", vec![], "reserved"),
            ("lock:", rules(&[("a:", "lh1:x")]), "reserved"),
            ("{x}:", vec![], "brace"),
            ("a b:", vec![], "space"),
        ] {
            let said = KeyMap::new(prefix, &pairs).unwrap_err();
            assert!(said.contains(why), "{prefix} {pairs:?}: {said}");
        }
        // The same key prefix continued by the very names that live there is no collision.
        assert!(KeyMap::new("lock:", &rules(&[("job:", "lock:job:")])).is_ok());
    }

    #[test]
    fn patterns_are_literal() {
        let map = KeyMap::new("l[o]ck:", &[]).unwrap();
        assert_eq!(map.patterns("a*?\\"), [r"l\[o\]ck:a\*\?\\*"]);
        let mut both = plane().patterns("j");
        both.sort();
        assert_eq!(both, ["cordum:scheduler:job:*", "lock:j*"]);
    }

    fn text() -> impl Strategy<Value = String> {
        // Few letters, so that prefixes meet often.
        "[ab:]{1,4}"
    }

    proptest! {
        #[test]
        fn r17_no_two_names_share_a_key(
            prefix in text(), pairs in prop::collection::vec((text(), text()), 0..4),
            one in "[ab:]{1,8}", two in "[ab:]{1,8}",
        ) {
            if let Ok(map) = KeyMap::new(&prefix, &pairs) {
                let (one, two) = (Name::new(&one).unwrap(), Name::new(&two).unwrap());
                prop_assert_eq!(map.key(&one) == map.key(&two), one == two);
                let back = map.name(&map.key(&one));
                prop_assert_eq!(back, Some(one));
            }
        }

        #[test]
        fn r02_all_keys_of_a_lock_share_its_slot(text in "[^\\s\\p{C}{}]{1,80}") {
            if let Ok(name) = Name::new(&text) {
                let keys = plane().of(&name);
                let token = Token::parse("h|c|0123456789abcdef0123456789abcdef").unwrap();
                for key in [&keys.fence, &keys.flag, &keys.queue, &keys.places, &keys.tombstone(&token)] {
                    let tagged = key.split_once('{').unwrap().1.split_once('}').unwrap().0;
                    prop_assert_eq!(slot::slot(tagged), keys.slot, "{}", key);
                }
                prop_assert_eq!(slot::slot(&keys.lock), keys.slot);
            }
        }
    }
}
