//! The two ends of a simulated connection, as the real client and the real daemon use them.

use std::future::{pending, poll_fn};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use async_trait::async_trait;
use leasehold_http::{Connector, Stream};
use leasehold_server::ConnectionListener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;

use super::daemon_network::{ReadOutcome, SimConnectionEnd, SimSide};
use super::world::SimWorld;

/// One end of a connection.
#[derive(Debug)]
pub(super) struct SimStream {
    world: Arc<SimWorld>,
    conn: u64,
    side: SimSide,
}

impl AsyncRead for SimStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, room: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let found = self.world.lock().receive(self.conn, self.side, room.remaining(), cx.waker());
        match found {
            ReadOutcome::Bytes(bytes) => {
                room.put_slice(&bytes);
                Poll::Ready(Ok(()))
            }
            ReadOutcome::Ended(SimConnectionEnd::Closed) => Poll::Ready(Ok(())),
            ReadOutcome::Ended(SimConnectionEnd::Reset) => {
                Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()))
            }
            ReadOutcome::Pending { .. } => Poll::Pending,
        }
    }
}

impl AsyncWrite for SimStream {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut state = self.world.lock();
        if state.is_reset(self.conn, self.side) {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        state.transmit(self.conn, self.side, bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    // Writes are sent at once. The close is sent on drop, which follows.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Drop for SimStream {
    fn drop(&mut self) {
        // Dropped outside the lock: the waker may own a task.
        let waker = self.world.lock().close_end(self.conn, self.side);
        drop(waker);
    }
}

/// A client's connector.
#[derive(Debug)]
pub(super) struct SimConnector {
    pub(super) world: Arc<SimWorld>,
    pub(super) slot: usize,
    pub(super) life: u32,
}

#[async_trait]
impl Connector for SimConnector {
    async fn connect(&self, _host: &str, _port: u16) -> io::Result<Pin<Box<dyn Stream>>> {
        let (to, opened) = oneshot::channel();
        self.world.lock().connect(self.slot, self.life, to);
        let conn = match opened.await {
            Ok(opened) => opened?,
            // The reply is lost. Only the caller's timeout ends the attempt.
            Err(_) => pending().await,
        };
        Ok(Box::pin(SimStream { world: Arc::clone(&self.world), conn, side: SimSide::Client }))
    }
}

/// The daemon's listener.
#[derive(Debug)]
pub(super) struct SimListener {
    pub(super) world: Arc<SimWorld>,
}

impl ConnectionListener for SimListener {
    type Stream = SimStream;

    async fn accept(&self) -> io::Result<(SimStream, SocketAddr)> {
        let conn = poll_fn(|cx| {
            let found = self.world.lock().accept(cx.waker());
            match found {
                Ok(conn) => Poll::Ready(conn),
                // Carries the replaced waker, which is dropped here, outside the lock.
                Err(_) => Poll::Pending,
            }
        })
        .await;
        let stream = SimStream { world: Arc::clone(&self.world), conn, side: SimSide::Daemon };
        Ok((stream, SocketAddr::from((Ipv4Addr::LOCALHOST, 1))))
    }
}
