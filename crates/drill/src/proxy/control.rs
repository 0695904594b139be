//! The control socket: commands as lines of text, for `nc` and for scripts. Each command is
//! answered by any number of lines; the last one is `ok` or starts with `error`.

use std::fmt::Write;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::clock::{ClockExt, SharedClock};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::error::Error;
use super::handle::ProxyHandle;

const MAX_CONTROL_LINE_BYTES: usize = 4096;
const MAX_CONTROL_CLIENTS: usize = 16;
const CONTROL_RETRY_DELAY: Duration = Duration::from_millis(20);

const HELP: &str = "\
add TYPE key=value…   put a toxic in force: latency latency= jitter= | bandwidth rate= | slow_close delay= | timeout timeout= |
                      reset_peer timeout= | limit_data bytes= | slicer average_size= size_variation= delay= |
                      cut_after_forward command= bytes= times= reset= | repeat command= times=
                      each also stream=upstream|downstream toxicity=0..1 name=
remove NAME           take it out of force
list                  the toxics in force
heal                  remove all toxics and enable
disable, enable       refuse connections and close the open ones; accept them again
stats, history        counters; the faults so far
quit                  close this connection
";

/// Serves control clients until the proxy is stopped.
pub(super) async fn run(
    listener: TcpListener,
    handle: ProxyHandle,
    clock: SharedClock,
    stop: CancellationToken,
) {
    let (tasks, seats) = (TaskTracker::new(), Arc::new(Semaphore::new(MAX_CONTROL_CLIENTS)));
    let accept = async {
        while let Ok(seat) = Arc::clone(&seats).acquire_owned().await {
            let Ok((stream, _)) = listener.accept().await else {
                // The process may be out of file descriptors: retry, but do not spin.
                clock.sleep(CONTROL_RETRY_DELAY).await;
                continue;
            };
            let (handle, stop) = (handle.clone(), stop.clone());
            tasks.spawn(async move {
                let _seat = seat;
                tokio::select! {
                    // An I/O error means that the control client has disconnected: no reader is
                    // left.
                    _ = serve_client(stream, &handle) => {}
                    () = stop.cancelled() => {}
                }
            });
        }
    };
    tokio::select! {
        () = accept => {}
        () = stop.cancelled() => {}
    }
    tasks.close();
    tasks.wait().await;
}

async fn serve_client(mut stream: TcpStream, handle: &ProxyHandle) -> io::Result<()> {
    let mut pending = Vec::new();
    loop {
        let mut chunk = [0; 1024];
        let got = stream.read(&mut chunk).await?;
        if got == 0 {
            return Ok(());
        }
        pending.extend_from_slice(chunk.get(..got).unwrap_or_default());
        while let Some(end) = pending.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = pending.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            if line.trim() == "quit" {
                return stream.write_all(b"ok\n").await;
            }
            let mut answer = String::new();
            match run_command(line.trim(), handle, &mut answer).await {
                Ok(()) => answer.push_str("ok\n"),
                // The error may quote the client's input. The protocol needs it on one line.
                Err(error) => {
                    answer = format!("error {}\n", error.to_string().replace(char::is_control, " "))
                }
            }
            stream.write_all(answer.as_bytes()).await?;
        }
        if pending.len() > MAX_CONTROL_LINE_BYTES {
            return stream.write_all(b"error an order is one line of at most 4096 bytes\n").await;
        }
    }
}

/// Executes one command and appends its output to `answer`.
async fn run_command(line: &str, handle: &ProxyHandle, answer: &mut String) -> Result<(), Error> {
    let (verb, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let rest = rest.trim();
    match verb {
        "" => {}
        "add" => handle.add(rest.parse()?)?,
        "remove" => handle.remove(rest)?,
        "heal" => handle.heal().await?,
        "disable" => handle.disable().await?,
        "enable" => handle.enable().await?,
        "list" => {
            for toxic in handle.toxics() {
                push_line(answer, format_args!("{toxic}"));
            }
            push_line(answer, format_args!("enabled={}", handle.is_enabled()));
        }
        "stats" => push_stats(handle, answer),
        "history" => {
            for fault in handle.history() {
                let stream = fault.stream.map_or("both", super::StreamDirection::as_str);
                push_line(
                    answer,
                    format_args!(
                        "at_ms={} connection={} toxic={} type={} stream={stream}",
                        fault.at.as_millis(),
                        fault.connection,
                        fault.toxic,
                        fault.kind
                    ),
                );
            }
        }
        "help" => answer.push_str(HELP),
        other => return Err(Error::invalid(other, "is not an order: `help` lists them")),
    }
    Ok(())
}

fn push_stats(handle: &ProxyHandle, answer: &mut String) {
    let stats = handle.stats();
    let plain = [
        ("connections", stats.connections),
        ("open", stats.open),
        ("unreachable", stats.unreachable),
        ("bytes_upstream", stats.bytes_upstream),
        ("bytes_downstream", stats.bytes_downstream),
        ("commands", stats.commands),
        ("replies", stats.replies),
        ("swallowed", stats.swallowed),
        ("unframed", stats.unframed),
        ("forgotten", stats.forgotten),
    ];
    for (name, value) in plain {
        push_line(answer, format_args!("{name}={value}"));
    }
    for (kind, value) in stats.faults {
        push_line(answer, format_args!("faults.{kind}={value}"));
    }
}

fn push_line(answer: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = writeln!(answer, "{line}");
}
