//! A daemon without a tokens file belongs to the user who started it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests, and what they share")]

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::fixture::{Fixture, RunningProcess, eventually, exit_code, stderr_of, stdout_of};
use rustix::process::Signal;

fn dev(fixture: &Fixture, listen: &str) -> (RunningProcess, String) {
    let running = fixture.start(&["dev", "--listen", listen]);
    let mut url = String::new();
    eventually("the daemon", || {
        let message = running.stdout();
        let found = message.split([' ', ',']).find(|word| word.starts_with("http://"));
        url = found.unwrap_or_default().to_owned();
        message.contains("to try in another terminal") && message.ends_with('\n')
    });
    (running, url)
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// The status of a request with curl, sent by this command (`sh`, or `setpriv` for another user).
fn status(user: &[&str], more: &[&str], url: &str) -> String {
    let words =
        [user, &["curl", "-sS", "-m", "20", "-o", "/dev/null", "-w", "%{http_code}"], more, &[url]].concat();
    let output = Command::new(words[0]).args(&words[1..]).output().expect("curl and setpriv are needed");
    assert_eq!(exit_code(&output), 0, "{}", stderr_of(&output));
    stdout_of(&output)
}

#[test]
fn finding_08_another_local_account_gets_nothing() {
    let fixture = Fixture::sqlite();
    let (_dev, url) = dev(&fixture, "127.0.0.1:0");
    let token = fixture.path(".local/state/leasehold/tokens").join(url.trim_start_matches("http://"));
    let header = format!("{}.header", token.display());
    assert_eq!(
        [mode(&token), mode(Path::new(&header)), mode(token.parent().unwrap())],
        [0o600, 0o600, 0o700]
    );
    let nobody: &[&str] = if rustix::process::geteuid().is_root() {
        &["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    } else {
        eprintln!("NOT TESTED AS ANOTHER USER: only root can start a program as another user");
        &["env"]
    };
    let job = ["-H", "content-type: application/json", "-d", r#"{"work":{"exec":["id"]}}"#];
    assert_eq!(status(nobody, &job, &format!("{url}/v1/jobs/commands")), "401");
    for path in ["/metrics", "/v1/locks", "/v1/me", "/v1/events"] {
        assert_eq!(status(nobody, &[], &format!("{url}{path}")), "401", "{path}");
    }
    for path in ["/healthz", "/readyz", "/", "/openapi.json"] {
        assert_eq!(status(nobody, &[], &format!("{url}{path}")), "200", "{path}");
    }
    if nobody[0] == "setpriv" {
        let read = Command::new(nobody[0]).args(&nobody[1..]).arg("cat").arg(&token).output().unwrap();
        assert!(!read.status.success() && read.stdout.is_empty(), "{read:?}");
    }
    let own = format!("@{header}");
    assert_eq!(status(&["env"], &["-H", &own], &format!("{url}/metrics")), "200");
    // Without the state folder, the same program is a stranger too.
    let other = Fixture::sqlite();
    let listed = other.run(&["--store", &url, "list"]);
    assert_eq!(exit_code(&listed), 2, "{}", stdout_of(&listed));
    assert!(stderr_of(&listed).contains("only the user who started this daemon"), "{}", stderr_of(&listed));
}

#[test]
fn finding_08_commands_of_the_same_user_find_the_token() {
    let fixture = Fixture::sqlite();
    let (mut first, url) = dev(&fixture, "127.0.0.1:0");
    let address = url.trim_start_matches("http://").to_owned();
    let token = fixture.path(".local/state/leasehold/tokens").join(&address);
    let before = std::fs::read_to_string(&token).unwrap();
    let local = url.replace("127.0.0.1", "localhost");
    for store in [&url, &local] {
        let run = fixture.run(&["--store", store, "run", "demo", "true"]);
        assert_eq!(exit_code(&run), 0, "{}", stderr_of(&run));
    }
    let link = stdout_of(&fixture.run(&["--store", &url, "dashboard"]));
    assert!(link.starts_with(&format!("{url}/#code=")) && !link.contains("lk_"), "{link}");
    // A daemon that was killed leaves its file; the next one has another token, which is found again.
    first.signal(Signal::KILL);
    first.wait_exit_code();
    let (mut second, _) = dev(&fixture, &address);
    assert_ne!(std::fs::read_to_string(&token).unwrap(), before);
    let run = fixture.run(&["--store", &url, "run", "demo", "true"]);
    assert_eq!(exit_code(&run), 0, "{}", stderr_of(&run));
    let stale = format!("authorization: Bearer {}", before.trim());
    assert_eq!(status(&["env"], &["-H", &stale], &format!("{url}/v1/me")), "401");
    second.signal(Signal::TERM);
    assert_eq!(second.wait_exit_code(), 0, "{}", second.stderr());
    assert_eq!(std::fs::read_dir(token.parent().unwrap()).unwrap().count(), 0, "removed at an orderly stop");
}

/// `leasehold dev` prints commands for a shell, with the token of the new daemon.
#[test]
fn finding_08_what_dev_prints_works_as_pasted() {
    let fixture = Fixture::sqlite();
    let (dev, _) = dev(&fixture, "127.0.0.1:0");
    let printed = dev.stdout();
    let lines: Vec<_> = printed.lines().filter_map(|line| line.strip_prefix("  ")).collect();
    assert_eq!(lines.len(), 3, "{printed}");
    assert!(!printed.contains("lk_"), "{printed}");
    let bin = Path::new(env!("CARGO_BIN_EXE_leasehold")).parent().unwrap().display().to_string();
    for line in lines {
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(line.replace("sleep 30", "true").replace("curl -s", "curl -fs"));
        for (key, value) in fixture.command(&[]).get_envs() {
            match value {
                Some(value) => shell.env(key, value),
                None => shell.env_remove(key),
            };
        }
        shell.env("PATH", format!("{bin}:{}", std::env::var("PATH").unwrap()));
        let output = shell.current_dir(fixture.path(".")).output().unwrap();
        assert_eq!(exit_code(&output), 0, "{line}: {}", stderr_of(&output));
        assert!(!output.stdout.is_empty(), "{line}");
    }
}

#[test]
fn finding_27_a_token_is_not_sent_without_tls() {
    let fixture = Fixture::sqlite();
    fixture.write("ci.token", "lk_ci_00\n");
    std::fs::set_permissions(fixture.path("ci.token"), PermissionsExt::from_mode(0o600)).unwrap();
    let listed = fixture.run(&["--store", "http://192.0.2.1:7420?token_file=ci.token", "list"]);
    assert_eq!(exit_code(&listed), 2);
    let message = stderr_of(&listed);
    assert!(message.contains("unencrypted") && message.contains("https://"), "{message}");
}

/// Tokens that are made at once are all in the file, and the file keeps its mode.
#[test]
fn finding_29_tokens_made_at_once_are_all_kept() {
    let fixture = Fixture::sqlite();
    let file = fixture.path("tokens.toml");
    let new = |id: &str| fixture.start(&["token", "new", id, "--grant", "read:*", "--file", "tokens.toml"]);
    assert_eq!(new("first").wait_exit_code(), 0);
    assert_eq!(mode(&file), 0o600);
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o400)).unwrap();
    let ids: BTreeSet<String> = (0..24).map(|number| format!("t{number}")).collect();
    let running: Vec<_> = ids.iter().map(|id| new(id)).collect();
    for mut one in running {
        assert_eq!(one.wait_exit_code(), 0, "{}", one.stderr());
    }
    let text = fixture.read("tokens.toml");
    let found: BTreeSet<String> = text
        .lines()
        .filter_map(|line| line.strip_prefix("id = \"")?.strip_suffix('"'))
        .filter(|id| *id != "first")
        .map(str::to_owned)
        .collect();
    assert_eq!(found, ids);
    assert_eq!(mode(&file), 0o400);
    // A refused entry changes nothing, and no temporary file stays.
    assert_eq!(new("t1").wait_exit_code(), 2);
    assert_eq!(fixture.read("tokens.toml"), text);
    let left = std::fs::read_dir(fixture.path("."))
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let left: Vec<_> = left.filter(|name| name.starts_with(".leasehold-")).collect();
    assert!(left.is_empty(), "{left:?}");
}
