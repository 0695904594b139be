//! TLS with a private CA.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use leasehold_core::store::{Store, StoreErrorKind};
use leasehold_redis::testkit::RedisServer;

use crate::fixture::{CALL_TIMEOUT, acquire_request, expect_granted, open, token};

/// Creates a certificate authority, and a certificate for 127.0.0.1 signed by it.
fn certificates(dir: &Path) -> [PathBuf; 3] {
    let at = |file: &str| dir.join(file).display().to_string();
    let openssl = |args: &[&str]| {
        let done = Command::new("openssl").args(args).stderr(Stdio::null()).status();
        assert!(done.expect("openssl must be installed").success(), "{args:?}");
    };
    std::fs::write(dir.join("ext"), "subjectAltName=IP:127.0.0.1\n").unwrap();
    let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
    let with = |more: &[&str]| {
        let mut args = vec!["req"];
        args.extend(key);
        args.extend(more);
        openssl(&args);
    };
    with(&["-x509", "-days", "2", "-subj", "/CN=test-ca", "-keyout", &at("ca.key"), "-out", &at("ca.pem")]);
    with(&["-subj", "/CN=redis", "-keyout", &at("server.key"), "-out", &at("server.csr")]);
    openssl(&[
        "x509",
        "-req",
        "-days",
        "2",
        "-in",
        &at("server.csr"),
        "-CA",
        &at("ca.pem"),
        "-CAkey",
        &at("ca.key"),
        "-CAcreateserial",
        "-extfile",
        &at("ext"),
        "-out",
        &at("server.pem"),
    ]);
    ["ca.pem", "server.pem", "server.key"].map(|file| dir.join(file))
}

#[tokio::test]
async fn r18_tls_with_the_right_authority_and_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let [ca, cert, key] = certificates(dir.path()).map(|path| path.display().to_string());
    let server = RedisServer::start_with(&[
        "--port",
        "0",
        "--tls-port",
        "{port}",
        "--tls-cert-file",
        &cert,
        "--tls-key-file",
        &key,
        "--tls-ca-cert-file",
        &ca,
        "--tls-auth-clients",
        "no",
    ])
    .await
    .unwrap();
    let url = format!("rediss://127.0.0.1:{}", server.port());
    let trusting = open(&format!("{url}?ca_file={ca}"));
    expect_granted(&trusting, &acquire_request("a", &token())).await;

    // Without that CA no command is sent; over plain TCP the server does not understand us.
    let failure = open(&url).acquire(&acquire_request("b", &token()), CALL_TIMEOUT).await.unwrap_err();
    assert!(!failure.unknown && failure.kind == StoreErrorKind::Misconfigured, "{failure}");
    assert!(failure.message().contains("ca_file="), "{failure}");
    let plain = open(&url.replace("rediss", "redis"));
    assert!(!plain.acquire(&acquire_request("b", &token()), CALL_TIMEOUT).await.unwrap_err().unknown);
}
