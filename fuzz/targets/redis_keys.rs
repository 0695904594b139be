//! Names to keys: no two names share a key, no name reaches a reserved key, and every key finds its name.
//!
//! The input is lines: the prefix, rules `NAMES=KEYS`, an empty line, then names.
#![no_main]

use std::collections::HashMap;

use leasehold_core::types::Name;
use leasehold_redis::{KeyMap, RESERVED_PREFIX};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let mut lines = text.lines();
    let prefix = lines.next().unwrap_or_default();
    let rules: Vec<_> = lines
        .by_ref()
        .map_while(|line| line.split_once('='))
        .map(|(names, keys)| (names.to_owned(), keys.to_owned()))
        .collect();
    let Ok(map) = KeyMap::new(prefix, &rules) else {
        return;
    };
    let mut texts: Vec<String> = lines.map(str::to_owned).collect();
    // Names that are near the rules' borders are where two could meet.
    for (names, keys) in &rules {
        for rest in [names, keys, prefix] {
            texts.extend([rest.to_owned(), format!("{names}{rest}"), format!("{keys}{rest}")]);
        }
    }
    let mut owner: HashMap<String, Name> = HashMap::new();
    for name in texts.iter().filter_map(|text| Name::new(text).ok()) {
        let key = map.key(&name);
        assert!(!key.starts_with(RESERVED_PREFIX), "{name} reaches {key}");
        assert_eq!(map.name(&key).as_ref(), Some(&name), "{key}");
        let patterns = map.patterns(name.as_str());
        assert!(!patterns.is_empty(), "no pattern finds {name}");
        if let Some(other) = owner.insert(key.clone(), name.clone()) {
            assert_eq!(other, name, "both have {key}");
        }
    }
});
