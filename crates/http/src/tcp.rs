//! Connections as the system makes them, told to notice a daemon whose machine is gone.

use std::io;
use std::time::Duration;

use rustix::net::sockopt;
use tokio::net::TcpStream;

/// A connection that is quiet for so long is asked for a sign of life, and again as often.
const SIGN: Duration = Duration::from_secs(10);
/// So many that do not come, and the other end is gone.
const MISSED: u32 = 3;

/// Connects. A long poll or a stream of events waits without sending anything: without signs of life it would wait for ever for a
/// machine that vanished.
pub(crate) async fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    let stream = TcpStream::connect((host, port)).await?;
    // Questions are small and wait for their answers: nothing may be held back.
    let _ = stream.set_nodelay(true);
    let _ = sockopt::set_socket_keepalive(&stream, true);
    let _ = sockopt::set_tcp_keepidle(&stream, SIGN);
    let _ = sockopt::set_tcp_keepintvl(&stream, SIGN);
    let _ = sockopt::set_tcp_keepcnt(&stream, MISSED);
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn the_system_is_told_to_notice_a_daemon_that_is_gone() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let stream = connect("127.0.0.1", port).await.unwrap();
        assert!(sockopt::socket_keepalive(&stream).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&stream).unwrap(), SIGN);
        assert_eq!(sockopt::tcp_keepintvl(&stream).unwrap(), SIGN);
        assert_eq!(sockopt::tcp_keepcnt(&stream).unwrap(), MISSED);
        assert!(stream.nodelay().unwrap());
    }
}
