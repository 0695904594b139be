//! Store URLs: a password in one is never repeated, whatever stands around it, and what is taken prints so that it opens the
//! same store.
#![no_main]

use leasehold::{StoreUrl, redact};
use leasehold_redis::RedisOptions;
use libfuzzer_sys::fuzz_target;

/// Stands for a password: no text of ours contains it.
const SECRET: &str = "hunter2hunter2";

fuzz_target!(|text: &str| {
    // As it is, then with a secret put where the input says `§`.
    plain(text);
    if !text.contains(SECRET) && text.contains('§') {
        secret(&text.replace('§', SECRET));
    }
});

fn plain(text: &str) {
    let shown = redact(text);
    assert_eq!(redact(&shown), shown, "hiding twice hides more");
    // Nothing is hidden where nothing can be secret, so that the URL still opens the same store.
    let words = ["@", "pass", "token", "secret", "auth"];
    if !words.iter().any(|word| text.contains(word)) {
        assert_eq!(shown, text);
    }
    if let (Ok(_), Ok(url)) = (RedisOptions::parse(text), StoreUrl::parse(text)) {
        assert_eq!(url.to_string(), shown);
        assert_eq!(url.expose(), text);
    }
    if let Ok(url) = StoreUrl::parse(text)
        && ["memory", "sqlite"].contains(&url.scheme())
    {
        let shown = url.to_string();
        assert_eq!(StoreUrl::parse(&shown).ok(), Some(url), "{text:?} printed as {shown:?}");
    }
}

/// Where a password stands: behind `scheme://user:` and before an `@`, or in the query under its name. It may contain what it
/// likes, the signs that end a URL's parts too: a user who forgot to encode them must not find it in a log.
fn secret(text: &str) {
    let Some((before, after)) = text.split_once(SECRET) else {
        return;
    };
    let userinfo = before.split_once("://").is_some_and(|(scheme, user)| {
        let user = user.split_once(':').map(|(user, _)| user);
        scheme.bytes().all(|byte| byte.is_ascii_lowercase())
            && user.is_some_and(|user| !user.contains(['/', '?', '#', '@']))
            && after.contains('@')
    });
    let query = before
        .split_once('?')
        .is_some_and(|(_, query)| query.rsplit('&').next() == Some("password=") && !query.contains('#'));
    if !(userinfo || query) || after.contains(SECRET) {
        return;
    }
    let mut said = vec![redact(text)];
    // Behind a `?` it is the value of some option by every rule of URLs, and those are told.
    let a_value = userinfo && before.contains('?');
    match RedisOptions::parse(text) {
        _ if a_value => {}
        Ok(options) => said.push(format!("{options:?}")),
        Err(failure) => said.push(format!("{failure} {failure:?}")),
    }
    match StoreUrl::parse(text) {
        Ok(url) => said.push(format!("{url} {url:?}")),
        Err(_) if a_value => {}
        Err(error) => said.push(format!("{error} {error:?}")),
    }
    for said in said {
        assert!(!said.contains(SECRET), "{text:?} is repeated: {said}");
    }
}
