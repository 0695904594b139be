//! The shipped systemd unit: its `ExecStart` runs with its default store in an emulation of its sandbox.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests, and what they share")]

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::fixture::{Fixture, RunningProcess, eventually, exit_code, stderr_of, stdout_of};
use crate::ops::{get, new_tokens_file, wait_for_url};

const UNIT: &str = include_str!("../../../../ops/systemd/leasehold.service");

const ACCOUNTS: &str = include_str!("../../../../ops/systemd/leasehold.sysusers");

/// In the range from which `systemd-sysusers` takes the unit's user.
const SERVICE_UID: u32 = 989;

/// Mounts what the unit's options would mount, then becomes the service: another user without
/// capabilities. Not emulated: the filter of system calls and the network restrictions.
const SANDBOX: &str = r#"
set -eu
mount --make-rprivate /
mount -t tmpfs -o mode=755 tmpfs /var/lib
mkdir -p "/var/lib/$STATE_DIRECTORY"
mount --bind "$HOST_STATE" "/var/lib/$STATE_DIRECTORY"
mount -t tmpfs -o mode=755 tmpfs /run
mount -t tmpfs -o mode=755 tmpfs /etc
mkdir /etc/leasehold
mount --bind "$HOST_CONFIG" /etc/leasehold
mount -t tmpfs -o mode=755 tmpfs /usr/local
mkdir -p /usr/local/bin
touch /usr/local/bin/leasehold
mount --bind "$HOST_BINARY" /usr/local/bin/leasehold
mount -t proc -o "$PROC_OPTIONS" proc /proc
mount -t tmpfs -o mode=1777 tmpfs /tmp
for home in /home /root; do mount -t tmpfs -o ro,mode=000 tmpfs "$home"; done
cd /
for folder in / /etc /etc/leasehold; do mount -o remount,bind,ro "$folder"; done
umask "$UMASK"
# Only systemd may raise the limit everywhere; a container may have a lower one.
hard=$(ulimit -Hn)
if [ "$hard" = unlimited ] || [ "$hard" -gt "$NOFILE" ]; then hard=$NOFILE; fi
ulimit -n "$hard"
exec env -i "$STORE" setpriv "--reuid=$SERVICE_UID" "--regid=$SERVICE_UID" --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all \
  "$@"
"#;

fn option(name: &str) -> &'static str {
    let value = UNIT.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    value.unwrap_or_else(|| panic!("the unit has no {name}"))
}

/// The options with which systemd mounts `/proc` for this unit.
fn proc_options() -> String {
    let hidden = format!("hidepid={}", option("ProtectProc"));
    match option("ProcSubset") {
        "all" => hidden,
        subset => format!("{hidden},subset={subset}"),
    }
}

/// Makes a folder of the service's user.
fn service_folder(fixture: &Fixture, name: &str, mode: &str) -> PathBuf {
    let folder = fixture.path(name);
    std::fs::create_dir_all(&folder).unwrap();
    let mode = u32::from_str_radix(mode, 8).unwrap();
    std::fs::set_permissions(&folder, PermissionsExt::from_mode(mode)).unwrap();
    chown(&folder, Some(SERVICE_UID), Some(SERVICE_UID)).unwrap();
    folder
}

/// The tokens file of the service's user in its folder, and an admin's token.
fn service_tokens(fixture: &Fixture) -> (PathBuf, String) {
    let file = service_folder(fixture, "config", "0700").join("tokens.toml");
    let token = new_tokens_file(fixture, "config/tokens.toml");
    chown(&file, Some(SERVICE_UID), Some(SERVICE_UID)).unwrap();
    (file, token)
}

