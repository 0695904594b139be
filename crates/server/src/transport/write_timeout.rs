//! A stream that fails when its peer takes too slowly what is written to it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use leasehold::clock::{Moment, SharedClock, Sleep};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

// Slower than any client that works. A peer that took a byte now and then would otherwise keep its
// responses in memory for good.
pub(crate) const MIN_WRITE_BYTES_PER_SECOND: u32 = 16 * 1024;

/// Ends a write whose peer falls behind the minimum rate by more than `timeout`.
///
/// The time for which writes wait adds to the lag, and each byte that is taken reduces it. So a
/// response of `n` bytes is taken within `timeout` and `n` times the time per byte. A stream that waits
/// for new events does not lag.
pub(crate) struct WriteTimeout<S> {
    stream: S,
    clock: SharedClock,
    timeout: Duration,
    bytes_per_second: u32,
    /// How far the peer is behind the minimum rate; at most `timeout`.
    lag: Duration,
    /// Set while a write waits for the peer: since when, and until it is too late.
    stalled: Option<(Moment, Sleep)>,
}

impl<S> WriteTimeout<S> {
    pub(crate) fn new(stream: S, clock: SharedClock, timeout: Duration, bytes_per_second: u32) -> Self {
        Self { stream, clock, timeout, bytes_per_second, lag: Duration::ZERO, stalled: None }
    }

    /// Passes a result on. `taken` is the number of bytes in it.
    fn watch<T>(
        &mut self,
        cx: &mut Context<'_>,
        polled: Poll<io::Result<T>>,
        taken: impl FnOnce(&T) -> usize,
    ) -> Poll<io::Result<T>> {
        if let Poll::Ready(result) = &polled {
            if let Some((since, _)) = self.stalled.take() {
                // At most the timeout: the daemon itself may have been late to look.
                self.lag = (self.lag + self.clock.now().since(since)).min(self.timeout);
            }
            let taken = result.as_ref().map_or(0, taken);
            let taken = u32::try_from(taken).unwrap_or(u32::MAX);
            let time = Duration::from_secs(1) * taken / self.bytes_per_second;
            self.lag = self.lag.saturating_sub(time);
            return polled;
        }
        let (clock, left) = (&self.clock, self.timeout.saturating_sub(self.lag));
        let (_, too_late) = self.stalled.get_or_insert_with(|| {
            let now = clock.now();
            (now, clock.sleep_until(now + left))
        });
        match too_late.as_mut().poll(cx) {
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
        self.watch(cx, polled, |taken| *taken)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(cx);
        self.watch(cx, polled, |()| 0)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.watch(cx, polled, |()| 0)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, bytes);
        self.watch(cx, polled, |taken| *taken)
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

    /// Finding 13 of the security review: responses to peers that read little stayed in memory.
    #[tokio::test(start_paused = true)]
    async fn finding_13_a_peer_below_the_minimum_rate_is_cut() {
        // Bytes that the peer takes every 9 s; whether it is cut.
        for (taken, is_cut) in [(18, false), (9, false), (8, true), (1, true), (0, true)] {
            let (ours, mut theirs) = tokio::io::duplex(18);
            let clock = RuntimeClock::shared();
            let timeout = Duration::from_secs(10);
            let mut ours = WriteTimeout::new(ours, SharedClock::clone(&clock), timeout, 1);
            let reader = async {
                loop {
                    clock.sleep_until(clock.now() + Duration::from_secs(9)).await;
                    if theirs.read_exact(&mut vec![0; taken]).await.is_err() {
                        std::future::pending::<()>().await;
                    }
                }
            };
            let began = clock.now();
            let written = tokio::select! {
                written = run_until(&*clock, began + Duration::from_secs(600), ours.write_all(&[0; 5000])) => written,
                () = reader => unreachable!(),
            };
            assert_eq!(written.is_some(), is_cut, "{taken} bytes each 9 s");
            if let Some(written) = written {
                assert_eq!(written.unwrap_err().kind(), io::ErrorKind::TimedOut);
                assert!(clock.now().since(began) <= Duration::from_secs(120), "{taken}");
            }
        }
    }
}
