//! Messages, on the first serial port, what comes from there, and the end of everything.
//!
//! # How it ends
//! QEMU's device `isa-debug-exit` takes a code: 0 if all went well, 1 if not. Whatever cannot go on (a panic, an
//! exception, a machine that lacks something) says why in one line, and ends with 1.

use crate::cpu;
use core::fmt::{self, Write};
use core::panic::PanicInfo;
use core::sync::atomic::{AtomicBool, Ordering};
use uart_16550::backend::PioBackend;
use uart_16550::{Config, Uart16550};

/// Where QEMU's device `isa-debug-exit` is told to end the machine. Elsewhere nothing is there that listens.
pub(crate) const EXIT_PORT: u16 = 0xf4;

/// Taken while a message is written, if it can be had soon: a CPU that ends in the middle of one keeps it.
static PRINTING: AtomicBool = AtomicBool::new(false);

/// Whether the port was set up: once, for that forgets what has come and was not read.
static IS_SET_UP: AtomicBool = AtomicBool::new(false);

/// The first serial port, as terminals have it: each line ends by a return, too.
struct Serial(Uart16550<PioBackend>);

impl Serial {
    /// The port, if there is one that works.
    fn find() -> Option<Serial> {
        // SAFETY: where PCs have their first serial port; nothing else uses it, and whoever does so here has
        // [`PRINTING`], or ends the machine.
        let mut port = unsafe { Uart16550::new_port(0x3f8) }.ok()?;
        if !IS_SET_UP.load(Ordering::Acquire) {
            port.init(Config::default()).ok()?;
            port.test_loopback().ok()?;
            IS_SET_UP.store(true, Ordering::Release);
        }
        Some(Serial(port))
    }
}

impl Write for Serial {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for line in text.split_inclusive('\n') {
            let (text, end) = line.strip_suffix('\n').map_or((line, ""), |text| (text, "\r\n"));
            self.0.send_bytes_exact(text.as_bytes());
            self.0.send_bytes_exact(end.as_bytes());
        }
        Ok(())
    }
}

/// Does something with the port, if there is one that works; alone, unless another CPU has ended in the middle of that.
fn with_serial<R>(work: impl FnOnce(&mut Serial) -> R) -> Option<R> {
    let taken = (0..1_000_000).any(|_| !PRINTING.swap(true, Ordering::Acquire));
    let result = Serial::find().map(|mut serial| work(&mut serial));
    if taken {
        PRINTING.store(false, Ordering::Release);
    }
    result
}

/// Writes to the first serial port.
pub(crate) fn print(text: fmt::Arguments<'_>) {
    with_serial(|serial| serial.write_fmt(text));
}

/// Reads what has come on the first serial port; how much that is.
#[cfg(not(feature = "tap"))]
pub(crate) fn read(buffer: &mut [u8]) -> usize {
    with_serial(|serial| serial.0.receive_bytes(buffer)).unwrap_or(0)
}

/// Ends the machine with this code, or, where that is not possible, stops the CPU.
pub(crate) fn exit(code: u8) -> ! {
    cpu::disable_interrupts();
    cpu::write_port(EXIT_PORT, code);
    cpu::stop()
}

/// Ends the machine with a line that says why, and code 1.
pub(crate) fn fail(why: fmt::Arguments<'_>) -> ! {
    cpu::disable_interrupts();
    print(format_args!("pageferry: {why}\n"));
    exit(1)
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    match info.location() {
        Some(at) => fail(format_args!("panic at {at}: {}", info.message())),
        None => fail(format_args!("panic: {}", info.message())),
    }
}
