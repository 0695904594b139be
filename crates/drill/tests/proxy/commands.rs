//! Faults at commands and replies, with a real Redis behind.

use std::io::ErrorKind;

use super::stage::{Client, eventually, redis_proxy, within};

/// A command as clients send it.
fn resp(words: &[&str]) -> String {
    let args: String = words
        .iter()
        .map(|word| format!("${}\r\n{word}\r\n", word.len()))
        .collect();
    format!("*{}\r\n{args}", words.len())
}

#[tokio::test]
async fn commands_and_replies_are_counted_and_untouched() {
    let (_redis, proxy) = redis_proxy(1).await;
    let mut client = Client::connect(proxy.address()).await;
    let all = [
        resp(&["SET", "k", "v"]),
        resp(&["GET", "k"]),
        resp(&["LPUSH", "l", "a", "b"]),
        resp(&["LRANGE", "l", "0", "-1"]),
    ];
    client
        .expect(
            &all.concat(),
            "+OK\r\n$1\r\nv\r\n:2\r\n*2\r\n$1\r\nb\r\n$1\r\na\r\n",
        )
        .await;
    // Inline, and what Redis does not answer.
    client.expect("\r\n*0\r\nPING\r\n", "+PONG\r\n").await;
    let stats = proxy.stats();
    assert_eq!((stats.commands, stats.replies, stats.swallowed), (7, 5, 0));
}

#[tokio::test]
async fn cut_after_forward_applies_the_command_and_loses_the_reply() {
    for (reset, end) in [("false", None), ("true", Some(ErrorKind::ConnectionReset))] {
        let (redis, proxy) = redis_proxy(1).await;
        proxy
            .add(
                format!("cut_after_forward command=SET times=1 reset={reset}")
                    .parse()
                    .unwrap(),
            )
            .unwrap();
        let mut client = Client::connect(proxy.address()).await;
        client.expect(&resp(&["GET", "k"]), "$-1\r\n").await;
        client.send(resp(&["SET", "k", "v"])).await;
        assert_eq!(client.rest().await, (vec![], end));
        Client::to_port(redis.port())
            .await
            .expect(&resp(&["GET", "k"]), "$1\r\nv\r\n")
            .await;
        // Spent.
        let mut client = Client::connect(proxy.address()).await;
        client.expect(&resp(&["SET", "k", "w"]), "+OK\r\n").await;
        assert_eq!(proxy.stats().faults.get("cut_after_forward"), Some(&1));
    }
}

#[tokio::test]
async fn replies_before_the_cut_are_delivered() {
    let (redis, proxy) = redis_proxy(1).await;
    proxy
        .add("cut_after_forward command=set".parse().unwrap())
        .unwrap();
    let mut client = Client::connect(proxy.address()).await;
    client
        .send(
            [
                resp(&["INCR", "a"]),
                resp(&["SET", "b", "1"]),
                resp(&["INCR", "a"]),
            ]
            .concat(),
        )
        .await;
    assert_eq!(client.rest().await.0, b":1\r\n");
    Client::to_port(redis.port())
        .await
        .expect(&resp(&["GET", "b"]), "$1\r\n1\r\n")
        .await;
}

#[tokio::test]
async fn a_cut_that_is_removed_before_the_reply_does_not_happen() {
    let (redis, proxy) = redis_proxy(1).await;
    proxy
        .add("cut_after_forward command=BLPOP".parse().unwrap())
        .unwrap();
    let mut client = Client::connect(proxy.address()).await;
    client.send(resp(&["BLPOP", "q", "0"])).await;
    eventually("the command to pass", || proxy.stats().commands == 1).await;
    proxy.heal().await.unwrap();
    Client::to_port(redis.port())
        .await
        .expect(&resp(&["LPUSH", "q", "x"]), ":1\r\n")
        .await;
    let answer = "*2\r\n$1\r\nq\r\n$1\r\nx\r\n";
    assert_eq!(client.receive(answer.len()).await, answer.as_bytes());
}

