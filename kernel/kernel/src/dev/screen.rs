//! The console on a frame buffer: a line of text is drawn where the last one ended, from the top again behind the
//! lowest.
//!
//! Letters are 8 by 16 pixels of two bytes. What they look like is of no concern here: their bytes are those of the
//! text. The frame buffer is reached through the kernel's mapping of the memory of devices, by pages or by a block; no
//! cache holds any of it. One line of text touches all its 16 lines of pixels, and as many pages as those lie on. No
//! lock: a line is drawn at once, and two that are drawn at a time lie beside each other.

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use pageferry_hal::{Access, Machine, Mode, PAGE_SIZE};
use pageferry_pmap::Pmaps;

/// Bytes of a line of pixels.
const PITCH_BYTES: usize = 2048;
/// Lines of pixels of a line of text.
const LETTER_LINES: usize = 16;
/// Bytes of a letter in one line of pixels.
const LETTER_BYTES: usize = 16;
/// Letters of a line.
const LINE_LETTERS: usize = PITCH_BYTES / LETTER_BYTES;

/// The console.
#[derive(Debug, Default)]
pub(crate) struct Screen {
    /// The line of text that is drawn next.
    next: AtomicUsize,
}

impl Screen {
    /// Draws a line of text, cut to the width of the screen; nothing where there is no frame buffer.
    pub(crate) fn draw<M: Machine>(&self, pmaps: &Pmaps<M>, text: &[u8]) {
        let m = pmaps.machine();
        let Some(devices) = m.board().device_memory.filter(|devices| devices.frame_buffer_pages > 0) else {
            return;
        };
        let base = pmaps.device_va(0).expect("the board has memory of devices");
        let lines = devices.frame_buffer_pages * PAGE_SIZE / (PITCH_BYTES * LETTER_LINES);
        let top = base + self.next.fetch_add(1, Relaxed) % lines * PITCH_BYTES * LETTER_LINES;
        let mut pixels = [0; PITCH_BYTES];
        let len = text.len().min(LINE_LETTERS) * LETTER_BYTES;
        for (letter, byte) in pixels.chunks_mut(LETTER_BYTES).zip(text) {
            letter.fill(*byte);
        }
        for line in 0..LETTER_LINES {
            let stored = m.store(Mode::Kernel, top + line * PITCH_BYTES, &pixels[..len]);
            stored.expect("the frame buffer is mapped for ever");
        }
    }
}

/// What the handler of a device's interrupt does before all else: it asks the interrupt controller which it is, and
/// tells it that the interrupt was taken. Nothing where the board does not describe the registers.
pub(crate) fn acknowledge<M: Machine>(pmaps: &Pmaps<M>) {
    let m = pmaps.machine();
    let Some(devices) = m.board().device_memory.filter(|devices| devices.register_pages > 0) else { return };
    let Some(controller) = pmaps.device_va(devices.frame_buffer_pages) else { return };
    m.touch_register(controller, Access::Read);
    m.touch_register(controller + 4, Access::Write);
}
