//! What is made again of a recording: for each process its calls, in order, with what the plain model answers.

use super::names::Image;
use super::order::After;
use pageferry_kernel::{Errno, OpenFlags};
use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::Range;

/// A call that is made again.
#[derive(Clone, Debug)]
pub(super) struct Op {
    /// Its name in the recording; nothing for what only stands for what happens by itself, such as a close by exec.
    pub(super) name: Option<String>,
    pub(super) line: usize,
    /// How long it took when it was recorded.
    pub(super) took_us: Option<f64>,
    /// Calls of other processes that are to be over.
    pub(super) after: Vec<After>,
    /// Others wait for it.
    pub(super) is_awaited: bool,
    pub(super) action: Action,
}

type Answer<T> = Result<T, Errno>;

/// What a call does. Descriptors have the numbers of the recording; paths are the modelled kernel's.
#[derive(Clone, Debug)]
pub(super) enum Action {
    Open {
        path: String,
        flags: OpenFlags,
        fd: i32,
        answer: Answer<()>,
    },
    /// A name is looked up, or what it leads to: of a file or a symbolic link its length is known then, of a directory
    /// nothing.
    Look {
        path: String,
        follows: bool,
        answer: Answer<Option<u64>>,
    },
    Size {
        fd: i32,
        answer: u64,
    },
    /// The names in a directory.
    List {
        path: String,
        answer: Answer<u64>,
    },
    /// The kernel is entered, and there is nothing to do.
    Enter,
    Close {
        fd: i32,
    },
    Duplicate {
        fd: i32,
        to: i32,
    },
    /// Pipe number `pipe` of the plan.
    Pipe {
        ends: [i32; 2],
        pipe: usize,
    },
    Read {
        fd: i32,
        count: usize,
        offset: Option<u64>,
        answer: usize,
        sum: u64,
    },
    /// Up to what was read, as often as it takes: how much is there at a time is by chance.
    ReadPipe {
        fd: i32,
        count: usize,
        answer: usize,
        sum: u64,
    },
    Write {
        fd: i32,
        seed: u64,
        len: usize,
        offset: Option<u64>,
        /// For room in a pipe.
        waits: bool,
    },
    /// Bytes of one open file are read, and written to another.
    Copy {
        fd: i32,
        offset: Option<u64>,
        to: i32,
        to_offset: Option<u64>,
        len: usize,
        sum: u64,
    },
    Seek {
        fd: i32,
        to: u64,
    },
    Truncate {
        fd: i32,
        size: u64,
    },
    Sync {
        fd: i32,
    },
    Unlink {
        path: String,
        answer: Answer<()>,
    },
    RemoveDirectory {
        path: String,
        answer: Answer<()>,
    },
    MakeDirectory {
        path: String,
        answer: Answer<()>,
    },
    Rename {
        from: String,
        to: String,
        answer: Answer<()>,
    },
    Link {
        from: String,
        to: String,
        answer: Answer<()>,
    },
    Symlink {
        to: String,
        path: String,
        answer: Answer<()>,
    },
    ReadLink {
        path: String,
        answer: Answer<String>,
    },
    /// A private mapping; the first word of each page is loaded.
    Map {
        fd: i32,
        offset: u64,
        len: usize,
        id: usize,
        sum: u64,
    },
    /// Part of a mapping goes, from page-aligned byte `from` on.
    Unmap {
        id: usize,
        from: usize,
        len: usize,
    },
    Fork {
        process: usize,
    },
    Wait {
        process: usize,
    },
}

/// A recorded process.
#[derive(Clone, Debug, Default)]
pub(super) struct Process {
    pub(super) pid: u32,
    pub(super) ops: Vec<Op>,
}

/// A call that answered something else than it did when it was recorded.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Deviation {
    /// Its line.
    pub line: usize,
    /// Its name.
    pub call: String,
    /// What was recorded, and what comes out here.
    pub what: String,
}

/// Which bytes of a pipe a process's call moves.
pub(super) type PipeBytes = (usize, usize, Range<usize>);

/// What went through a pipe: bytes in the order of writes, and which process writes and which reads each of them.
#[derive(Default)]
pub(super) struct Through {
    pub(super) bytes: Vec<u8>,
    pub(super) read: usize,
    pub(super) reads: Vec<PipeBytes>,
    pub(super) writes: Vec<PipeBytes>,
    /// The write that was made last has not returned: how much more it may have written, and the seed of its bytes.
    pub(super) open_end: Option<OpenEnd>,
}

/// A write whose process was ended in the middle: nothing tells how much it had written but what others read.
#[derive(Clone, Copy)]
pub(super) struct OpenEnd {
    pub(super) seed: u64,
    pub(super) left: usize,
}

/// All that is to be done, process by process.
#[derive(Clone, Debug, Default)]
pub(super) struct Plan {
    pub(super) image: Image,
    pub(super) processes: Vec<Process>,
    /// Those that no process in the recording has made.
    pub(super) first: Vec<usize>,
    /// Processes that are there at a time, at most.
    pub(super) at_once: usize,
    pub(super) not_modelled: BTreeMap<String, u64>,
    pub(super) deviations: Vec<Deviation>,
    /// Bytes that are written to files, at most.
    pub(super) written_bytes: u64,
    /// Names that are made.
    pub(super) made: u64,
}
