//! Faults at commands and replies, with a real Redis server behind the proxy.

use std::io::ErrorKind;

use super::fixture::{Client, eventually, redis_proxy, with_timeout};

/// Encodes a command as clients send it.
fn encode_command(words: &[&str]) -> String {
    let args: String = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
    format!("*{}\r\n{args}", words.len())
}

#[tokio::test]
async fn commands_and_replies_are_counted_and_untouched() {
    let (_redis, proxy) = redis_proxy(1).await;
    let mut client = Client::connect(proxy.address()).await;
    let all = [
        encode_command(&["SET", "k", "v"]),
        encode_command(&["GET", "k"]),
        encode_command(&["LPUSH", "l", "a", "b"]),
        encode_command(&["LRANGE", "l", "0", "-1"]),
    ];
    client.expect(&all.concat(), "+OK\r\n$1\r\nv\r\n:2\r\n*2\r\n$1\r\nb\r\n$1\r\na\r\n").await;
    // An inline command, and input that Redis does not answer.
    client.expect("\r\n*0\r\nPING\r\n", "+PONG\r\n").await;
    let stats = proxy.stats();
    assert_eq!((stats.commands, stats.replies, stats.swallowed), (7, 5, 0));
}

#[tokio::test]
async fn cut_after_forward_applies_the_command_and_loses_the_reply() {
    for (reset, end) in [("false", None), ("true", Some(ErrorKind::ConnectionReset))] {
        let (redis, proxy) = redis_proxy(1).await;
        proxy.add(format!("cut_after_forward command=SET times=1 reset={reset}").parse().unwrap()).unwrap();
        let mut client = Client::connect(proxy.address()).await;
        client.expect(&encode_command(&["GET", "k"]), "$-1\r\n").await;
        client.send(encode_command(&["SET", "k", "v"])).await;
        assert_eq!(client.read_to_end().await, (vec![], end));
        Client::to_port(redis.port()).await.expect(&encode_command(&["GET", "k"]), "$1\r\nv\r\n").await;
        // The toxic is used up.
        let mut client = Client::connect(proxy.address()).await;
        client.expect(&encode_command(&["SET", "k", "w"]), "+OK\r\n").await;
        assert_eq!(proxy.stats().faults.get("cut_after_forward"), Some(&1));
    }
}

#[tokio::test]
async fn replies_before_the_cut_are_delivered() {
    let (redis, proxy) = redis_proxy(1).await;
    proxy.add("cut_after_forward command=set".parse().unwrap()).unwrap();
    let mut client = Client::connect(proxy.address()).await;
    client
        .send(
            [
                encode_command(&["INCR", "a"]),
                encode_command(&["SET", "b", "1"]),
                encode_command(&["INCR", "a"]),
            ]
            .concat(),
        )
        .await;
    assert_eq!(client.read_to_end().await.0, b":1\r\n");
    Client::to_port(redis.port()).await.expect(&encode_command(&["GET", "b"]), "$1\r\n1\r\n").await;
}

#[tokio::test]
async fn a_cut_that_is_removed_before_the_reply_does_not_happen() {
    let (redis, proxy) = redis_proxy(1).await;
    proxy.add("cut_after_forward command=BLPOP".parse().unwrap()).unwrap();
    let mut client = Client::connect(proxy.address()).await;
    client.send(encode_command(&["BLPOP", "q", "0"])).await;
    eventually("the command to pass", || proxy.stats().commands == 1).await;
    proxy.heal().await.unwrap();
    Client::to_port(redis.port()).await.expect(&encode_command(&["LPUSH", "q", "x"]), ":1\r\n").await;
    let answer = "*2\r\n$1\r\nq\r\n$1\r\nx\r\n";
    assert_eq!(client.receive(answer.len()).await, answer.as_bytes());
}

#[tokio::test]
async fn repeat_applies_twice_and_the_client_stays_in_step() {
    let (redis, proxy) = redis_proxy(1).await;
    proxy.add("repeat command=INCR times=1".parse().unwrap()).unwrap();
    let mut client = Client::connect(proxy.address()).await;
    client.expect(&encode_command(&["INCR", "n"]), ":1\r\n").await;
    Client::to_port(redis.port()).await.expect(&encode_command(&["GET", "n"]), "$1\r\n2\r\n").await;
    client.expect(&encode_command(&["ECHO", "in step"]), "$7\r\nin step\r\n").await;
    client.expect(&encode_command(&["INCR", "n"]), ":3\r\n").await;
    let stats = proxy.stats();
    assert_eq!((stats.commands, stats.replies, stats.swallowed), (3, 4, 1));
    assert_eq!(proxy.history()[0].kind, "repeat");
}

