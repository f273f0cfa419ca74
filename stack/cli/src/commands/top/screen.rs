//! A terminal that is drawn on as a whole, and put back as it was.
//!
//! In: lines of text. Out: the same on the screen; whether q was pressed.

use std::io::{self, Write};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// To the other screen, cursor hidden; and back.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
/// To the upper left; what stands behind the cursor, in the line and below, is cleared.
const HOME: &str = "\x1b[H";
const CLEAR_LINE: &str = "\x1b[K";
const CLEAR_BELOW: &str = "\x1b[J";

/// Ctrl-C as a key, since signals are off.
const INTERRUPT: u8 = 3;

/// The terminal, without echo, line by line input, or signals of keys, until this is dropped.
pub struct Screen {
    before: Termios,
}

impl Screen {
    /// Takes the terminal.
    pub fn open() -> io::Result<Screen> {
        let stdin = io::stdin();
        let before = tcgetattr(&stdin)?;
        let mut modes = before.clone();
        modes.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG);
        tcsetattr(&stdin, OptionalActions::Now, &modes)?;
        let screen = Screen { before };
        write_out(ENTER)?;
        Ok(screen)
    }

    /// Columns and lines.
    pub fn size(&self) -> (usize, usize) {
        let size = tcgetwinsize(io::stdout()).map(|size| (size.ws_col.into(), size.ws_row.into()));
        size.ok().filter(|(columns, lines)| *columns > 0 && *lines > 0).unwrap_or((80, 24))
    }

    /// Draws the lines.
    pub fn draw(&mut self, lines: &[String]) -> io::Result<()> {
        let body = lines.join(&format!("{CLEAR_LINE}\r\n"));
        write_out(&format!("{HOME}{body}{CLEAR_LINE}{CLEAR_BELOW}"))
    }

    /// Waits for keys. True if one of them was one that ends the program, or nobody will press one any more.
    pub fn wait(&mut self, time: Duration) -> io::Result<bool> {
        let stdin = io::stdin();
        let timeout = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
        match poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&timeout)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(false),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        // Unbuffered: what stays behind in a buffer would not wake the next wait.
        let mut keys = [0; 64];
        let count = rustix::io::read(&stdin, &mut keys)?;
        Ok(count == 0 || keys[..count].iter().any(|key| matches!(*key, b'q' | b'Q' | INTERRUPT)))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = write_out(LEAVE);
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}

fn write_out(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}
