//! Standard output. Only this module opens it, so that no verb can print text of others to a terminal as it is.
//!
//! Names, holders, reasons, outputs of commands and answers of daemons are written by others. An escape sequence in
//! them could clear the screen, change its title or hide a line.

use std::io::{IsTerminal, StdoutLock, Write};

use anstream::AutoStream;
use anstyle::Style;

use crate::message::escape_control;

/// Standard output for people. Line feeds pass, all other control characters are escaped.
///
/// JSON passes too: in a JSON document such characters stand in strings only, and the escapes are JSON's.
#[derive(Debug)]
pub(crate) struct Output(AutoStream<StdoutLock<'static>>);

/// Opens standard output for text and JSON.
pub(crate) fn stdout() -> Output {
    Output(anstream::stdout().lock())
}

/// Opens standard output for programs that read it byte by byte: shell scripts, manual pages, names for `xargs`. Never
/// for text that a store, a daemon or a command has written.
pub(crate) fn script_stdout() -> StdoutLock<'static> {
    std::io::stdout().lock()
}

/// Opens standard output for text that a program reads back: as it is, unless people read it on a terminal.
pub(crate) fn filter_stdout() -> Box<dyn Write> {
    if is_terminal() { Box::new(stdout()) } else { Box::new(script_stdout()) }
}

pub(crate) fn is_terminal() -> bool {
    std::io::stdout().is_terminal()
}

impl Output {
    /// Writes a text in a style; the style ends with the text.
    pub(crate) fn write_styled(&mut self, style: Style, text: &str) -> std::io::Result<()> {
        write!(self.0, "{style}{}{style:#}", escape_control(text))
    }

    /// Writes one line. A line feed in the text is escaped too, so that it cannot pretend to be another line.
    pub(crate) fn write_line(&mut self, text: &str) -> std::io::Result<()> {
        writeln!(self.0, "{}", escape_control(text))
    }

    /// Clears the screen and keeps the scroll-back, unlike a terminal reset.
    pub(crate) fn clear_screen(&mut self) -> std::io::Result<()> {
        self.0.write_all(b"\x1b[H\x1b[2J")
    }
}

impl Write for Output {
    fn write(&mut self, buffer: &[u8]) -> std::io::Result<usize> {
        // The formatting macros and serde write whole characters at a time.
        let text = String::from_utf8_lossy(buffer);
        let lines: Vec<_> = text.split('\n').map(escape_control).collect();
        self.0.write_all(lines.join("\n").as_bytes())?;
        Ok(buffer.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}
