//! Each toxic has its documented effect on a stream of bytes, also on connections that are already
//! open.

use std::io::ErrorKind;
use std::time::Duration;

use leasehold_drill::proxy::StreamDirection;
use tokio::io::AsyncWriteExt;

use super::fixture::{Client, Stopwatch, echo_proxy, eventually};

#[tokio::test]
async fn without_toxics_bytes_pass_both_ways_untouched() {
    let (echo, proxy) = echo_proxy().await;
    let client = Client::connect(proxy.address()).await;
    let sent: Vec<u8> = (0..1_000_000u32).map(|n| (n % 251) as u8).collect();
    let (mut reader, mut writer) = client.0.into_split();
    let copy = sent.clone();
    let writing = tokio::spawn(async move {
        writer.write_all(&copy).await.unwrap();
        writer.shutdown().await.unwrap();
    });
    let mut got = Vec::new();
    super::fixture::with_timeout("the echo", tokio::io::AsyncReadExt::read_to_end(&mut reader, &mut got))
        .await
        .unwrap();
    writing.await.unwrap();
    assert!(got == sent && echo.received() == sent);
    let report = proxy.stop().await;
    assert_eq!((report.stats.bytes_upstream, report.stats.bytes_downstream), (1_000_000, 1_000_000));
    assert!(report.history.is_empty());
}

#[tokio::test]
async fn latency_delays_each_direction() {
    let (_echo, proxy) = echo_proxy().await;
    let mut client = Client::connect(proxy.address()).await;
    client.expect("warm", "warm").await;
    proxy.add("latency latency=120 stream=upstream".parse().unwrap()).unwrap();
    proxy.add("latency latency=80".parse().unwrap()).unwrap();
    let watch = Stopwatch::start();
    client.expect("late", "late").await;
    assert!(watch.elapsed() >= Duration::from_millis(200), "{:?}", watch.elapsed());
    let history = proxy.history();
    assert_eq!(history.len(), 2, "{history:?}");
    assert_eq!((history[0].connection, history[0].stream), (1, Some(StreamDirection::Upstream)));
    assert_eq!(proxy.stats().faults.get("latency"), Some(&2));
}

#[tokio::test]
async fn removing_a_toxic_frees_what_it_delayed() {
    let (_echo, proxy) = echo_proxy().await;
    let mut client = Client::connect(proxy.address()).await;
    proxy.add("latency latency=3600000 name=hour".parse().unwrap()).unwrap();
    client.send("in an hour").await;
    eventually("the toxic to work", || proxy.history().len() == 1).await;
    client.expect_silence().await;
    proxy.remove("hour").unwrap();
    assert_eq!(client.receive(10).await, b"in an hour");
}

#[tokio::test]
async fn bandwidth_limits_throughput() {
    let (_echo, proxy) = echo_proxy().await;
    let mut client = Client::connect(proxy.address()).await;
    proxy.add("bandwidth rate=50".parse().unwrap()).unwrap();
    let watch = Stopwatch::start();
    client.send(vec![b'x'; 20_000]).await;
    client.receive(20_000).await;
    assert!(watch.elapsed() >= Duration::from_millis(400), "{:?}", watch.elapsed());
}

#[tokio::test]
async fn slicer_keeps_bytes_and_order_and_takes_a_pause_between_pieces() {
    let (_echo, proxy) = echo_proxy().await;
    let mut client = Client::connect(proxy.address()).await;
    proxy.add("slicer average_size=5 delay=40000".parse().unwrap()).unwrap();
    let watch = Stopwatch::start();
    client.expect("abcdefghijklmnopqrst", "abcdefghijklmnopqrst").await;
    assert!(watch.elapsed() >= Duration::from_millis(120), "three pauses: {:?}", watch.elapsed());
}

