//! The shipped systemd unit: its `ExecStart` runs with its default store in an emulation of its sandbox.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests, and what they share")]

use std::os::unix::fs::{PermissionsExt, chown};
use std::process::{Command, Stdio};

use crate::fixture::{Fixture, RunningProcess, stderr_of};
use crate::ops::{get, new_tokens_file, wait_for_url};

const UNIT: &str = include_str!("../../../../ops/systemd/leasehold.service");

/// In the range that systemd takes for `DynamicUser=`.
const DYNAMIC_UID: u32 = 61_999;

/// Mounts what the unit's options would mount, then becomes the service: another user without
/// capabilities. Not emulated: the filter of system calls and the network restrictions.
const SANDBOX: &str = r#"
set -eu
mount --make-rprivate /
mount -t tmpfs -o mode=755 tmpfs /var/lib
mkdir -p "/var/lib/$STATE_DIRECTORY"
mount --bind "$HOST_STATE" "/var/lib/$STATE_DIRECTORY"
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p "$CREDENTIALS_DIRECTORY"
cp "$HOST_TOKENS" "$CREDENTIALS_DIRECTORY/tokens.toml"
chown -R "$SERVICE_UID" "$CREDENTIALS_DIRECTORY"
chmod 0500 "$CREDENTIALS_DIRECTORY"
chmod 0400 "$CREDENTIALS_DIRECTORY/tokens.toml"
mount -t tmpfs -o mode=755 tmpfs /usr/local
mkdir -p /usr/local/bin
touch /usr/local/bin/leasehold
mount --bind "$HOST_BINARY" /usr/local/bin/leasehold
mount -t proc -o "$PROC_OPTIONS" proc /proc
mount -t tmpfs -o mode=1777 tmpfs /tmp
for home in /home /root; do mount -t tmpfs -o ro,mode=000 tmpfs "$home"; done
cd /
mount -o remount,bind,ro /
umask "$UMASK"
# Only systemd may raise the limit everywhere; a container may have a lower one.
hard=$(ulimit -Hn)
if [ "$hard" = unlimited ] || [ "$hard" -gt "$NOFILE" ]; then hard=$NOFILE; fi
ulimit -n "$hard"
exec env -i "$STORE" "CREDENTIALS_DIRECTORY=$CREDENTIALS_DIRECTORY" \
  setpriv "--reuid=$SERVICE_UID" "--regid=$SERVICE_UID" --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all \
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

fn start_in_sandbox(fixture: &Fixture) -> RunningProcess {
    let state = fixture.path("state-directory");
    std::fs::create_dir_all(&state).unwrap();
    let mode = u32::from_str_radix(option("StateDirectoryMode"), 8).unwrap();
    std::fs::set_permissions(&state, PermissionsExt::from_mode(mode)).unwrap();
    chown(&state, Some(DYNAMIC_UID), Some(DYNAMIC_UID)).unwrap();
    let credentials = "/run/credentials/leasehold.service";
    // Port 7420 may be in use on the machine of the tests; everything else is the unit's.
    let command = option("ExecStart")
        .replace("127.0.0.1:7420", "127.0.0.1:0")
        .replace("${CREDENTIALS_DIRECTORY}", credentials);
    let out = fixture.path("unit.log");
    let log = std::fs::File::create(&out).unwrap();
    let child = Command::new("unshare")
        .args(["--mount", "bash", "-c", SANDBOX, "sandbox"])
        .args(command.split_whitespace())
        .env("STATE_DIRECTORY", option("StateDirectory"))
        .env("HOST_STATE", state)
        .env("HOST_TOKENS", fixture.path("tokens.toml"))
        .env("HOST_BINARY", env!("CARGO_BIN_EXE_leasehold"))
        .env("CREDENTIALS_DIRECTORY", credentials)
        .env("SERVICE_UID", DYNAMIC_UID.to_string())
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
    assert!(
        rustix::process::getuid().is_root(),
        "this test mounts what the unit's sandbox would: run it as root, or the shipped unit is not tested"
    );
    let fixture = Fixture::sqlite();
    let token = new_tokens_file(&fixture, "tokens.toml");
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