/// Starts the unit's command. `service_tokens` comes first.
fn start_in_sandbox(fixture: &Fixture) -> RunningProcess {
    assert!(
        rustix::process::getuid().is_root(),
        "this test mounts what the unit's sandbox would: run it as root, or the shipped unit is not tested"
    );
    let state = service_folder(fixture, "state-directory", option("StateDirectoryMode"));
    // Port 7420 may be in use on the machine of the tests; everything else is the unit's.
    let command = option("ExecStart").replace("127.0.0.1:7420", "127.0.0.1:0");
    let out = fixture.path("unit.log");
    let log = std::fs::File::create(&out).unwrap();
    let child = Command::new("unshare")
        .args(["--mount", "bash", "-c", SANDBOX, "sandbox"])
        .args(command.split_whitespace())
        .env("STATE_DIRECTORY", option("StateDirectory"))
        .env("HOST_STATE", state)
        .env("HOST_CONFIG", fixture.path("config"))
        .env("HOST_BINARY", env!("CARGO_BIN_EXE_leasehold"))
        .env("SERVICE_UID", SERVICE_UID.to_string())
        .env("PROC_OPTIONS", proc_options())
        .env("UMASK", option("UMask"))
        .env("NOFILE", option("LimitNOFILE"))
        .env("STORE", option("Environment"))
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .expect("unshare is needed: install the package util-linux");
    RunningProcess::from_child(child, out)
}

/// Finding 6 of the security review: `ProcSubset=pid` hid the boot id from the unit's own store.
#[test]
fn finding_06_the_systemd_unit_opens_its_store_in_its_sandbox() {
    let fixture = Fixture::sqlite();
    let (_, token) = service_tokens(&fixture);
    for round in 1..=2 {
        let mut running = start_in_sandbox(&fixture);
        let url = wait_for_url(&running);
        assert_eq!(get(&fixture, &format!("{url}/readyz"), &[]).0, 200);
        assert_eq!(get(&fixture, &format!("{url}/v1/locks"), &[]).0, 401);
        let bearer = format!("authorization: Bearer {token}");
        assert_eq!(get(&fixture, &format!("{url}/v1/locks"), &["-H", &bearer]).0, 200);
        let acquire = format!("{url}/v1/locks/job:{round}/acquire");
        let body = ["-H", &bearer, "-H", "content-type: application/json", "-d", "{}"];
        let (status, answer) = get(&fixture, &acquire, &body);
        assert_eq!(status, 200, "{answer}");
        // The unit's stop signal drains the daemon and ends it with success. The state stays.
        running.signal(rustix::process::Signal::TERM);
        assert_eq!(running.wait_exit_code(), 0, "{}", running.stderr());
        assert!(fixture.path("state-directory/leasehold.db").exists());
    }
    let verified = fixture.run(&["audit", "verify", "state-directory/daemon"]);
    assert_eq!(verified.status.code(), Some(0), "{}", stderr_of(&verified));
}

/// Finding 12 of the security review: systemd copies credentials once, so a revoked token worked until a restart.
#[test]
fn finding_12_the_systemd_unit_follows_its_tokens_file() {
    let account = format!("u {} ", option("User"));
    assert!(ACCOUNTS.lines().any(|line| line.starts_with(&account)), "{ACCOUNTS}");
    let fixture = Fixture::sqlite();
    let (file, token) = service_tokens(&fixture);
    let before = std::fs::read(&file).unwrap();
    let running = start_in_sandbox(&fixture);
    let url = wait_for_url(&running);
    let status = |token: &str| {
        let bearer = format!("authorization: Bearer {token}");
        get(&fixture, &format!("{url}/v1/locks"), &["-H", &bearer]).0
    };
    assert_eq!(status(&token), 200);
    // By root, as an administrator would: the file stays the service's.
    let words = ["token", "new", "reader", "--grant", "read:*", "--file", "config/tokens.toml"];
    let made = fixture.run(&words);
    assert_eq!(exit_code(&made), 0, "{}", stderr_of(&made));
    let reader = stdout_of(&made).trim().to_owned();
    eventually("the new token to be known", || status(&reader) == 200);
    std::fs::write(&file, before).unwrap();
    eventually("the revoked token to be refused", || status(&reader) == 401);
    assert_eq!(status(&token), 200);
}
