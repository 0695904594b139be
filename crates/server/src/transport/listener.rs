//! The source of connections: a TCP socket, or a simulated one.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};

// A peer that acknowledges nothing for this long is gone, even if the connection still looks open.
const PEER_SILENCE_TIMEOUT: Duration = Duration::from_secs(30);

// The kernel would keep megabytes of a response for a peer that does not read. Most responses are far smaller.
const SEND_BUFFER_BYTES: usize = 128 * 1024;

/// Accepts connections for a server.
pub trait ConnectionListener: Send + Sync + 'static {
    /// An accepted connection.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// Accepts the next connection and returns its peer address. Must be cancel safe: a dropped
    /// future has taken no connection.
    fn accept(&self) -> impl Future<Output = io::Result<(Self::Stream, SocketAddr)>> + Send;

    /// Prepares a connection that will be served, for example sets socket options.
    fn prepare(_stream: &Self::Stream) {}

    /// Sends bytes to a connection that will not be served, if that needs no waiting.
    fn reject(_stream: &Self::Stream, _said: &[u8]) {}
}

impl ConnectionListener for TcpListener {
    type Stream = TcpStream;

    async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        Self::accept(self).await
    }

    /// Responses are small and must not be delayed; dead peers must be detected.
    fn prepare(stream: &TcpStream) {
        let _ = stream.set_nodelay(true);
        let _ = sockopt::set_socket_send_buffer_size(stream, SEND_BUFFER_BYTES);
        let _ = sockopt::set_socket_keepalive(stream, true);
        let _ = sockopt::set_tcp_keepidle(stream, PEER_SILENCE_TIMEOUT);
        let _ = sockopt::set_tcp_user_timeout(
            stream,
            u32::try_from(PEER_SILENCE_TIMEOUT.as_millis()).unwrap_or(30_000),
        );
    }

    fn reject(stream: &TcpStream, message: &[u8]) {
        let _ = stream.try_write(message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A peer that lost power sends nothing, not even a reset. Only these options make the kernel
    /// notice.
    #[tokio::test]
    async fn keepalive_detects_dead_peers() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _peer = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = ConnectionListener::accept(&listener).await.unwrap();
        <TcpListener as ConnectionListener>::prepare(&stream);
        assert!(sockopt::socket_keepalive(&stream).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&stream).unwrap(), PEER_SILENCE_TIMEOUT);
        assert_eq!(sockopt::tcp_user_timeout(&stream).unwrap(), 30_000);
        assert!(stream.nodelay().unwrap());
        // The kernel doubles it for its own records.
        assert!(sockopt::socket_send_buffer_size(&stream).unwrap() <= 2 * SEND_BUFFER_BYTES);
    }
}
