//! A small HTTPS client that can also misbehave.

use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use leasehold_core::clock::{BootClock, Clock, run_until};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::client::TlsStream;

use super::daemon::DaemonProcess;

/// A connection that is kept open between requests.
pub(super) struct HttpsConnection {
    stream: TlsStream<TcpStream>,
    host: String,
}

/// Status and body of a response.
pub(super) struct HttpsResponse {
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
}

impl HttpsConnection {
    pub(super) async fn open(daemon: &DaemonProcess) -> io::Result<Self> {
        Self::open_from(daemon, Ipv4Addr::LOCALHOST).await
    }

    /// Opens a connection from this address of the loopback network: the daemon has budgets for each peer address.
    pub(super) async fn open_from(daemon: &DaemonProcess, source: Ipv4Addr) -> io::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((source, 0).into())?;
        let tcp = socket.connect(daemon.address().parse().map_err(io::Error::other)?).await?;
        tcp.set_nodelay(true)?;
        let name = ServerName::try_from("localhost").map_err(io::Error::other)?;
        let stream = daemon.connector.connect(name, tcp).await?;
        Ok(Self { stream, host: daemon.address().to_owned() })
    }

    /// Sends a request and reads its response.
    pub(super) async fn request(
        &mut self,
        method: &str,
        path: &str,
        token: Option<&str>,
        body: &str,
    ) -> io::Result<HttpsResponse> {
        let head = self.head(method, path, token, body.len());
        self.send(format!("{head}{body}").as_bytes()).await?;
        self.read_response().await
    }

    /// The head of a request whose body has this length.
    pub(super) fn head(&self, method: &str, path: &str, token: Option<&str>, length: usize) -> String {
        let token = token.map(|token| format!("authorization: Bearer {token}\r\n")).unwrap_or_default();
        format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\n{token}content-type: application/json\r\ncontent-length: {length}\r\n\r\n",
            self.host
        )
    }

    /// Sends bytes, which need not be a whole request.
    pub(super) async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await?;
        self.stream.flush().await
    }

    async fn read_response(&mut self) -> io::Result<HttpsResponse> {
        let mut message = Vec::new();
        let head_end = loop {
            if let Some(at) = message.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            if self.stream.read_buf(&mut message).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        };
        let head = String::from_utf8_lossy(&message[..head_end]).to_lowercase();
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.trim().parse().ok());
        let (Some(status), Some(length)) = (status, length) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let mut body = message.split_off(head_end);
        while body.len() < length {
            if self.stream.read_buf(&mut body).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(HttpsResponse { status, body })
    }

    /// The status of a response that the daemon sent before the request was complete, if it sent one within
    /// `wait`.
    pub(super) async fn early_status(&mut self, wait: Duration) -> Option<u16> {
        let response = run_until(&BootClock, BootClock.now() + wait, self.read_response()).await;
        response.and_then(Result::ok).map(|response| response.status)
    }

    /// Only the socket: thousands of idle connections need no TLS state on this side.
    pub(super) fn into_socket(self) -> TcpStream {
        self.stream.into_inner().0
    }
}
