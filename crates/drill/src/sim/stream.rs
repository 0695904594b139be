//! The two ends of a simulated connection, as the real client and the real daemon use them.

use std::future::{pending, poll_fn};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use async_trait::async_trait;
use leasehold_http::{Dial, Stream};
use leasehold_server::Door;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;

use super::wire::{Over, Received, Side};
use super::world::World;

/// One end of a connection.
#[derive(Debug)]
pub(super) struct SimStream {
    world: Arc<World>,
    conn: u64,
    side: Side,
}

impl AsyncRead for SimStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, room: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let found = self
            .world
            .lock()
            .receive(self.conn, self.side, room.remaining(), cx.waker());
        match found {
            Received::Bytes(bytes) => {
                room.put_slice(&bytes);
                Poll::Ready(Ok(()))
            }
            Received::Over(Over::Closed) => Poll::Ready(Ok(())),
            Received::Over(Over::Reset) => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            Received::Nothing { .. } => Poll::Pending,
        }
    }
}

impl AsyncWrite for SimStream {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut state = self.world.lock();
        if state.is_cut(self.conn, self.side) {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        state.transmit(self.conn, self.side, bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// What is sent is sent at once; the end is said when the stream is dropped, which follows.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Drop for SimStream {
    fn drop(&mut self) {
        let waker = self.world.lock().hang_up(self.conn, self.side);
        drop(waker);
    }
}

/// A client's way to open connections.
#[derive(Debug)]
pub(super) struct SimDial {
    pub(super) world: Arc<World>,
    pub(super) slot: usize,
    pub(super) life: u32,
}

#[async_trait]
impl Dial for SimDial {
    async fn dial(&self, _host: &str, _port: u16) -> io::Result<Pin<Box<dyn Stream>>> {
        let (to, opened) = oneshot::channel();
        self.world.lock().knock(self.slot, self.life, to);
        let conn = match opened.await {
            Ok(opened) => opened?,
            // Silence ends only by the caller's patience.
            Err(_) => pending().await,
        };
        Ok(Box::pin(SimStream {
            world: Arc::clone(&self.world),
            conn,
            side: Side::Client,
        }))
    }
}

/// The daemon's door.
#[derive(Debug)]
pub(super) struct SimDoor {
    pub(super) world: Arc<World>,
}

impl Door for SimDoor {
    type Stream = SimStream;

    async fn accept(&self) -> io::Result<(SimStream, SocketAddr)> {
        let conn = poll_fn(|cx| {
            let found = self.world.lock().accept(cx.waker());
            match found {
                Ok(conn) => Poll::Ready(conn),
                Err(_) => Poll::Pending,
            }
        })
        .await;
        let stream = SimStream {
            world: Arc::clone(&self.world),
            conn,
            side: Side::Daemon,
        };
        Ok((stream, SocketAddr::from((Ipv4Addr::LOCALHOST, 1))))
    }
}
