use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use leasehold_core::store::StoreErrorKind;
use leasehold_core::url_options::{check_private, read_secret, unknown_key};

#[test]
fn an_unknown_option_names_the_nearest() {
    let error = unknown_key("timout", &["pool", "timeout"]);
    assert_eq!(error.kind, StoreErrorKind::Misconfigured);
    assert_eq!(error.message(), "the URL's timout= is not known; did you mean timeout=?");
}

#[test]
fn a_secret_is_the_first_line_of_a_private_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("secret");
    let missing = check_private("password_file", &path).unwrap_err();
    assert!(
        missing.message().starts_with("password_file /") && missing.message().contains("cannot be read"),
        "{missing}"
    );
    std::fs::write(&path, "s3cret\nmore\n").unwrap();
    for (mode, private) in
        [(0o600, true), (0o400, true), (0o640, false), (0o620, false), (0o644, false), (0o604, false)]
    {
        std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        assert_eq!(check_private("password_file", &path).is_ok(), private, "{mode:o}");
        match read_secret("password_file", &path) {
            Ok(secret) => assert!(private && secret == "s3cret", "{mode:o}"),
            Err(error) => assert!(!private && error.message().contains("chmod 600"), "{error}"),
        }
    }
}
