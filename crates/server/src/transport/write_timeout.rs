//! A stream that fails when its peer does not take what is written to it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use leasehold::clock::{SharedClock, Sleep};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Ends a write that makes no progress for a while. Without it, a peer that stops reading keeps a
/// response in memory for as long as its kernel acknowledges.
pub(crate) struct WriteTimeout<S> {
    stream: S,
    clock: SharedClock,
    timeout: Duration,
    /// Set while a write waits for the peer.
    stalled: Option<Sleep>,
}

impl<S> WriteTimeout<S> {
    pub(crate) fn new(stream: S, clock: SharedClock, timeout: Duration) -> Self {
        Self { stream, clock, timeout, stalled: None }
    }

    /// Passes a result on. The first `Pending` starts the timeout, and progress ends it.
    fn watch<T>(&mut self, cx: &mut Context<'_>, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.stalled = None;
            return polled;
        }
        let (clock, timeout) = (&self.clock, self.timeout);
        let stalled = self.stalled.get_or_insert_with(|| clock.sleep_until(clock.now() + timeout));
        match stalled.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeout<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.watch(cx, polled)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(cx);
        self.watch(cx, polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.watch(cx, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, bytes);
        self.watch(cx, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use leasehold::clock::{RuntimeClock, run_until};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// Finding 13 of the security review: responses to peers that read nothing stayed in memory.
    #[tokio::test(start_paused = true)]
    async fn finding_13_a_peer_that_reads_nothing_is_cut() {
        let (ours, mut theirs) = tokio::io::duplex(8);
        let clock = RuntimeClock::shared();
        let mut ours = WriteTimeout::new(ours, SharedClock::clone(&clock), Duration::from_secs(10));
        // A slow reader makes progress within each timeout.
        let reader = async {
            for _ in 0..4 {
                clock.sleep_until(clock.now() + Duration::from_secs(9)).await;
                theirs.read_exact(&mut [0; 8]).await.unwrap();
            }
            theirs
        };
        let (written, _theirs) = tokio::join!(ours.write_all(&[0; 40]), reader);
        written.unwrap();
        let stalled = clock.now();
        let cut = run_until(&*clock, stalled + Duration::from_secs(60), ours.write_all(&[0; 8])).await;
        assert_eq!(cut.expect("a cut").unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(clock.now().since(stalled), Duration::from_secs(10));
    }
}