#[tokio::test]
async fn repeat_applies_twice_and_the_client_stays_in_step() {
    let (redis, proxy) = redis_proxy(1).await;
    proxy.add("repeat command=INCR times=1".parse().unwrap()).unwrap();
    let mut client = Client::connect(proxy.address()).await;
    client.expect(&resp(&["INCR", "n"]), ":1\r\n").await;
    Client::to_port(redis.port())
        .await
        .expect(&resp(&["GET", "n"]), "$1\r\n2\r\n")
        .await;
    client
        .expect(&resp(&["ECHO", "in step"]), "$7\r\nin step\r\n")
        .await;
    client.expect(&resp(&["INCR", "n"]), ":3\r\n").await;
    let stats = proxy.stats();
    assert_eq!((stats.commands, stats.replies, stats.swallowed), (3, 4, 1));
    assert_eq!(proxy.history()[0].kind, "repeat");
}

/// The second one would find the connection closed: a fault that nobody saw must not be in the report.
#[tokio::test]
async fn quit_is_not_repeated() {
    let (_redis, proxy) = redis_proxy(1).await;
    proxy.add("repeat".parse().unwrap()).unwrap();
    let mut client = Client::connect(proxy.address()).await;
    client.send(resp(&["QUIT"])).await;
    assert_eq!(client.rest().await.0, b"+OK\r\n");
    assert!(proxy.history().is_empty());
}

/// Which of 200 pipelined increments were applied twice, seen from the gaps in their replies.
async fn repeated(seed: u64) -> Vec<bool> {
    let (redis, proxy) = redis_proxy(seed).await;
    // The slicer makes frames arrive in pieces, both ways.
    proxy
        .add("slicer average_size=7 size_variation=6".parse().unwrap())
        .unwrap();
    proxy
        .add(
            "slicer average_size=7 size_variation=6 stream=upstream"
                .parse()
                .unwrap(),
        )
        .unwrap();
    proxy.add("repeat toxicity=0.5".parse().unwrap()).unwrap();
    let mut client = Client::connect(proxy.address()).await;
    client.send(resp(&["INCR", "n"]).repeat(200)).await;
    client.send(resp(&["QUIT"])).await;
    let text = String::from_utf8(client.rest().await.0).unwrap();
    let mut numbers: Vec<u64> = text
        .lines()
        .filter_map(|line| line.strip_prefix(':')?.parse().ok())
        .collect();
    assert_eq!(numbers.len(), 200, "one reply for each command");
    assert!(text.ends_with("+OK\r\n"));
    let mut direct = Client::to_port(redis.port()).await;
    direct.send(resp(&["GET", "n"]) + &resp(&["QUIT"])).await;
    let end = String::from_utf8(direct.rest().await.0).unwrap();
    numbers.push(end.lines().nth(1).unwrap().parse::<u64>().unwrap() + 1);
    let stats = proxy.stats();
    assert_eq!(stats.swallowed + 200, numbers[200] - 1);
    numbers.windows(2).map(|pair| pair[1] - pair[0] == 2).collect()
}

#[tokio::test]
async fn the_seed_decides_which_commands_are_hit() {
    let first = repeated(11).await;
    let share = first.iter().filter(|hit| **hit).count();
    assert!((50..150).contains(&share), "{share} of 200");
    assert_eq!(first, repeated(11).await);
    assert_ne!(first, repeated(12).await);
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
            // A reset may come before, between or after; the answer comes only without.
            let _ = tokio::io::AsyncWriteExt::write_all(&mut client.0, b"PING\r\nQUIT\r\n").await;
            hit.push(client.rest().await.1.is_some());
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
    client
        .send(resp(&["HELLO", "3"]) + &resp(&["ECHO", "ready"]))
        .await;
    within("the greeting", async {
        let mut seen = Vec::new();
        while !seen.ends_with(b"$5\r\nready\r\n") {
            seen.extend(client.receive(1).await);
        }
    })
    .await;
    proxy.add("repeat".parse().unwrap()).unwrap();
    let push = |channel: &str, n: u8| format!(">3\r\n$9\r\nsubscribe\r\n$1\r\n{channel}\r\n:{n}\r\n");
    client
        .expect(&resp(&["SUBSCRIBE", "a", "b"]), &(push("a", 1) + &push("b", 2)))
        .await;
    let mut other = Client::to_port(redis.port()).await;
    other.expect(&resp(&["PUBLISH", "a", "hi"]), ":1\r\n").await;
    client
        .expect("", ">3\r\n$7\r\nmessage\r\n$1\r\na\r\n$2\r\nhi\r\n")
        .await;
    client.expect(&resp(&["INCR", "n"]), ":1\r\n").await;
    client.expect(&resp(&["INCR", "n"]), ":3\r\n").await;
    // A refused subscription is answered by one error.
    client
        .expect(
            &resp(&["SUBSCRIBE"]),
            "-ERR wrong number of arguments for 'subscribe' command\r\n",
        )
        .await;
    client.expect(&resp(&["INCR", "n"]), ":5\r\n").await;
    assert_eq!(proxy.stats().unframed, 0);
}

