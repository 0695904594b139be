//! The proxy's orders: what is read prints so that it reads back.
#![no_main]

use leasehold_drill::proxy::Toxic;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(toxic) = text.parse::<Toxic>() else { return };
    let printed = toxic.to_string();
    assert!(!printed.contains('\n'), "one order is one line: {printed:?}");
    let again = printed.parse::<Toxic>().unwrap_or_else(|error| panic!("{printed}: {error}"));
    // By its text: a toxicity of NaN is not equal to itself. It is refused later, when the toxic is added.
    assert_eq!(again.to_string(), printed);
    assert_eq!((again.name(), again.stream(), again.kind()), (toxic.name(), toxic.stream(), toxic.kind()));
});
