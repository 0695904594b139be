//! Maps names to keys and keys to names.
//!
//! The rule with the longest matching name prefix wins: its key prefix replaces the name prefix.
//! The map is checked when it is built. No two names may have the same key (hazard R17). No name
//! may reach the reserved prefix of queues, tombstones and counters.

use leasehold_core::types::{Name, Token};

use crate::slot;

/// Prefix of all keys that are not locks. The number is the version of the layout.
pub const RESERVED_PREFIX: &str = "lh1:";
/// Key prefix of names that no rule matches, unless the URL sets another one.
pub const DEFAULT_PREFIX: &str = "lock:";
/// Limit of a key prefix, in bytes.
const MAX_PREFIX_BYTES: usize = 256;

/// The rules that map names to keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyMap {
    /// Longest name prefix first. The last one is empty and matches every name.
    rules: Vec<KeyRule>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct KeyRule {
    name_prefix: String,
    key_prefix: String,
}

impl KeyMap {
    /// Uses `prefix` for every name that no rule matches. A rule is a name prefix and the
    /// key prefix that replaces it.
    ///
    /// # Errors
    /// Two rules could give one key to two names, or a prefix cannot be used.
    /// The text says which and why.
    pub fn new(prefix: &str, rules: &[(String, String)]) -> Result<Self, String> {
        let mut all = vec![KeyRule { name_prefix: String::new(), key_prefix: prefix.to_owned() }];
        for (names, keys) in rules {
            if names.is_empty() {
                return Err(format!(
                    "the map to {keys:?} has no name prefix; use `prefix=` for the names no map matches"
                ));
            }
            if all.iter().any(|rule| rule.name_prefix == *names) {
                return Err(format!("names starting with {names:?} are mapped twice"));
            }
            all.push(KeyRule { name_prefix: names.clone(), key_prefix: keys.clone() });
        }
        for rule in &all {
            check_prefix(&rule.key_prefix)?;
        }
        all.sort_by_key(|rule| std::cmp::Reverse(rule.name_prefix.len()));
        check_injective(&all)?;
        Ok(Self { rules: all })
    }

    /// The key of a name's lock.
    #[must_use]
    pub fn key(&self, name: &Name) -> String {
        self.rules
            .iter()
            .find_map(|rule| {
                let rest = name.as_str().strip_prefix(rule.name_prefix.as_str())?;
                Some([rule.key_prefix.as_str(), rest].concat())
            })
            .unwrap_or_default()
    }

    /// The name of a lock's key; `None` if this map gives no name that key.
    #[must_use]
    pub fn name(&self, key: &str) -> Option<Name> {
        self.rules.iter().find_map(|rule| {
            let rest = key.strip_prefix(rule.key_prefix.as_str())?;
            let name = Name::new(&format!("{}{rest}", rule.name_prefix)).ok()?;
            // A longer rule may own that name. Then no name has this key.
            (self.key(&name) == key).then_some(name)
        })
    }

    /// `SCAN` patterns that together match the keys of all names with this prefix.
    #[must_use]
    pub fn patterns(&self, prefix: &str) -> Vec<String> {
        self.rules
            .iter()
            .filter_map(|rule| {
                let rest = match prefix.strip_prefix(rule.name_prefix.as_str()) {
                    Some(rest) => rest,
                    // The rule's names are longer than the prefix, so all of them match it.
                    None if rule.name_prefix.starts_with(prefix) => "",
                    None => return None,
                };
                Some(format!("{}*", escape_glob(&format!("{}{rest}", rule.key_prefix))))
            })
            .collect()
    }

    /// The key prefix of names that no rule matches. Stores with different ones share no document.
    fn default_prefix(&self) -> &str {
        self.rules.last().map_or(DEFAULT_PREFIX, |rule| &rule.key_prefix)
    }

    /// The keys of all documents, all in one hash slot: the documents, their names, when they
    /// expire, and the last version. A document's name is in none of them.
    pub(crate) fn document_keys(&self) -> [String; 4] {
        ["docs:{", "docs-names:{", "docs-expiry:{", "docs-version:{"]
            .map(|kind| tagged_key(kind, self.default_prefix(), ""))
    }

    /// The channel of changes of documents; the name is the message. Covered by the user's right to
    /// the channels of clients.
    pub(crate) fn document_channel(&self) -> String {
        tagged_key("wake:docs:{", self.default_prefix(), "")
    }