#[tokio::test]
async fn resp2_subscriptions_are_passed_as_they_come() {
    let (redis, proxy) = redis_proxy(1).await;
    proxy.add("repeat".parse().unwrap()).unwrap();
    let mut client = Client::connect(proxy.address()).await;
    client.expect(&resp(&["INCR", "n"]), ":1\r\n").await;
    client
        .expect(
            &resp(&["SUBSCRIBE", "a"]),
            "*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n",
        )
        .await;
    let mut other = Client::to_port(redis.port()).await;
    other.expect(&resp(&["PUBLISH", "a", "hi"]), ":1\r\n").await;
    client
        .expect("", "*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$2\r\nhi\r\n")
        .await;
    client
        .expect(&resp(&["PING"]), "*2\r\n$4\r\npong\r\n$0\r\n\r\n")
        .await;
    client.silence().await;
    assert_eq!(proxy.stats().unframed, 1);
}

#[tokio::test]
async fn monitor_is_passed_as_it_comes() {
    let (redis, proxy) = redis_proxy(1).await;
    proxy.add("repeat".parse().unwrap()).unwrap();
    let mut client = Client::connect(proxy.address()).await;
    client.expect(&resp(&["MONITOR"]), "+OK\r\n").await;
    Client::to_port(redis.port())
        .await
        .expect(&resp(&["ECHO", "x"]), "$1\r\nx\r\n")
        .await;
    let line = client.receive(10).await;
    assert_eq!(line.first(), Some(&b'+'), "{line:?}");
}

#[tokio::test]
async fn long_commands_pass_once_and_in_step() {
    let (_redis, proxy) = redis_proxy(1).await;
    proxy.add("repeat".parse().unwrap()).unwrap();
    let mut client = Client::connect(proxy.address()).await;
    client
        .expect(&resp(&["APPEND", "big", &"x".repeat(1 << 20)]), ":1048576\r\n")
        .await;
    client
        .expect(&resp(&["APPEND", "big", "y"]), ":1048577\r\n")
        .await;
    client.expect(&resp(&["STRLEN", "big"]), ":1048578\r\n").await;
}

#[tokio::test]
async fn a_downstream_black_hole_applies_the_command_and_heals() {
    let (redis, proxy) = redis_proxy(1).await;
    let mut client = Client::connect(proxy.address()).await;
    client.expect(&resp(&["PING"]), "+PONG\r\n").await;
    proxy.add("timeout timeout=0".parse().unwrap()).unwrap();
    eventually("the toxic to work", || proxy.history().len() == 1).await;
    client.send(resp(&["SET", "k", "v"])).await;
    client.silence().await;
    Client::to_port(redis.port())
        .await
        .expect(&resp(&["GET", "k"]), "$1\r\nv\r\n")
        .await;
    proxy.heal().await.unwrap();
    assert_eq!(client.receive(5).await, b"+OK\r\n");
}

#[tokio::test]
async fn what_is_not_resp_is_passed_as_it_comes() {
    let (echo, _) = super::stage::echo_proxy().await;
    let config = leasehold_drill::proxy::Config::resp(echo.address);
    let proxy = leasehold_drill::proxy::Proxy::start(config).await.unwrap();
    let mut client = Client::connect(proxy.address()).await;
    let bytes = [b"*1\r\nnot a bulk string".as_slice(), &[0, 255, 13, 10, 0]].concat();
    client.send(&bytes).await;
    assert_eq!(client.receive(bytes.len()).await, bytes);
}