/// A second QUIT would find the connection closed: a fault without effect must not be in the
/// report.
#[tokio::test]
async fn quit_is_not_repeated() {
    let (_redis, proxy) = redis_proxy(1).await;
    proxy.add("repeat".parse().unwrap()).unwrap();
    let mut client = Client::connect(proxy.address()).await;
    client.send(encode_command(&["QUIT"])).await;
    assert_eq!(client.read_to_end().await.0, b"+OK\r\n");
    assert!(proxy.history().is_empty());
}

/// Returns which of 200 pipelined increments were applied twice, judged by the gaps in their
/// replies.
async fn repeated_commands(seed: u64) -> Vec<bool> {
    let (redis, proxy) = redis_proxy(seed).await;
    // The slicer makes frames arrive in pieces, in both directions.
    proxy.add("slicer average_size=7 size_variation=6".parse().unwrap()).unwrap();
    proxy.add("slicer average_size=7 size_variation=6 stream=upstream".parse().unwrap()).unwrap();
    proxy.add("repeat toxicity=0.5".parse().unwrap()).unwrap();
    let mut client = Client::connect(proxy.address()).await;
    client.send(encode_command(&["INCR", "n"]).repeat(200)).await;
    client.send(encode_command(&["QUIT"])).await;
    let text = String::from_utf8(client.read_to_end().await.0).unwrap();
    let mut numbers: Vec<u64> =
        text.lines().filter_map(|line| line.strip_prefix(':')?.parse().ok()).collect();
    assert_eq!(numbers.len(), 200, "one reply for each command");
    assert!(text.ends_with("+OK\r\n"));
    let mut direct = Client::to_port(redis.port()).await;
    direct.send(encode_command(&["GET", "n"]) + &encode_command(&["QUIT"])).await;
    let end = String::from_utf8(direct.read_to_end().await.0).unwrap();
    numbers.push(end.lines().nth(1).unwrap().parse::<u64>().unwrap() + 1);
    let stats = proxy.stats();
    assert_eq!(stats.swallowed + 200, numbers[200] - 1);
    numbers.windows(2).map(|pair| pair[1] - pair[0] == 2).collect()
}

#[tokio::test]
async fn the_seed_decides_which_commands_are_hit() {
    let first = repeated_commands(11).await;
    let share = first.iter().filter(|hit| **hit).count();
    assert!((50..150).contains(&share), "{share} of 200");
    assert_eq!(first, repeated_commands(11).await);
    assert_ne!(first, repeated_commands(12).await);
}

#[tokio::test]
async fn the_seed_decides_which_connections_are_hit() {
    let mut runs = Vec::new();
    for seed in [5, 5, 6] {
        let (_redis, proxy) = redis_proxy(seed).await;
        proxy.add("reset_peer toxicity=0.5".parse().unwrap()).unwrap();
        let mut hit = Vec::new();
        for _ in 0..40 {
            let mut client = Client::connect(proxy.address()).await;
            // A reset may come before, during or after the request. Only a connection without a
            // reset gets the answer.
            let _ = tokio::io::AsyncWriteExt::write_all(&mut client.0, b"PING\r\nQUIT\r\n").await;
            hit.push(client.read_to_end().await.1.is_some());
        }
        runs.push(hit);
    }
    assert_eq!(runs[0], runs[1]);
    assert_ne!(runs[0], runs[2]);
    assert!(runs[0].contains(&true) && runs[0].contains(&false));
}

