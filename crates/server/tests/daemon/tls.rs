//! TLS: the daemon's certificate, and clients known by theirs.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use leasehold::Name;
use leasehold::store::{Cause, Store};
use leasehold_http::{HttpOptions, HttpStore};
use leasehold_server::TlsFiles;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

use crate::stage::Plan;

fn write(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o600)).unwrap();
}

/// An authority, and what it signs.
fn certificates(folder: &Path) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    write(&folder.join("ca.pem"), &issuer.pem());
    for name in ["localhost", "worker-1.example", "stranger.example"] {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let signed = params.signed_by(&key, &issuer).unwrap();
        write(&folder.join(format!("{name}.pem")), &signed.pem());
        write(&folder.join(format!("{name}.key")), &key.serialize_pem());
    }
}

#[tokio::test]
async fn clients_are_known_by_their_certificates() {
    let mut plan = Plan::new();
    let folder = plan.folder.path().to_owned();
    certificates(&folder);
    let tokens = folder.join("tokens.toml");
    write(
        &tokens,
        "[[client]]\nsan = \"worker-1.example\"\ngrants = [\"read:job\"]\n",
    );
    plan.config.tokens = Some(tokens);
    plan.config.tls = Some(TlsFiles {
        cert: folder.join("localhost.pem"),
        key: folder.join("localhost.key"),
        client_ca: Some(folder.join("ca.pem")),
    });
    let daemon = plan.start().await;
    let ask = async |who: Option<&str>, name: &str| {
        let shown = folder.display();
        let mut url = format!(
            "https://localhost:{}?ca_file={shown}/ca.pem",
            daemon.address.port()
        );
        if let Some(who) = who {
            url.push_str(&format!(
                "&cert_file={shown}/{who}.pem&key_file={shown}/{who}.key"
            ));
        }
        let store = HttpStore::open(HttpOptions::parse(&url).unwrap()).unwrap();
        store
            .inspect(&Name::new(name).unwrap(), Duration::from_secs(5))
            .await
    };
    assert!(ask(Some("worker-1.example"), "job:1").await.is_ok());
    let foreign = ask(Some("worker-1.example"), "other:1").await.unwrap_err();
    assert_eq!((foreign.cause, foreign.unknown), (Cause::Denied, false));
    assert_eq!(
        ask(Some("stranger.example"), "job:1").await.unwrap_err().cause,
        Cause::Denied
    );
    assert!(ask(None, "job:1").await.is_err());
    // A daemon that is not who it should be is not talked to.
    let url = format!("https://localhost:{}", daemon.address.port());
    let store = HttpStore::open(HttpOptions::parse(&url).unwrap()).unwrap();
    let unknown = store
        .inspect(&Name::new("job:1").unwrap(), Duration::from_secs(5))
        .await;
    assert_eq!(unknown.unwrap_err().cause, Cause::Unreachable);
}
