//! The files of a recorded program, where it is to have its own: which file stands for each that it opened, and what
//! each holds.
//!
//! A recording has no names. So who starts the program says what its files are ([`Route`]); where nobody does, a file
//! that was read is named by how much was read of it: what two programs read the same number of bytes from is taken to
//! be one file, as the headers are that several sources include.
//!
//! [`FileTree`] is the oracle: every byte that a program of the build has written, on the host. What is read of a file
//! is compared with it, whether it comes from the page cache or from the disk.

use super::calls::RecordedCall;
use super::image::Image;
use super::recorded::RecordedProgram;
use pageferry_kernel::Fd;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

/// What is in every file, by name, and what was done so far.
#[derive(Default)]
pub(super) struct FileTree {
    /// The programs.
    pub(super) images: BTreeMap<String, Rc<Image>>,
    pub(super) bytes: RefCell<HashMap<String, Vec<u8>>>,
    /// References that programs have made which are through.
    pub(super) references: Cell<u64>,
}

/// What stands for the files that a program opened.
#[derive(Clone, Default)]
pub(super) enum Route {
    /// Files named by how much was read of them.
    #[default]
    ByLength,
    /// These, in the order in which they were opened; the last of them for all others.
    Named(Vec<String>),
    /// None: what goes through a pipe here went through a file when it was recorded.
    Pipe,
}

impl Route {
    /// One file.
    pub(super) fn to(name: &str) -> Route {
        Route::Named(vec![name.to_owned()])
    }

    fn name(&self, opened: usize, reads_bytes: usize) -> Option<String> {
        match self {
            Route::ByLength => Some(named_by_length(reads_bytes)),
            Route::Named(names) => names.get(opened).or(names.last()).cloned(),
            Route::Pipe => None,
        }
    }
}

fn named_by_length(len_bytes: usize) -> String {
    format!("of-{len_bytes}-bytes")
}

/// A file that is open.
pub(super) struct OpenFile {
    pub(super) fd: Fd,
    pub(super) name: String,
    /// Where the next read or write begins.
    pub(super) at: Cell<usize>,
}

/// The files of a process.
pub(super) struct Files {
    pub(super) tree: Rc<FileTree>,
    reads: Route,
    writes: Route,
    /// By the descriptor that they had when the program was recorded.
    pub(super) open: BTreeMap<u32, Rc<OpenFile>>,
    read: usize,
    written: usize,
}

impl Files {
    pub(super) fn new(tree: &Rc<FileTree>, reads: Route, writes: Route) -> Files {
        Files { tree: tree.clone(), reads, writes, open: BTreeMap::new(), read: 0, written: 0 }
    }

    /// The name of the file that it opens next.
    pub(super) fn next_name(&mut self, creates: bool, reads_bytes: usize) -> Option<String> {
        let (route, opened) =
            if creates { (&self.writes, &mut self.written) } else { (&self.reads, &mut self.read) };
        *opened += 1;
        route.name(*opened - 1, reads_bytes)
    }

    /// The image of a program.
    pub(super) fn image(&self, program: &str) -> Option<Rc<Image>> {
        self.tree.images.get(program).cloned()
    }

    /// What it writes to, by name.
    pub(super) fn output(&self) -> Option<String> {
        self.writes.name(0, 0)
    }
}

/// The files named by their lengths that these programs read.
pub(super) fn read_by<'a>(all: impl Iterator<Item = &'a RecordedProgram>) -> BTreeMap<String, usize> {
    let lengths: BTreeSet<usize> = all
        .flat_map(|recorded| &recorded.calls)
        .filter_map(|call| match call {
            RecordedCall::Open { creates: false, reads_bytes, .. } => Some(*reads_bytes),
            _ => None,
        })
        .collect();
    lengths.into_iter().map(|len| (named_by_length(len), len)).collect()
}