#[tokio::test]
async fn resp3_pushes_do_not_count_as_replies() {
    let (redis, proxy) = redis_proxy(1).await;
    let mut client = Client::connect(proxy.address()).await;
    client.send(encode_command(&["HELLO", "3"]) + &encode_command(&["ECHO", "ready"])).await;
    with_timeout("the greeting", async {
        let mut seen = Vec::new();
        while !seen.ends_with(b"$5\r\nready\r\n") {
            seen.extend(client.receive(1).await);
        }
    })
    .await;
    proxy.add("repeat".parse().unwrap()).unwrap();
    let push = |channel: &str, n: u8| format!(">3\r\n$9\r\nsubscribe\r\n$1\r\n{channel}\r\n:{n}\r\n");
    client.expect(&encode_command(&["SUBSCRIBE", "a", "b"]), &(push("a", 1) + &push("b", 2))).await;
    let mut other = Client::to_port(redis.port()).await;
    other.expect(&encode_command(&["PUBLISH", "a", "hi"]), ":1\r\n").await;
    client.expect("", ">3\r\n$7\r\nmessage\r\n$1\r\na\r\n$2\r\nhi\r\n").await;
    client.expect(&encode_command(&["INCR", "n"]), ":1\r\n").await;
    client.expect(&encode_command(&["INCR", "n"]), ":3\r\n").await;
    // The server answers a refused subscription with one error.
    client
        .expect(&encode_command(&["SUBSCRIBE"]), "-ERR wrong number of arguments for 'subscribe' command\r\n")
        .await;
    client.expect(&encode_command(&["INCR", "n"]), ":5\r\n").await;
    assert_eq!(proxy.stats().unframed, 0);
}

#[tokio::test]
async fn resp2_subscriptions_are_passed_as_they_come() {
    let (redis, proxy) = redis_proxy(1).await;
    proxy.add("repeat".parse().unwrap()).unwrap();
    let mut client = Client::connect(proxy.address()).await;
    client.expect(&encode_command(&["INCR", "n"]), ":1\r\n").await;
    client.expect(&encode_command(&["SUBSCRIBE", "a"]), "*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n").await;
    let mut other = Client::to_port(redis.port()).await;
    other.expect(&encode_command(&["PUBLISH", "a", "hi"]), ":1\r\n").await;
    client.expect("", "*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$2\r\nhi\r\n").await;
    client.expect(&encode_command(&["PING"]), "*2\r\n$4\r\npong\r\n$0\r\n\r\n").await;
    client.expect_silence().await;
    assert_eq!(proxy.stats().unframed, 1);
}

#[tokio::test]
async fn monitor_is_passed_as_it_comes() {
    let (redis, proxy) = redis_proxy(1).await;
    proxy.add("repeat".parse().unwrap()).unwrap();
    let mut client = Client::connect(proxy.address()).await;
    client.expect(&encode_command(&["MONITOR"]), "+OK\r\n").await;
    Client::to_port(redis.port()).await.expect(&encode_command(&["ECHO", "x"]), "$1\r\nx\r\n").await;
    let line = client.receive(10).await;
    assert_eq!(line.first(), Some(&b'+'), "{line:?}");
}

#[tokio::test]
async fn long_commands_pass_once_and_in_step() {
    let (_redis, proxy) = redis_proxy(1).await;
    proxy.add("repeat".parse().unwrap()).unwrap();
    let mut client = Client::connect(proxy.address()).await;
    client.expect(&encode_command(&["APPEND", "big", &"x".repeat(1 << 20)]), ":1048576\r\n").await;
    client.expect(&encode_command(&["APPEND", "big", "y"]), ":1048577\r\n").await;
    client.expect(&encode_command(&["STRLEN", "big"]), ":1048578\r\n").await;
}

#[tokio::test]
async fn a_downstream_black_hole_applies_the_command_and_heals() {
    let (redis, proxy) = redis_proxy(1).await;
    let mut client = Client::connect(proxy.address()).await;
    client.expect(&encode_command(&["PING"]), "+PONG\r\n").await;
    proxy.add("timeout timeout=0".parse().unwrap()).unwrap();
    eventually("the toxic to work", || proxy.history().len() == 1).await;
    client.send(encode_command(&["SET", "k", "v"])).await;
    client.expect_silence().await;
    Client::to_port(redis.port()).await.expect(&encode_command(&["GET", "k"]), "$1\r\nv\r\n").await;
    proxy.heal().await.unwrap();
    assert_eq!(client.receive(5).await, b"+OK\r\n");
}

#[tokio::test]
async fn what_is_not_resp_is_passed_as_it_comes() {
    let (echo, _) = super::fixture::echo_proxy().await;
    let config = leasehold_drill::proxy::ProxyConfig::resp(echo.address);
    let proxy = leasehold_drill::proxy::Proxy::start(config).await.unwrap();
    let mut client = Client::connect(proxy.address()).await;
    let bytes = [b"*1\r\nnot a bulk string".as_slice(), &[0, 255, 13, 10, 0]].concat();
    client.send(&bytes).await;
    assert_eq!(client.receive(bytes.len()).await, bytes);
}
