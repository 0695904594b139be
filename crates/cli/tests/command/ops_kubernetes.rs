//! The shipped Kubernetes manifests: findings 7 and 31 of the security review.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests, and what they share")]

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use leasehold_redis::testkit::RedisServer;
use serde_json::Value;

use crate::fixture::{Fixture, RunningProcess, exit_code, stderr_of, stdout_of};
use crate::ops::{get, new_tokens_file, wait_for_url};

/// The mode of `defaultMode` in the manifest.
const SECRET_MODE: u32 = 0o400;

fn manifest_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ops/kubernetes").canonicalize().unwrap()
}

/// Reads a manifest, which has one document.
fn manifest(file: &str) -> Value {
    let script = "import json, sys, yaml; print(json.dumps(yaml.safe_load(open(sys.argv[1]))))";
    let output = Command::new("python3").args(["-c", script]).arg(manifest_folder().join(file)).output();
    let output = output.expect("python3 is needed: install the package python3");
    assert!(output.status.success(), "install the package python3-yaml: {}", stderr_of(&output));
    serde_json::from_str(&stdout_of(&output)).unwrap()
}

fn array<'a>(value: &'a Value, pointer: &str) -> &'a Vec<Value> {
    value.pointer(pointer).and_then(Value::as_array).unwrap_or_else(|| panic!("no {pointer} in {value:#}"))
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_else(|| panic!("no {pointer} in {value:#}"))
}

/// Two daemons would not know each other's holds, and a state that goes with the pod loses the audit log.
#[test]
fn finding_07_one_daemon_whose_state_outlives_the_pod() {
    let list = manifest("kustomization.yaml");
    let mut listed: Vec<&str> =
        array(&list, "/resources").iter().map(|file| file.as_str().unwrap()).collect();
    listed.push("kustomization.yaml");
    listed.sort_unstable();
    let files = std::fs::read_dir(manifest_folder()).unwrap();
    let mut files: Vec<_> = files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    files.sort_unstable();
    assert_eq!(files, listed);
    for file in &files {
        assert!(manifest(file)["kind"].is_string(), "{file}");
    }
    let deployment = manifest("deployment.yaml");
    assert_eq!(deployment["spec"]["replicas"], 1);
    assert_eq!(deployment["spec"]["strategy"]["type"], "Recreate");
    let pod = &deployment["spec"]["template"]["spec"];
    // Not at each mount: the daemon's files are private to its user.
    assert_eq!(pod["securityContext"]["fsGroupChangePolicy"], "OnRootMismatch");
    assert!(pod.get("initContainers").is_none(), "a copied secret is not followed when it changes");
    let volumes = array(pod, "/volumes");
    let claim = manifest("storage.yaml");
    assert_eq!(claim["kind"], "PersistentVolumeClaim");
    for mount in array(pod, "/containers/0/volumeMounts") {
        let volume = volumes.iter().find(|volume| volume["name"] == mount["name"]).unwrap();
        assert!(mount.get("subPath").is_none(), "a file mounted by subPath is not followed: {mount}");
        if mount["name"] == "state" {
            assert_eq!(volume["persistentVolumeClaim"]["claimName"], claim["metadata"]["name"]);
            let state = array(pod, "/containers/0/args").iter().filter_map(Value::as_str);
            let state = state.filter_map(|arg| arg.strip_prefix("--state=")).next().unwrap();
            assert!(state.starts_with(text(mount, "/mountPath")), "{state}");
        } else {
            assert!(volume["secret"]["secretName"].is_string(), "{volume}");
            assert_eq!(volume["secret"]["defaultMode"], SECRET_MODE, "{volume}");
            assert_eq!(mount["readOnly"], true, "{mount}");
        }
    }
}

/// A secret as the kubelet mounts it: each file is a link through `..data` into a folder of one version.
fn mount_secret(fixture: &Fixture, mount: &str, files: &[(&str, PathBuf)]) {
    let folder = fixture.path(mount);
    let version = folder.join("..2026_11_18_00_00_00.1");
    std::fs::create_dir_all(&version).unwrap();
    symlink("..2026_11_18_00_00_00.1", folder.join("..data")).unwrap();
    for (name, from) in files {
        let file = version.join(name);
        std::fs::copy(from, &file).unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(SECRET_MODE)).unwrap();
        symlink(Path::new("..data").join(name), folder.join(name)).unwrap();
    }
}

fn make_certificate(fixture: &Fixture) {
    let made = Command::new("openssl")
        .args(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost"
                .split(' '),
        )
        .args(["-addext", "basicConstraints=critical,CA:FALSE", "-addext", "subjectAltName=IP:127.0.0.1"])
        .args(["-keyout", "tls.key", "-out", "tls.crt"])
        .current_dir(fixture.path("."))
        .stderr(Stdio::null())
        .status()
        .expect("openssl is needed: install the package openssl");
    assert!(made.success());
}

/// Starts the container's command with its arguments and its environment, and nothing else in it.
fn start_container(fixture: &Fixture, container: &Value, redis: &RedisServer) -> RunningProcess {
    let root = fixture.path(".").display().to_string();
    let mapped = |word: &Value| {
        let word = word.as_str().unwrap().replace("0.0.0.0:7420", "127.0.0.1:0");
        let word = word.replace("redis:6379", &format!("127.0.0.1:{}", redis.port()));
        word.replace("/etc/leasehold", &format!("{root}/etc"))
            .replace("/var/lib/leasehold", &format!("{root}/var"))
    };
    assert_eq!(container["command"], serde_json::json!(["/usr/local/bin/leasehold"]));
    let args: Vec<String> = array(container, "/args").iter().map(mapped).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    fixture.start_with(&args, |command| {
        command.env_clear();
        for variable in array(container, "/env") {
            command.env(text(variable, "/name"), mapped(&variable["value"]));
        }
    })
}

