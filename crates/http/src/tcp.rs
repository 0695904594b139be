//! TCP connections with keepalive, so that the kernel notices a daemon whose machine is gone.

use std::io;
use std::time::Duration;

use rustix::net::sockopt;
use tokio::net::TcpStream;

// Idle time before the first keepalive probe, and the interval between probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
// Unanswered probes after which the kernel closes the connection: 40 s in all.
const MAX_MISSED_KEEPALIVES: u32 = 3;

/// Connects with keepalive. A long poll or event stream sends nothing while it waits; without
/// probes it would wait for ever for a machine that vanished.
pub(crate) async fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    let stream = TcpStream::connect((host, port)).await?;
    // Requests are small and their responses are awaited, so Nagle's algorithm would only add
    // latency.
    let _ = stream.set_nodelay(true);
    let _ = sockopt::set_socket_keepalive(&stream, true);
    let _ = sockopt::set_tcp_keepidle(&stream, KEEPALIVE_INTERVAL);
    let _ = sockopt::set_tcp_keepintvl(&stream, KEEPALIVE_INTERVAL);
    let _ = sockopt::set_tcp_keepcnt(&stream, MAX_MISSED_KEEPALIVES);
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn keepalive_detects_a_dead_daemon() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let stream = connect("127.0.0.1", port).await.unwrap();
        assert!(sockopt::socket_keepalive(&stream).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&stream).unwrap(), KEEPALIVE_INTERVAL);
        assert_eq!(sockopt::tcp_keepintvl(&stream).unwrap(), KEEPALIVE_INTERVAL);
        assert_eq!(sockopt::tcp_keepcnt(&stream).unwrap(), MAX_MISSED_KEEPALIVES);
        assert!(stream.nodelay().unwrap());
    }
}
