//! Where connections come from: a socket, or whatever behaves like one.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};

/// A peer that has acknowledged nothing for so long is gone, whatever its side of the connection says.
const SILENCE: Duration = Duration::from_secs(30);

/// Something that peers connect to.
pub trait Door: Send + Sync + 'static {
    /// One connection.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// The next connection, and where it is from. Dropped before it has answered, it has taken none.
    fn accept(&self) -> impl Future<Output = io::Result<(Self::Stream, SocketAddr)>> + Send;

    /// Gets a connection that will be served ready.
    fn prepare(_stream: &Self::Stream) {}

    /// Says this to a connection that will not be served, if that takes no waiting.
    fn turn_away(_stream: &Self::Stream, _said: &[u8]) {}
}

impl Door for TcpListener {
    type Stream = TcpStream;

    async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        Self::accept(self).await
    }

    /// Answers are small and must not wait; peers that died must be noticed.
    fn prepare(stream: &TcpStream) {
        let _ = stream.set_nodelay(true);
        let _ = sockopt::set_socket_keepalive(stream, true);
        let _ = sockopt::set_tcp_keepidle(stream, SILENCE);
        let _ = sockopt::set_tcp_user_timeout(stream, u32::try_from(SILENCE.as_millis()).unwrap_or(30_000));
    }

    fn turn_away(stream: &TcpStream, said: &[u8]) {
        let _ = stream.try_write(said);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A peer whose machine is gone says nothing ever again: only these make the system notice.
    #[tokio::test]
    async fn the_system_is_told_to_notice_peers_that_are_gone() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _peer = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = Door::accept(&listener).await.unwrap();
        <TcpListener as Door>::prepare(&stream);
        assert!(sockopt::socket_keepalive(&stream).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&stream).unwrap(), SILENCE);
        assert_eq!(sockopt::tcp_user_timeout(&stream).unwrap(), 30_000);
        assert!(stream.nodelay().unwrap());
    }
}
