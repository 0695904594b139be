use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};

/// What the proxy does to the way between client and server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Fault {
    /// Passes everything on.
    None = 0,
    /// Passes requests on and cuts the connection instead of returning the answer.
    CutAfterForward = 1,
    /// Passes requests on and swallows the answers; connections stay open.
    LoseAnswers = 2,
    /// Swallows everything in both directions; connections stay open, new ones are accepted.
    BlackHole = 3,
    /// Sends every request to the server a second time, over a connection of its own, and returns the first answer.
    Duplicate = 4,
    /// Passes one request on, cuts its connection instead of returning the answer, and has no fault from then on.
    CutOnce = 5,
}

/// A TCP proxy on a free port of the loopback interface.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    fault: Arc<AtomicU8>,
    accepted: Arc<AtomicUsize>,
    task: AbortHandle,
}

impl Proxy {
    /// A proxy to 127.0.0.1:`to`, without faults at first.
    ///
    /// # Errors
    /// No port could be had.
    pub async fn start(to: u16) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let (fault, accepted) = (Arc::new(AtomicU8::new(0)), Arc::new(AtomicUsize::new(0)));
        let (seen, count) = (Arc::clone(&fault), Arc::clone(&accepted));
        let task = tokio::spawn(async move {
            // Ends with the task, and all connections with it.
            let mut open = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                open.spawn(serve(client, to, Arc::clone(&seen)));
            }
        });
        Ok(Self {
            port,
            fault,
            accepted,
            task: task.abort_handle(),
        })
    }

    /// The URL of the server as seen through the proxy.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// From now on, for open and for new connections.
    pub fn set(&self, fault: Fault) {
        self.fault.store(fault as u8, Ordering::SeqCst);
    }

    /// How many connections were made so far.
    #[must_use]
    pub fn accepted(&self) -> usize {
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
    // Cut only where an answer to something forwarded under the fault comes back, never an earlier one.
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
                    // Answered, so the copy has been executed before anything the client sends next.
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
                if is(Fault::BlackHole) || is(Fault::LoseAnswers) {
                    continue;
                }
                client.write_all(bytes).await?;
            }
        }
    }
}