/// What the kubelet does to a volume of a pod with `fsGroup` if the volume's root does not fit the group: its
/// recursive change of group and modes (`SetVolumeOwnership`). The group is the process's own here.
fn give_to_group(path: &Path) {
    let found = std::fs::symlink_metadata(path).unwrap();
    if found.is_symlink() {
        return;
    }
    let mask = if found.is_dir() { 0o2770 } else { 0o660 };
    std::fs::set_permissions(path, PermissionsExt::from_mode(found.mode() & 0o7777 | mask)).unwrap();
    if found.is_dir() {
        std::fs::read_dir(path).unwrap().for_each(|entry| give_to_group(&entry.unwrap().path()));
    }
}

/// Fails if anybody but the owner has access to something in the folder.
fn assert_private(folder: &Path) {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    for path in entries.chain([folder.to_owned()]) {
        let mode = std::fs::symlink_metadata(&path).unwrap().mode() & 0o777;
        assert_eq!(mode & 0o077, 0, "{}: {mode:03o}", path.display());
    }
}

/// The deployment starts with a Redis that wants a password and TLS, its probes succeed, requests are
/// answered, and a restart continues the audit log, also after the kubelet has opened the volume to the group.
#[test]
fn finding_07_the_deployment_starts_and_a_restart_keeps_the_audit_log() {
    let fixture = Fixture::sqlite();
    let token = new_tokens_file(&fixture, "tokens.toml");
    make_certificate(&fixture);
    fixture.write("password", "not-for-production\n");
    let [cert, key, tokens, password] =
        ["tls.crt", "tls.key", "tokens.toml", "password"].map(|file| fixture.path(file));
    mount_secret(&fixture, "etc/tokens", &[("tokens.toml", tokens)]);
    mount_secret(&fixture, "etc/tls", &[("tls.crt", cert.clone()), ("tls.key", key.clone())]);
    mount_secret(&fixture, "etc/redis", &[("password", password), ("ca.crt", cert.clone())]);
    std::fs::create_dir(fixture.path("var")).unwrap();
    let (cert, key) = (cert.display().to_string(), key.display().to_string());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let redis = runtime.block_on(RedisServer::start_with(&[
        "--port",
        "0",
        "--tls-port",
        "{port}",
        "--tls-auth-clients",
        "no",
        "--tls-cert-file",
        &cert,
        "--tls-key-file",
        &key,
        "--tls-ca-cert-file",
        &cert,
        "--requirepass",
        "not-for-production",
    ]));
    let redis = redis.expect("redis-server must be installed");
    let deployment = manifest("deployment.yaml");
    let container = deployment.pointer("/spec/template/spec/containers/0").unwrap();
    let bearer = format!("authorization: Bearer {token}");
    for round in 1..=2 {
        let mut running = start_container(&fixture, container, &redis);
        let url = wait_for_url(&running);
        for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
            let probe = &container[probe]["httpGet"];
            assert_eq!((&probe["port"], &probe["scheme"]), (&container["ports"][0]["name"], &"HTTPS".into()));
            // Like the kubelet, which does not verify certificates.
            let (status, body) = get(&fixture, &format!("{url}{}", text(probe, "/path")), &["-k"]);
            assert_eq!(status, 200, "{probe}: {body}");
        }
        let acquire = format!("{url}/v1/locks/job:{round}/acquire");
        let request = ["-k", "-H", &bearer, "-H", "content-type: application/json", "-d", "{}"];
        let (status, body) = get(&fixture, &acquire, &request);
        assert_eq!(status, 200, "{body}");
        assert_eq!(get(&fixture, &acquire, &["-k", "-X", "POST"]).0, 401);
        running.signal(rustix::process::Signal::TERM);
        assert_eq!(running.wait_exit_code(), 0, "{}", running.stderr());
        let log = fixture.read("var/daemon/audit.jsonl");
        assert_eq!(log.matches("\"action\":\"acquire\"").count(), round, "{log}");
        let verified = fixture.run(&["audit", "verify", "var/daemon"]);
        assert_eq!(exit_code(&verified), 0, "{}{}", stdout_of(&verified), stderr_of(&verified));
        assert_private(&fixture.path("var/daemon"));
        // A mount of a volume that was restored elsewhere: its root is not the group's.
        give_to_group(&fixture.path("var"));
    }
}

/// A policy with ports only lets every pod of the cluster in, and the daemon out to every host.
#[test]
fn finding_31_the_network_policy_names_peers_and_the_image_a_digest() {
    let policy = manifest("network.yaml");
    for (direction, peers) in [("/spec/ingress", "/from"), ("/spec/egress", "/to")] {
        let rules = array(&policy, direction);
        assert!(!rules.is_empty(), "{direction}");
        for rule in rules {
            let peers = array(rule, peers);
            let named = |peer: &Value| {
                let selected = ["podSelector", "namespaceSelector"].map(|kind| peer.get(kind));
                selected.iter().flatten().all(|selector| {
                    selector["matchLabels"].as_object().is_some_and(|labels| !labels.is_empty())
                })
            };
            assert!(!peers.is_empty() && peers.iter().all(named), "{rule:#}");
            assert!(!array(rule, "/ports").is_empty(), "{rule:#}");
        }
    }
    let images = manifest("kustomization.yaml");
    for image in array(&images, "/images") {
        assert!(text(image, "/digest").starts_with("sha256:"), "{image}");
        assert!(image.get("newTag").is_none(), "{image}");
    }
    let deployment = manifest("deployment.yaml");
    let store = text(&deployment, "/spec/template/spec/containers/0/env/0/value");
    assert!(store.starts_with("rediss://") && store.contains("password_file="), "{store}");
}