#[tokio::test]
async fn slow_close_passes_data_and_delays_the_end() {
    let (_echo, proxy) = echo_proxy().await;
    let mut client = Client::connect(proxy.address()).await;
    proxy.add("slow_close delay=200".parse().unwrap()).unwrap();
    client.expect("data", "data").await;
    let watch = Stopwatch::start();
    client.0.shutdown().await.unwrap();
    assert_eq!(client.read_to_end().await, (vec![], None));
    assert!(watch.elapsed() >= Duration::from_millis(200), "{:?}", watch.elapsed());
}

#[tokio::test]
async fn timeout_stops_data_and_closes() {
    let (echo, proxy) = echo_proxy().await;
    let mut client = Client::connect(proxy.address()).await;
    client.expect("before", "before").await;
    let watch = Stopwatch::start();
    proxy.add("timeout timeout=150 stream=upstream".parse().unwrap()).unwrap();
    eventually("the toxic to work", || proxy.history().len() == 1).await;
    // On a slow machine the connection may already be closed when this is sent.
    let _ = client.0.write_all(b"never").await;
    let (got, _) = client.read_to_end().await;
    assert!(got.is_empty());
    assert!(watch.elapsed() >= Duration::from_millis(150), "{:?}", watch.elapsed());
    eventually("the server to see the end", || echo.connection_ends().len() == 1).await;
    assert_eq!(echo.received(), b"before");
}

#[tokio::test]
async fn a_black_hole_holds_data_until_it_heals() {
    let (echo, proxy) = echo_proxy().await;
    let mut client = Client::connect(proxy.address()).await;
    client.expect("before ", "before ").await;
    proxy.add("timeout timeout=0 stream=upstream".parse().unwrap()).unwrap();
    eventually("the toxic to work", || proxy.history().len() == 1).await;
    client.send("during").await;
    client.expect_silence().await;
    assert_eq!(echo.received(), b"before ");
    proxy.heal().await.unwrap();
    assert_eq!(client.receive(6).await, b"during");
    client.expect(" after", " after").await;
    assert_eq!(echo.received(), b"before during after");
    assert!(proxy.toxics().is_empty());
}

#[tokio::test]
async fn reset_peer_resets_both_sides() {
    let (echo, proxy) = echo_proxy().await;
    let mut client = Client::connect(proxy.address()).await;
    client.expect("before", "before").await;
    proxy.add("reset_peer timeout=0".parse().unwrap()).unwrap();
    assert_eq!(client.read_to_end().await, (vec![], Some(ErrorKind::ConnectionReset)));
    eventually("the server to see it", || echo.connection_ends() == [Some(ErrorKind::ConnectionReset)]).await;
}

#[tokio::test]
async fn limit_data_closes_after_exactly_its_bytes() {
    let (_echo, proxy) = echo_proxy().await;
    proxy.add("limit_data bytes=10".parse().unwrap()).unwrap();
    let mut client = Client::connect(proxy.address()).await;
    client.send("0123456789abcdef").await;
    assert_eq!(client.read_to_end().await.0, b"0123456789");
    assert_eq!(proxy.stats().faults.get("limit_data"), Some(&1));
}

#[tokio::test]
async fn cut_after_forward_by_bytes_lets_the_server_have_the_request() {
    for (reset, end) in [("false", None), ("true", Some(ErrorKind::ConnectionReset))] {
        let (echo, proxy) = echo_proxy().await;
        proxy.add(format!("cut_after_forward bytes=8 times=1 reset={reset}").parse().unwrap()).unwrap();
        let mut client = Client::connect(proxy.address()).await;
        client.expect("1234", "1234").await;
        client.send("5678").await;
        assert_eq!(client.read_to_end().await, (vec![], end));
        assert_eq!(echo.received(), b"12345678");
        // The toxic is used up: the next connection is not cut.
        let mut client = Client::connect(proxy.address()).await;
        client.expect("123456789", "123456789").await;
        assert_eq!(proxy.history().len(), 1);
    }
}
