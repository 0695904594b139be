//! Names that look like others: finding 26 of the security review.

use leasehold_core::clock::BootClock;
use leasehold_core::memory::MemoryStore;
use leasehold_core::rng::OsRandom;
use leasehold_core::store::{AcquireRequest, Store, StoreErrorKind};
use leasehold_core::types::{Holder, Name, Token, Ttl, is_invisible};
use proptest::prelude::*;

use super::config;

/// From the list of default-ignorable code points, and the blanks and controls that it does not have.
fn invisible() -> impl Strategy<Value = char> {
    prop_oneof![
        prop::sample::select(vec![
            '\u{34f}', '\u{61c}', '\u{115f}', '\u{1160}', '\u{17b4}', '\u{2800}', '\u{3164}', '\u{ffa0}'
        ]),
        prop::char::range('\u{180b}', '\u{180f}'),
        prop::char::range('\u{200b}', '\u{200f}'),
        prop::char::range('\u{202a}', '\u{202e}'),
        prop::char::range('\u{2066}', '\u{2069}'),
        prop::char::range('\u{fe00}', '\u{fe0f}'),
        prop::char::range('\u{e0000}', '\u{e0fff}'),
    ]
}

fn request(name: &Name, holder: &Holder) -> AcquireRequest {
    AcquireRequest::new(name, Token::fresh(holder, "test", &OsRandom), Ttl::MIN)
}

proptest! {
    #![proptest_config(config(256))]

    /// Wherever the character stands, the acquire is refused and its code point is named.
    #[test]
    fn finding_26_an_invisible_character_is_refused_at_acquire(
        before in "[a-z:]{0,5}", hidden in invisible(), after in "[a-z]{1,5}",
    ) {
        let text = format!("{before}{hidden}{after}");
        let code = format!("U+{:04X}", u32::from(hidden));
        let holder = Holder::new(&text).unwrap();
        let message = holder.check_visible().unwrap_err().to_string();
        prop_assert!(message.contains(&code), "{}", message);
        let plain = Name::new("job:1").unwrap();
        prop_assert!(request(&plain, &holder).check_visible().is_err());
        // The characters that were always refused are no names at all.
        if let Ok(name) = Name::new(&text) {
            prop_assert_eq!(name.as_str(), &text, "never normalised");
            let refused = request(&name, &Holder::of_this_process()).check_visible().unwrap_err().to_string();
            prop_assert!(refused.contains(&code), "{}", refused);
        }
    }

    /// Every name of visible characters stays what it was, in any script.
    #[test]
    fn finding_26_visible_names_are_granted(text in "[\\p{L}\\p{N}\\p{P}\\p{S}&&[^{}]]{1,20}") {
        prop_assume!(!text.chars().any(is_invisible));
        let name = Name::new(&text).unwrap();
        prop_assert!(name.check_visible().is_ok());
    }
}

#[tokio::test]
async fn finding_26_a_store_refuses_it_as_a_mistake_of_the_caller() {
    let store = MemoryStore::new(BootClock::shared());
    let name = Name::new("job:1\u{fe0f}").unwrap();
    let refused =
        store.acquire(&request(&name, &Holder::of_this_process()), std::time::Duration::from_secs(1)).await;
    let error = refused.unwrap_err();
    assert!(error.kind == StoreErrorKind::Misconfigured && !error.unknown, "{error}");
    assert!(error.message().contains("U+FE0F"), "{error}");
}
