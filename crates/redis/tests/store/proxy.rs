//! A proxy that breaks connections to a server.

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};

/// The fault that the proxy injects between client and server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Fault {
    /// Forwards every byte unchanged.
    None = 0,
    /// Forwards requests, and closes the connection instead of returning the response.
    CutAfterForward = 1,
    /// Forwards requests and drops the responses; connections stay open.
    LoseResponses = 2,
    /// Drops everything in both directions. Connections stay open, and new ones are accepted.
    BlackHole = 3,
    /// Sends every request a second time over a separate connection, and
    /// returns the first response.
    Duplicate = 4,
    /// Forwards one request, closes its connection instead of returning the
    /// response, then has no fault.
    CutOnce = 5,
}

/// A TCP proxy on a free port of the loopback interface.
#[derive(Debug)]
pub(crate) struct Proxy {
    port: u16,
    fault: Arc<AtomicU8>,
    accepted: Arc<AtomicUsize>,
    task: AbortHandle,
}

impl Proxy {
    /// Starts a proxy to 127.0.0.1:`to`, without a fault.
    pub(crate) async fn start(to: u16) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let (fault, accepted) = (Arc::new(AtomicU8::new(0)), Arc::new(AtomicUsize::new(0)));
        let (seen, count) = (Arc::clone(&fault), Arc::clone(&accepted));
        let task = tokio::spawn(async move {
            // Dropped with the task, which closes all connections.
            let mut open = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                open.spawn(serve(client, to, Arc::clone(&seen)));
            }
        });
        Ok(Self { port, fault, accepted, task: task.abort_handle() })
    }

    /// The URL of the server through the proxy.
    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Sets the fault for open and for new connections.
    pub(crate) fn set_fault(&self, fault: Fault) {
        self.fault.store(fault as u8, Ordering::SeqCst);
    }

    /// Number of connections accepted so far.
    pub(crate) fn accepted_count(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(mut client: TcpStream, to: u16, fault: Arc<AtomicU8>) -> io::Result<()> {
    let mut server = TcpStream::connect((Ipv4Addr::LOCALHOST, to)).await?;
    let (mut up, mut down) = (vec![0; 64 * 1024], vec![0; 64 * 1024]);
    let is = |wanted: Fault| fault.load(Ordering::SeqCst) == wanted as u8;
    // Close only on the response to a request forwarded under the fault, never on an earlier one.
    let mut forwarded = false;
    loop {
        tokio::select! {
            got = client.read(&mut up) => {
                let bytes = up.get(..got?).unwrap_or_default();
                if bytes.is_empty() {
                    return Ok(());
                }
                if is(Fault::BlackHole) {
                    continue;
                }
                server.write_all(bytes).await?;
                if is(Fault::Duplicate) {
                    let mut second = TcpStream::connect((Ipv4Addr::LOCALHOST, to)).await?;
                    second.write_all(bytes).await?;
                    // Wait for the reply: the copy must run before anything
                    // that the client sends next.
                    let _ = second.read(&mut down).await?;
                }
                let once = fault.compare_exchange(
                    Fault::CutOnce as u8,
                    Fault::None as u8,
                    Ordering::SeqCst,
                    Ordering::SeqCst,
                );
                forwarded |= once.is_ok() || is(Fault::CutAfterForward);
            }
            got = server.read(&mut down) => {
                let bytes = down.get(..got?).unwrap_or_default();
                if bytes.is_empty() || forwarded {
                    return Ok(());
                }
                if is(Fault::BlackHole) || is(Fault::LoseResponses) {
                    continue;
                }
                client.write_all(bytes).await?;
            }
        }
    }
}
