//! The control socket: commands as lines of text.

use std::net::{Ipv4Addr, SocketAddr};

use leasehold_drill::proxy::{Proxy, ProxyConfig};

use super::fixture::{Client, EchoServer};

async fn control_fixture() -> (EchoServer, Proxy, Client) {
    let echo = EchoServer::start().await;
    let config = ProxyConfig::raw(echo.address).control(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    let proxy = Proxy::start(config).await.unwrap();
    let control = Client::connect(proxy.control_address().unwrap()).await;
    (echo, proxy, control)
}

#[tokio::test]
async fn toxics_are_added_listed_and_removed() {
    let (_echo, proxy, mut control) = control_fixture().await;
    control.expect("add limit_data bytes=3 name=short\n", "ok\n").await;
    let listed = "limit_data bytes=3 stream=downstream toxicity=1 name=short\nenabled=true\nok\n";
    control.expect("list\n", listed).await;
    let mut client = Client::connect(proxy.address()).await;
    client.send("abcdef").await;
    assert_eq!(client.read_to_end().await.0, b"abc");
    control.expect("remove short\n", "ok\n").await;
    control
        .expect("remove short\n", "error there is no toxic named `short`: `list` shows those in force\n")
        .await;
    Client::connect(proxy.address()).await.expect("abcdef", "abcdef").await;
}

#[tokio::test]
async fn disable_enable_and_heal() {
    let (_echo, proxy, mut control) = control_fixture().await;
    control.expect("disable\r\nlist\r\n", "ok\nenabled=false\nok\n").await;
    assert!(!proxy.is_enabled());
    control.expect("add timeout\nheal\nlist\n", "ok\nok\nenabled=true\nok\n").await;
    Client::connect(proxy.address()).await.expect("x", "x").await;
}

#[tokio::test]
async fn stats_and_history_show_the_faults() {
    let (_echo, proxy, mut control) = control_fixture().await;
    control.expect("add reset_peer name=rst\n", "ok\n").await;
    Client::connect(proxy.address()).await.read_to_end().await;
    control.send("history\nstats\nquit\n").await;
    let text = String::from_utf8(control.read_to_end().await.0).unwrap();
    assert!(text.contains("connection=1 toxic=rst type=reset_peer stream=downstream\n"), "{text}");
    assert!(text.contains("\nfaults.reset_peer=1\n") && text.contains("connections=1\n"), "{text}");
    assert!(text.ends_with("ok\nok\n"), "{text}");
}

#[tokio::test]
async fn bad_commands_get_one_error_line_and_long_ones_disconnect() {
    let (_echo, proxy, mut control) = control_fixture().await;
    control.expect("dance\n", "error dance: is not an order: `help` lists them\n").await;
    control.expect("add latency\n", "error latency: is missing; write it as key=number\n").await;
    control.send(vec![b'x'; 10_000]).await;
    let (answer, _) = control.read_to_end().await;
    assert!(answer.starts_with(b"error an order is one line"), "{answer:?}");
    // Stopping does not wait for control clients that are idle.
    let mut idle = Client::connect(proxy.control_address().unwrap()).await;
    idle.expect("list\n", "enabled=true\nok\n").await;
    super::fixture::with_timeout("the stop", proxy.stop()).await;
    assert!(idle.read_to_end().await.0.is_empty());
}
