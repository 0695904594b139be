//! The local audit log: one JSON line per action, in a file that only its owner can read.

use std::fs::DirBuilder;
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use leasehold_core::atomic_file::append_private;
use serde_json::Value;

use crate::timestamp;

/// Appends a record. If this fails, the caller must not perform the action.
pub(crate) fn record(path: &Path, mut entry: Value) -> anyhow::Result<()> {
    if let Value::Object(map) = &mut entry {
        map.insert("schema_version".into(), 1.into());
        map.insert("at".into(), timestamp::now().into());
        map.insert("by".into(), actor().into());
    }
    let write = || -> std::io::Result<()> {
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        // One write in append mode: records of several processes do not mix.
        let mut file = append_private(path)?;
        file.write_all(format!("{entry}\n").as_bytes())?;
        file.sync_data()
    };
    write().map_err(|error| {
        anyhow::anyhow!(
            "cannot write down what was to be done in {} ({error}), so it was not done\n\
             set audit_file in the configuration to a file that you can write",
            path.display()
        )
    })
}

/// The user and host for the audit log.
pub(crate) fn actor() -> String {
    // The kernel's uid and not $USER, which the caller can set to anything.
    let uid = rustix::process::getuid().as_raw();
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let user = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, id) = (fields.next()?, fields.nth(1)?);
        (id.parse() == Ok(uid)).then(|| name.to_owned())
    });
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let sudo = std::env::var("SUDO_USER").ok().filter(|name| !name.is_empty());
    let sudo = sudo.map_or_else(String::new, |name| format!(" (sudo by {name})"));
    format!("{}@{host}{sudo}", user.unwrap_or_else(|| format!("uid {uid}")))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use serde_json::json;

    use super::*;

    #[test]
    fn records_follow_one_another_in_a_private_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/audit.jsonl");
        record(&path, json!({ "action": "break" })).unwrap();
        record(&path, json!({ "action": "break" })).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 2);
        let line: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        assert!(line["by"].as_str().unwrap().contains('@') && line["at"].is_string());
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(record(Path::new("/proc/nothing/audit"), json!({})).is_err());
    }
}
