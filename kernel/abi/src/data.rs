//! How data gets into and out of the kernel, as the caller asks for it, and what it learns of what came. Plain values:
//! they hold nothing, take no lock and cannot fail.

use pageferry_hal::Va;

/// How a sender's bytes get into a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SendMode {
    /// By copying them into the kernel.
    #[default]
    Copy,
    /// By lending whole pages, and copying the rest (UVM paper, 4.1).
    Loan,
    /// By whichever of the two is cheaper for this call, on this machine.
    Auto,
    /// By wiring whole pages where they are, and copying the rest. Nothing keeps them from being written meanwhile: the
    /// sender waits until it learns that they are back (Linux: `MSG_ZEROCOPY`).
    Pin,
}

/// How a receiver's bytes get out of a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ReceiveMode {
    /// By copying them to an address.
    #[default]
    Copy,
    /// By making whole pages the receiver's memory, and copying the rest (UVM paper, 4.2).
    Transfer,
    /// By whichever of the two is cheaper for each run of pages, on this machine.
    Auto,
}

/// What was received by transfer. All zero means the end of the stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Received {
    /// Where it begins: the address that was given, or one in the transfer area. To be flushed by `anflush`, in whole
    /// pages.
    pub at: Va,
    /// How much it is.
    pub len_bytes: usize,
    /// Pages that were the kernel's before.
    pub donated_pages: usize,
    /// Pages that are the sender's too, or the file's, until one of them writes to them.
    pub lent_pages: usize,
}

/// What a window shows after a call, and what stands before the next page (`TCP_ZEROCOPY_RECEIVE`). All zero means the
/// end of the stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ShownPages {
    /// Bytes that the window shows from the address on that was given: whole pages.
    pub len_bytes: usize,
    /// Bytes behind these that fill no page, or none of its own: they are to be received by copy before the window can
    /// show more (`recv_skip_hint`). Perhaps not all: more of them may come.
    pub copy_bytes: usize,
}

/// A piece of what has arrived, in a receive area: a completion of io_uring's zero-copy receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Placed {
    /// Where in the area it begins, in bytes.
    pub offset: usize,
    /// How much it is; not beyond the end of a page.
    pub len_bytes: usize,
}
