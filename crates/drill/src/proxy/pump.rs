//! I/O for one direction of one connection: does the reads, writes and sleeps that its stream
//! machine asks for.

use std::future::pending;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use leasehold_core::clock::SharedClock;
use tokio::io::AsyncWriteExt;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::watch;

use super::recorder::{ProxyRecorder, increment};
use super::registry::{InstalledToxic, ToxicList};
use super::resp::{CommandTracker, ExpectedReplies, ReplyTracker};
use super::stream_machine::{ForcedClose, NextAction, StreamMachine};
use super::toxic::{CutOptions, StreamDirection, ToxicKind};

const READ_CHUNK_BYTES: usize = 16 << 10;

/// How a direction parses its bytes.
#[derive(Debug)]
pub(super) enum StreamParser {
    Raw,
    Commands(CommandTracker),
    Replies(ReplyTracker),
}

/// One direction of a connection, with its machine and parser.
#[derive(Debug)]
pub(super) struct StreamPump {
    pub(super) connection: u64,
    pub(super) stream: StreamDirection,
    pub(super) machine: StreamMachine,
    pub(super) parser: StreamParser,
    pub(super) expected_replies: Arc<ExpectedReplies>,
    pub(super) recorder: Arc<ProxyRecorder>,
    pub(super) clock: SharedClock,
    pub(super) toxics: watch::Receiver<ToxicList>,
}

impl StreamPump {
    /// Runs until the source has ended and all data is forwarded, or until a toxic closes the
    /// connection.
    pub(super) async fn run(
        mut self,
        source: ReadHalf<'_>,
        mut sink: WriteHalf<'_>,
    ) -> Result<(), ForcedClose> {
        // Toxics that were added before this connection began apply to it as well.
        self.toxics.mark_changed();
        loop {
            if self.toxics.has_changed().unwrap_or(false) {
                let entries = Arc::clone(&self.toxics.borrow_and_update());
                self.machine.set_toxics(&entries, self.clock.now());
            }
            let next = self.machine.next(self.clock.now());
            for entry in self.machine.take_effects() {
                self.recorder.record_toxic(self.connection, &entry.toxic);
            }
            let (len, alarm) = match next {
                NextAction::End(end) => return Err(end),
                NextAction::Finish => return sink.shutdown().await.map_err(|_| ForcedClose::Reset),
                NextAction::Send(len) => (Some(len), None),
                NextAction::Wait(at) => (None, at),
            };
            // Only commands add expected replies. The downstream direction must always read, or the
            // list never shrinks.
            let room = self.stream == StreamDirection::Downstream || self.expected_replies.has_room();
            let sleep = async {
                match alarm {
                    Some(at) => self.clock.sleep_until(at).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                // A toxic that was just added applies before the next byte is read or written.
                biased;
                changed = self.toxics.changed() => {
                    // `changed` marks the list as seen. Mark it as changed again: the top of the
                    // loop applies it.
                    changed.map_err(|_| ForcedClose::Close)?;
                    self.toxics.mark_changed();
                }
                () = sleep => {}
                wrote = sink.write(self.machine.piece(len.unwrap_or(0))), if len.is_some() => {
                    self.after_write(wrote)?;
                }
                ready = source.readable(), if room && self.machine.wants_read() => {
                    ready.map_err(|_| ForcedClose::Reset)?;
                    self.read_available(&source)?;
                }
                () = self.expected_replies.wait_for_room(), if !room => {}
            }
        }
    }

    fn after_write(&mut self, wrote: io::Result<usize>) -> Result<(), ForcedClose> {
        let wrote = wrote.map_err(|_| ForcedClose::Reset)?;
        increment(self.byte_counter(), wrote as u64);
        if let Some(entry) = self.machine.record_sent(wrote, self.clock.now()) {
            self.expected_replies.trigger_cut(entry);
        }
        Ok(())
    }

    fn byte_counter(&self) -> &AtomicU64 {
        match self.stream {
            StreamDirection::Upstream => &self.recorder.bytes_upstream,
            StreamDirection::Downstream => &self.recorder.bytes_downstream,
        }
    }

    /// Reads what is available.
    fn read_available(&mut self, source: &ReadHalf<'_>) -> Result<(), ForcedClose> {
        // On the stack and not in the task's state: ten thousand idle connections then need no
        // buffer.
        let mut buffer = [0; READ_CHUNK_BYTES];
        match source.try_read(&mut buffer) {
            Ok(0) => self.machine.source_ended(self.clock.now()),
            Ok(got) => self.handle_chunk(buffer.get(..got).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // A reset by one side is forwarded as a reset to the other side.
            Err(_) => return Err(ForcedClose::Reset),
        }
        Ok(())
    }

    fn handle_chunk(&mut self, chunk: &[u8]) {
        let now = self.clock.now();
        let in_force = |entry: &InstalledToxic| {
            let entries = self.toxics.borrow();
            entries.iter().any(|known| known.serial == entry.serial)
        };
        if self.stream == StreamDirection::Downstream
            // The toxic may have been removed, or used up by another connection, since its byte
            // limit was reached.
            && let Some(entry) = self
                .expected_replies
                .triggered_cut()
                .filter(|entry| in_force(entry) && entry.claim_use())
        {
            return self.cut_connection(&entry);
        }
        match &mut self.parser {
            StreamParser::Raw => self.machine.push(chunk.to_vec(), now),
            StreamParser::Commands(commands) => {
                let lane = &mut self.machine;
                let (out, ended) = commands.process(chunk, &self.expected_replies, |name, whole| {
                    lane.faults_for_command(name, whole)
                });
                increment(&self.recorder.commands, ended);
                self.machine.push(out, now);
            }
            StreamParser::Replies(replies) => {
                let sorted = replies.process(chunk, &self.expected_replies, in_force);
                increment(&self.recorder.replies, sorted.ended);
                increment(&self.recorder.swallowed, sorted.swallowed);
                increment(&self.recorder.unframed, u64::from(sorted.lost_track));
                self.machine.push(sorted.out, now);
                if let Some(entry) = sorted.cut {
                    self.cut_connection(&entry);
                }
            }
        }
    }

    fn cut_connection(&mut self, entry: &InstalledToxic) {
        let reset = matches!(entry.toxic.kind, ToxicKind::CutAfterForward(CutOptions { reset: true, .. }));
        self.recorder.record_toxic(self.connection, &entry.toxic);
        self.machine.queue_cut(if reset { ForcedClose::Reset } else { ForcedClose::Close });
    }
}
