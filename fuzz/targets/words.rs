//! Names, holders, tokens and fences: one spelling each, the documented bounds, and no secret in what is shown.
#![no_main]

use leasehold_core::types::{Fence, Holder, Name, Token};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    name(text);
    holder(text);
    token(text);
    fence(text);
});

/// What neither a name nor a holder may contain.
fn odd(ch: char) -> bool {
    ch.is_whitespace() || ch.is_control() || matches!(ch, '{' | '}')
}

fn name(text: &str) {
    match Name::new(text) {
        Ok(name) => {
            assert_eq!(name.as_str(), text);
            assert!((1..=Name::MAX).contains(&text.len()) && !text.chars().any(odd));
            let space = name.namespace();
            assert!(!space.contains(':') && (space == "default" || text.starts_with(space)));
        }
        Err(refused) => {
            assert_eq!(refused.field, "name");
            // At most 60 characters of it, each escaped to at most ten.
            assert!(refused.given.len() <= 10 * 60 + 5, "{refused}");
            assert!(
                !refused.to_string().chars().any(char::is_control),
                "an error must not write to the terminal: {refused:?}"
            );
        }
    }
}

fn holder(text: &str) {
    if let Ok(holder) = Holder::new(text) {
        assert_eq!(holder.as_str(), text);
        assert!((1..=Holder::MAX).contains(&text.len()) && !text.chars().any(odd) && !text.contains('|'));
        // So every holder can be part of a token.
        let token = format!("{text}|class|{:032x}", 7);
        assert_eq!(Token::parse(&token).map(|token| token.holder().to_owned()), Ok(text.to_owned()));
    }
}

fn token(text: &str) {
    match Token::parse(text) {
        Ok(token) => {
            let parts = [token.holder(), token.class(), token.random()];
            assert_eq!(token.expose(), text);
            assert_eq!(parts.join("|"), text);
            assert!(Holder::new(parts[0]).is_ok() && !parts[1].is_empty() && parts[2].len() == 32);
            let shown = format!("{token:?}");
            let elsewhere = parts[0].contains(parts[2]) || parts[1].contains(parts[2]);
            assert!(elsewhere || !shown.contains(parts[2]), "the secret is shown: {shown}");
        }
        Err(refused) => assert_eq!(refused.given, "\"(hidden)\""),
    }
}

fn fence(text: &str) {
    // The same rule, said differently: a number in bounds that prints as it was written.
    let plain = text.parse::<u64>().ok().filter(|number| number.to_string() == text);
    let allowed = plain.filter(|number| (1..1 << 53).contains(number));
    let read = text.parse::<Fence>().ok();
    assert_eq!(read.map(Fence::get), allowed);
    let json = serde_json::to_string(text).expect("text is JSON");
    assert_eq!(serde_json::from_str::<Fence>(&json).ok(), read);
    if let Some(fence) = read {
        assert_eq!(fence.to_string(), text);
        assert_eq!(serde_json::to_string(&fence).ok(), Some(json));
    }
    // Never a bare number: JavaScript would round it.
    assert!(serde_json::from_str::<Fence>(text).is_err() || text.trim_start().starts_with('"'));
}
