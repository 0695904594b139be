use leasehold_core::{InvalidInput, Name, NameSet};

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn set(names: &[&str]) -> Result<NameSet, InvalidInput> {
    NameSet::new(names.iter().map(|text| name(text)))
}

#[test]
fn names_are_sorted_and_distinct() {
    let several = set(&["b", "a", "b", "c"]).unwrap();
    assert_eq!(several.to_string(), "a, b, c");
    assert_eq!((several.first(), several.single()), (&name("a"), None));
    assert_eq!(several, set(&["c", "b", "a"]).unwrap());
    // Duplicates of one name are one name, not a set of several.
    let one = set(&["a", "a"]).unwrap();
    assert_eq!((one.single(), &one), (Some(&name("a")), &NameSet::from(name("a"))));
}

#[test]
fn the_count_is_bounded() {
    let many: Vec<_> = (0..=NameSet::MAX_NAMES).map(|number| name(&format!("n{number}"))).collect();
    assert_eq!(NameSet::new(many[1..].to_vec()).unwrap().as_slice().len(), NameSet::MAX_NAMES);
    for (bad, count) in [(many, "17"), (Vec::new(), "0")] {
        let message = NameSet::new(bad).unwrap_err().to_string();
        assert!(
            message.starts_with("names ") && message.contains(count) && message.contains("1 to 16"),
            "{message}"
        );
    }
}

#[test]
fn a_change_of_names_keeps_the_order() {
    let turned = set(&["a", "b"]).unwrap().try_map(|old| match old.as_str() {
        "a" => Name::new("z"),
        _ => Ok(old.clone()),
    });
    assert_eq!(turned.unwrap().to_string(), "b, z");
    let equal = set(&["a", "b"]).unwrap().try_map(|_| Name::new("x")).unwrap();
    assert_eq!(equal.single(), Some(&name("x")));
    assert!(set(&["a", "b"]).unwrap().try_map(|_| Name::new("")).is_err());
}
