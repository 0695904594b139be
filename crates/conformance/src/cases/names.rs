//! Names are text, whatever they look like to a query, a pattern or a path (invariant I12).

use std::collections::BTreeSet;

use anyhow::{Context, ensure};
use leasehold_core::rng::{RandomExt, SeededRandom};
use leasehold_core::store::SharedStore;

use crate::asker::{Asker, WITHIN, long};
use crate::case::Verdict;
use crate::fixture::Fixture;

/// Names that have hurt somebody's store: separators, patterns, quotes, statements, paths, look-alikes.
const HOSTILE: &[&str] = &[
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

/// Hostile names are each a name of their own.
pub async fn hostile_names_do_not_collide(fixture: &dyn Fixture) -> Verdict {
    let store = fixture.open().await?;
    // The longest names, alike but for one byte at either end.
    let filler = "x".repeat(fixture.longest_name() - 1);
    let wide = "é".repeat(fixture.longest_name() / 2);
    let longest = [
        format!("{filler}y"),
        format!("{filler}z"),
        format!("y{filler}"),
        filler,
        wide,
    ];
    let names = HOSTILE.iter().map(|name| (*name).to_owned()).chain(longest);
    apart(&store, names.collect()).await
}

/// Random names of hostile characters are each a name of their own.
pub async fn random_names_do_not_collide(fixture: &dyn Fixture) -> Verdict {
    const SEED: u64 = 20_240_229;
    const LETTERS: &[char] = &[
        'a', 'A', ':', '*', '?', '[', ']', '%', '_', '\'', '"', '\\', '/', '-', '0', 'é', '🔒', '|',
        '\u{301}',
    ];
    let store = fixture.open().await?;
    let random = SeededRandom::new(SEED);
    let pick = |bound: usize| usize::try_from(random.below(u64::try_from(bound).unwrap_or(1))).unwrap_or(0);
    let names = (0..60).map(|_| {
        (0..=pick(6))
            .filter_map(|_| LETTERS.get(pick(LETTERS.len())))
            .collect::<String>()
    });
    apart(&store, names.collect())
        .await
        .with_context(|| format!("seed {SEED}"))
}

/// Takes all of them, looks at all of them, and gives them back one by one: none touches another.
async fn apart(store: &SharedStore, names: BTreeSet<String>) -> Verdict {
    let mut held = Vec::new();
    for (number, name) in names.iter().enumerate() {
        let asker = Asker::new(store, name, &format!("holder-{number}"))?;
        let got = asker
            .gets(long())
            .await
            .context("I12: two names are one to the store")?;
        held.push((asker, got));
    }
    for (asker, got) in &held {
        let shown = asker
            .sees()
            .await?
            .with_context(|| format!("I12: the lease of {:?} is not shown", asker.name))?;
        ensure!(
            shown.name == asker.name
                && shown.holder == asker.token.holder()
                && shown.fence == Some(got.fence),
            "I12: asked about {:?} of {:?}, the store shows {shown:?}",
            asker.name,
            asker.token
        );
    }
    if store.capabilities().list {
        let shown = store.list("", names.len() + 10, WITHIN).await?;
        let shown: BTreeSet<_> = shown.leases.iter().map(|lease| lease.name.to_string()).collect();
        ensure!(
            shown == names,
            "I12: listed but not held: {:?}; held but not listed: {:?}",
            shown.difference(&names).collect::<Vec<_>>(),
            names.difference(&shown).collect::<Vec<_>>()
        );
    }
    // From both ends at once, so that neighbours in any order are freed while the other is held.
    let half = held.len() / 2;
    let (gone, kept) = held.split_at(half);
    for (asker, _) in gone {
        asker.lets_go().await?;
    }
    for (asker, got) in kept {
        asker.still_holds(got.fence).await?;
        asker.lets_go().await?;
    }
    Ok(())
}
