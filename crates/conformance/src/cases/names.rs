//! Names are plain text, whatever they mean to a query, a pattern or a path (invariant I12).

use std::collections::BTreeSet;

use anyhow::{Context, bail, ensure};
use leasehold_core::rng::{RandomExt, SeededRandom};
use leasehold_core::store::{ReleaseRequest, ReleaseResponse, SharedStore};

use crate::case::CaseResult;
use crate::client::{CALL_TIMEOUT, TestClient, long_ttl};
use crate::fixture::Fixture;

/// Names that have broken stores: separators, patterns, quotes, statements, paths, look-alikes.
const HOSTILE_NAMES: &[&str] = &[
    "a",
    "a:",
    ":a",
    "a:b",
    "a::b",
    "a:b:c",
    "A",
    "aa",
    "a/b",
    "a.b",
    "a,b",
    "a;b",
    "a|b",
    "a=b",
    "a&b",
    "a+b",
    "*",
    "a*",
    "?",
    "a?",
    "[ab]",
    "[^a]",
    "%",
    "a%",
    "%25",
    "_",
    "a_",
    "'",
    "\"",
    "`",
    "\\",
    "\\\\",
    "\\n",
    "a\\",
    "''",
    "';--",
    "';DROP/**/TABLE/**/leases;--",
    "1",
    "01",
    "1.0",
    "-1",
    "null",
    "NULL",
    "nil",
    "true",
    "$1",
    "$a",
    "#a",
    "@a",
    "!a",
    "~",
    ".",
    "..",
    "../a",
    "/",
    "//",
    "a:queue",
    "a:fence",
    "queue",
    "fence",
    "lease",
    "<b>",
    "&amp;",
    "é",
    "e\u{301}",
    "ß",
    "ss",
    "ı",
    "i",
    "I",
    "İ",
    "Ω",
    "Ω",
    "日本語",
    "🔒",
    "𝐚",
    "ａ",
    "\u{fffd}",
];

/// Hostile names do not collide.
pub async fn hostile_names_do_not_collide(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    // The longest names, which differ only in one byte at either end.
    let filler = "x".repeat(fixture.max_name_bytes() - 1);
    let wide = "é".repeat(fixture.max_name_bytes() / 2);
    let longest = [format!("{filler}y"), format!("{filler}z"), format!("y{filler}"), filler, wide];
    let names = HOSTILE_NAMES.iter().map(|name| (*name).to_owned()).chain(longest);
    ensure_independent(&store, names.collect()).await
}

/// Random names of hostile characters do not collide.
pub async fn random_names_do_not_collide(fixture: &dyn Fixture) -> CaseResult {
    // Fixed, so that a failure can be repeated.
    const SEED: u64 = 20_240_229;
    const LETTERS: &[char] = &[
        'a', 'A', ':', '*', '?', '[', ']', '%', '_', '\'', '"', '\\', '/', '-', '0', 'é', '🔒', '|',
        '\u{301}',
    ];
    let store = fixture.open().await?;
    let random = SeededRandom::new(SEED);
    let pick = |bound: usize| usize::try_from(random.below(u64::try_from(bound).unwrap_or(1))).unwrap_or(0);
    let names =
        (0..60).map(|_| (0..=pick(6)).filter_map(|_| LETTERS.get(pick(LETTERS.len()))).collect::<String>());
    ensure_independent(&store, names.collect()).await.with_context(|| format!("seed {SEED}"))
}

/// Names and holders with an invisible character are refused for new leases. Other calls about such a name are
/// answered: a lease from before the rule must be within reach.
pub async fn invisible_characters_are_refused_at_acquire(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    for (name, who) in [("job:1\u{fe0f}", "me"), ("job:\u{3164}1", "me"), ("job:1", "m\u{202e}e")] {
        let client = TestClient::new(&store, name, who)?;
        let refused = store.acquire(&client.acquire_request(long_ttl()), CALL_TIMEOUT).await;
        let Err(error) = refused else {
            bail!("{name:?} of {who:?} was not refused: {refused:?}");
        };
        ensure!(!error.unknown && error.message().contains("U+"), "{name:?} of {who:?}: {error}");
        ensure!(client.inspect().await?.is_none(), "{name:?} of {who:?} is held");
        let release = ReleaseRequest::by_owner(client.name.clone(), client.token.clone());
        let released = store.release(&release, CALL_TIMEOUT).await?;
        ensure!(released == ReleaseResponse::NotOwned, "{name:?}: {released:?}");
    }
    Ok(())
}

/// Acquires all names, inspects them, and releases them one by one: none affects another.
async fn ensure_independent(store: &SharedStore, names: BTreeSet<String>) -> CaseResult {
    let mut held = Vec::new();
    for (number, name) in names.iter().enumerate() {
        let client = TestClient::new(store, name, &format!("holder-{number}"))?;
        let got = client.expect_granted(long_ttl()).await.context("I12: two names are one to the store")?;
        held.push((client, got));
    }
    for (client, got) in &held {
        let shown = client
            .inspect()
            .await?
            .with_context(|| format!("I12: the lease of {:?} is not shown", client.name))?;
        ensure!(
            shown.name == client.name
                && shown.holder == client.token.holder()
                && shown.fence == Some(got.fence),
            "I12: asked about {:?} of {:?}, the store shows {shown:?}",
            client.name,
            client.token
        );
    }
    if store.capabilities().list {
        let shown = store.list("", names.len() + 10, CALL_TIMEOUT).await?;
        let shown: BTreeSet<_> = shown.leases.iter().map(|lease| lease.name.to_string()).collect();
        ensure!(
            shown == names,
            "I12: listed but not held: {:?}; held but not listed: {:?}",
            shown.difference(&names).collect::<Vec<_>>(),
            names.difference(&shown).collect::<Vec<_>>()
        );
    }
    // One half first, so that neighbours in any order are freed while the other is still held.
    let half = held.len() / 2;
    let (gone, kept) = held.split_at(half);
    for (client, _) in gone {
        client.expect_released().await?;
    }
    for (client, got) in kept {
        client.expect_still_held(got.fence).await?;
        client.expect_released().await?;
    }
    Ok(())
}
