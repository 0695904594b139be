//! `leasehold advise`: the articles' sums, what it refuses, and a change that the policy file takes.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod stage;

use stage::{Stage, code, printed, said};

/// 1,000 holds: 18 s at the 99th percentile.
fn held() -> String {
    (0..1000)
        .map(|at| if at < 980 { "5s\n" } else { "18s\n" })
        .collect()
}

#[test]
fn the_articles_example_and_its_takeover_target() {
    let stage = Stage::sqlite();
    stage.write("held.txt", &held());
    let args = [
        "advise",
        "scheduler",
        "--from",
        "held.txt",
        "--jitter",
        "4s",
        "--guard",
        "2s",
        "--slo",
        "30s",
    ];
    let told = stage.run(&args);
    let text = printed(&told);
    assert_eq!(code(&told), 0, "{}", said(&told));
    assert!(
        text.contains("ttl = 18s + 4s + 2s = 24s, renewed every 8s"),
        "{text}"
    );
    assert!(
        text.contains("the ttl in force cannot meet it (1m 1s at most)"),
        "{text}"
    );
    assert!(
        text.contains("the covering plan does (25s at most): set ttl 24s"),
        "{text}"
    );
    // A target below what any lease can give is an honest no.
    let mut short = args;
    short[9] = "5s";
    let told = stage.run(&short);
    assert_eq!(code(&told), 1, "{}", printed(&told));
    assert!(printed(&told).contains("levers left"), "{}", printed(&told));
}

#[test]
fn for_programs_and_with_another_ttl() {
    let stage = Stage::sqlite();
    stage.write("held.txt", &held());
    let told = stage.run(&[
        "advise",
        "--from",
        "held.txt",
        "--jitter",
        "4s",
        "--guard",
        "2s",
        "--what-if",
        "ttl=12s",
        "-o",
        "json",
        "--html",
        "a.html",
        "--svg",
        "a.svg",
    ]);
    let json: serde_json::Value = serde_json::from_str(&printed(&told)).unwrap();
    assert_eq!(
        (&json["schema_version"], &json["p99_ms"]),
        (&1.into(), &18_000.into())
    );
    assert_eq!(json["recommended"]["ttl_ms"], 24_000);
    let tried = json["plans"].as_array().unwrap().last().unwrap();
    assert_eq!(
        (&tried["ttl_ms"], &tried["takeover_ms"]),
        (&12_000.into(), &13_000.into())
    );
    assert!((tried["covered"].as_f64().unwrap() - 0.98).abs() < 1e-9);
    assert!(stage.read("a.svg").starts_with("<svg") && stage.read("a.html").contains("<svg"));
}

#[test]
fn the_change_is_a_diff_that_patch_takes_and_the_policy_loads() {
    let stage = Stage::sqlite();
    stage.write("held.txt", &held());
    stage.write("leasehold.toml", "# ours\n[class.scheduler]\nttl = \"60s\"\n");
    let told = stage.run(&[
        "advise", "--from", "held.txt", "--jitter", "4s", "--guard", "2s", "--write",
    ]);
    let diff = printed(&told);
    assert!(
        diff.contains("-ttl = \"60s\"\n+ttl = \"24s\""),
        "{diff}{}",
        said(&told)
    );
    stage.write("change.diff", &diff);
    let patched = std::process::Command::new("patch")
        .args(["-p1", "-i", "change.diff"])
        .current_dir(stage.path(""))
        .output()
        .unwrap();
    assert!(patched.status.success(), "{patched:?}");
    let shown = printed(&stage.run(&["policy", "show", "scheduler"]));
    assert!(shown.contains("24s"), "{shown}");
    assert!(stage.read("leasehold.toml").starts_with("# ours"));
}

#[test]
fn too_little_or_unreadable_data_is_refused_with_what_is_missing() {
    let stage = Stage::sqlite();
    stage.write("few.txt", "5s\n6s\n");
    let told = stage.run(&["advise", "--from", "few.txt"]);
    assert_eq!(code(&told), 2);
    assert!(said(&told).contains("record 297 more"), "{}", said(&told));
    stage.write("bad.txt", "5s\n90\n");
    let told = stage.run(&["advise", "--from", "bad.txt"]);
    assert_eq!(code(&told), 2);
    assert!(
        said(&told).contains("line 2: `90` has no unit"),
        "{}",
        said(&told)
    );
    let told = stage.run(&["advise", "--p99", "18s", "--what-if", "ttl=9"]);
    assert_eq!(code(&told), 2);
    assert!(said(&told).contains("has no unit"), "{}", said(&told));
}
