//! The map from names to keys.

use leasehold_core::Name;
use leasehold_redis::KeyMap;
use proptest::prelude::*;

fn rules(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(a, b)| ((*a).into(), (*b).into())).collect()
}

fn plane() -> KeyMap {
    let pairs = rules(&[("job:", "cordum:scheduler:job:"), ("run:", "cordum:wf:run:lock:")]);
    KeyMap::new("lock:", &pairs).unwrap()
}

#[test]
fn longest_rule_wins() {
    let map = plane();
    for (name, key) in
        [("job:42", "cordum:scheduler:job:42"), ("run:7", "cordum:wf:run:lock:7"), ("jo", "lock:jo")]
    {
        let name = Name::new(name).unwrap();
        assert_eq!(map.key(&name), key);
        assert_eq!(map.name(key), Some(name));
    }
    // `lock:job:42` is no name's key: the map sends the name `job:42` elsewhere.
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
        let message = KeyMap::new(prefix, &pairs).unwrap_err();
        assert!(message.contains(why), "{prefix} {pairs:?}: {message}");
    }
    // A continued key prefix is no collision if its rule owns exactly the
    // names that would reach it.
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
    // Few letters, so that prefixes collide often.
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
}