    /// All keys of a name.
    pub(crate) fn lock_keys(&self, name: &Name) -> LockKeys {
        let lock = self.key(name);
        let slot = slot::slot_of_key(&lock);
        LockKeys {
            fence: tagged_key("fence:{", &slot::tag_of_slot(slot).to_string(), ""),
            waiters_flag: tagged_key("waits:{", &lock, ""),
            queue: tagged_key("queue:{", &lock, ""),
            entries: tagged_key("place:{", &lock, ""),
            slot,
            lock,
        }
    }
}

impl Default for KeyMap {
    fn default() -> Self {
        Self { rules: vec![KeyRule { name_prefix: String::new(), key_prefix: DEFAULT_PREFIX.to_owned() }] }
    }
}

/// The keys of one lock, all in one hash slot.
#[derive(Debug)]
pub(crate) struct LockKeys {
    /// The lock itself, a plain string.
    pub(crate) lock: String,
    /// The last fence granted in the lock's slot.
    pub(crate) fence: String,
    /// Exists while there may be waiters, so that one read tells a release that there are none.
    pub(crate) waiters_flag: String,
    /// Tokens of waiters, in order of arrival.
    pub(crate) queue: String,
    /// Per waiter: expiry of its entry, and where to wake it.
    pub(crate) entries: String,
    /// The slot of all these keys.
    pub(crate) slot: u16,
}

impl LockKeys {
    /// Exists while this token is refused.
    pub(crate) fn tombstone(&self, token: &Token) -> String {
        let mut key = tagged_key("void:{", &self.lock, ":");
        key.push_str(token.random());
        key
    }
}

/// A key under the reserved prefix, with a hash tag.
fn tagged_key(kind: &str, tag: &str, more: &str) -> String {
    // Built without `format!`, because every request needs several. 34 bytes leave
    // room for a token's random part.
    let mut key = String::with_capacity(RESERVED_PREFIX.len() + kind.len() + tag.len() + 34);
    for part in [RESERVED_PREFIX, kind, tag, "}", more] {
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
    if keys.len() > MAX_PREFIX_BYTES {
        return refuse(&format!("is longer than {MAX_PREFIX_BYTES} bytes"));
    }
    if keys.starts_with(RESERVED_PREFIX) || RESERVED_PREFIX.starts_with(keys) {
        return refuse(&format!(
            "could reach keys under {RESERVED_PREFIX:?}, which is reserved; use another, e.g. {DEFAULT_PREFIX:?}"
        ));
    }
    Ok(())
}

/// Refuses rules that could give one key to two names.
fn check_injective(rules: &[KeyRule]) -> Result<(), String> {
    // Two names under one rule differ in the rest, and so in the key. Under two rules
    // they collide only if one key prefix continues the other, and no longer rule owns
    // the names that would reach it.
    for (at, short) in rules.iter().enumerate() {
        for (other, long) in rules.iter().enumerate() {
            let Some(more) = long.key_prefix.strip_prefix(short.key_prefix.as_str()) else {
                continue;
            };
            if at == other {
                continue;
            }
            let reaching = format!("{}{more}", short.name_prefix);
            let taken = rules.iter().any(|rule| {
                rule.name_prefix.len() > short.name_prefix.len() && reaching.starts_with(&rule.name_prefix)
            });
            if !taken {
                return Err(format!(
                    "names starting with {reaching:?} and with {:?} would have the same keys ({:?}…); give them key \
                     prefixes of which none continues the other",
                    long.name_prefix, long.key_prefix
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

    proptest! {
        #[test]
        fn r02_all_keys_of_a_lock_share_its_slot(text in "[^\\s\\p{C}{}]{1,80}") {
            let rules = [("job:", "cordum:scheduler:job:"), ("run:", "cordum:wf:run:lock:")];
            let map = KeyMap::new("lock:", &rules.map(|(names, keys)| (names.into(), keys.into()))).unwrap();
            if let Ok(name) = Name::new(&text) {
                let keys = map.lock_keys(&name);
                let token = Token::parse("h|c|0123456789abcdef0123456789abcdef").unwrap();
                for key in [&keys.fence, &keys.waiters_flag, &keys.queue, &keys.entries, &keys.tombstone(&token)] {
                    let tagged = key.split_once('{').unwrap().1.split_once('}').unwrap().0;
                    prop_assert_eq!(slot::slot_of_key(tagged), keys.slot, "{}", key);
                }
                prop_assert_eq!(slot::slot_of_key(&keys.lock), keys.slot);
            }
        }
    }
}
