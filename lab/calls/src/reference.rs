//! The plain copying model: what files, streams and memory hold, and who refers to them.

use super::steps::NAMES;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;
use pageferry_hal::{PAGE_SIZE, Va};
use pageferry_kernel::{Fd, Pid};

/// A file.
#[derive(Default)]
pub(super) struct Node {
    pub(super) bytes: Vec<u8>,
    /// Regions that map it, and the private ones among them. As long as there are such, nobody changes the file:
    /// whether they would see that, no system promises.
    pub(super) mapped: usize,
    pub(super) private: usize,
}

/// One direction of a pipe or of a pair of sockets.
#[derive(Default)]
pub(super) struct Stream {
    pub(super) queue: VecDeque<u8>,
    /// Open ends, however many descriptors lead to each.
    pub(super) writers: usize,
    pub(super) readers: usize,
    /// Its receive area, and the process whose memory that is.
    pub(super) area: Option<(Pid, Va)>,
}

/// What an open file is.
#[derive(Clone, Copy)]
pub(super) enum What {
    File {
        node: usize,
        offset: u64,
        append: bool,
    },
    /// An end: what comes out of it, and where what goes in goes.
    End {
        input: Option<usize>,
        output: Option<usize>,
        is_socket: bool,
    },
}

/// An open file, which several descriptors of several processes may lead to.
pub(super) struct Open {
    pub(super) what: What,
    pub(super) refs: usize,
}

/// What is behind a region of memory.
#[derive(Clone)]
pub(super) enum Backing {
    Own(Vec<u8>),
    /// Shared with children.
    Common(Rc<RefCell<Vec<u8>>>),
    /// A file from its first page on; of a private mapping, the pages that are its own.
    File {
        node: usize,
        shared: bool,
        own: Vec<Option<Vec<u8>>>,
    },
}

/// A region of a process's memory.
#[derive(Clone)]
pub(super) struct Region {
    pub(super) at: Va,
    pub(super) pages: usize,
    pub(super) backing: Backing,
    /// How often each page is locked cannot be told apart: it is, or it is not.
    pub(super) is_locked: bool,
}

/// What a process has.
#[derive(Clone, Default)]
pub(super) struct Holdings {
    pub(super) fds: Vec<(Fd, usize)>,
    pub(super) regions: Vec<Region>,
}

/// Everything.
#[derive(Default)]
pub(super) struct Reference {
    pub(super) names: BTreeMap<usize, usize>,
    pub(super) nodes: Vec<Node>,
    pub(super) streams: Vec<Stream>,
    pub(super) opens: Vec<Open>,
    pub(super) processes: Vec<Option<Holdings>>,
}

/// True for names in one file system.
pub(super) fn same_volume(one: usize, other: usize) -> bool {
    NAMES[one].starts_with("/mnt") == NAMES[other].starts_with("/mnt")
}

impl Reference {
    pub(super) fn node(&mut self) -> usize {
        self.nodes.push(Node::default());
        self.nodes.len() - 1
    }

    pub(super) fn open(&mut self, what: What) -> usize {
        if let What::End { input, output, .. } = what {
            input.into_iter().for_each(|i| self.streams[i].readers += 1);
            output.into_iter().for_each(|o| self.streams[o].writers += 1);
        }
        self.opens.push(Open { what, refs: 1 });
        self.opens.len() - 1
    }

    pub(super) fn close(&mut self, open: usize) {
        let open = &mut self.opens[open];
        open.refs -= 1;
        if open.refs == 0
            && let What::End { input, output, .. } = open.what
        {
            input.into_iter().for_each(|i| self.streams[i].readers -= 1);
            output.into_iter().for_each(|o| self.streams[o].writers -= 1);
        }
    }

    /// A stream with nobody at its ends.
    pub(super) fn stream(&mut self) -> usize {
        self.streams.push(Stream::default());
        self.streams.len() - 1
    }

    /// How many bytes of a region can be used: of a mapped file, those that it has.
    pub(super) fn usable(&self, region: &Region) -> usize {
        let all = region.pages * PAGE_SIZE;
        match region.backing {
            Backing::File { node, .. } => self.nodes[node].bytes.len().min(all),
            _ => all,
        }
    }

    /// What a region holds, as far as it can be used.
    pub(super) fn contents(&self, region: &Region) -> Vec<u8> {
        let len = self.usable(region);
        match &region.backing {
            Backing::Own(bytes) => bytes.clone(),
            Backing::Common(bytes) => bytes.borrow().clone(),
            Backing::File { node, own, .. } => {
                let mut bytes = self.nodes[*node].bytes[..len].to_vec();
                for (page, own) in own.iter().enumerate() {
                    let Some(own) = own else { continue };
                    let range = (page * PAGE_SIZE).min(len)..((page + 1) * PAGE_SIZE).min(len);
                    let count = range.len();
                    bytes[range].copy_from_slice(&own[..count]);
                }
                bytes
            }
        }
    }

    /// A process stores bytes to a region, or the kernel does for it.
    pub(super) fn store(&mut self, process: usize, region: usize, offset: usize, bytes: &[u8]) {
        let Some(holdings) = self.processes[process].as_mut() else { return };
        let nodes = &mut self.nodes;
        match &mut holdings.regions[region].backing {
            Backing::Own(all) => all[offset..offset + bytes.len()].copy_from_slice(bytes),
            Backing::Common(all) => {
                all.borrow_mut()[offset..offset + bytes.len()].copy_from_slice(bytes);
            }
            Backing::File { node, shared: true, .. } => {
                nodes[*node].bytes[offset..offset + bytes.len()].copy_from_slice(bytes);
            }
            Backing::File { node, own, .. } => {
                for (i, byte) in bytes.iter().enumerate() {
                    let (page, at) = ((offset + i) / PAGE_SIZE, (offset + i) % PAGE_SIZE);
                    own[page].get_or_insert_with(|| {
                        let file = &nodes[*node].bytes;
                        let from = (page * PAGE_SIZE).min(file.len());
                        let mut copy = file[from..file.len().min(from + PAGE_SIZE)].to_vec();
                        copy.resize(PAGE_SIZE, 0);
                        copy
                    })[at] = *byte;
                }
            }
        }
    }

    /// Bytes are written to a file.
    pub(super) fn write(&mut self, node: usize, at: usize, bytes: &[u8]) {
        let file = &mut self.nodes[node].bytes;
        file.resize(file.len().max(at + bytes.len()), 0);
        file[at..at + bytes.len()].copy_from_slice(bytes);
    }

    pub(super) fn unmap(&mut self, region: &Region) {
        if let Backing::File { node, shared, .. } = region.backing {
            self.nodes[node].mapped -= 1;
            self.nodes[node].private -= usize::from(!shared);
        }
    }

    /// A region maps a file.
    pub(super) fn map(&mut self, node: usize, shared: bool) {
        self.nodes[node].mapped += 1;
        self.nodes[node].private += usize::from(!shared);
    }

    /// What stands behind a region may be changed through it.
    pub(super) fn may_change(&self, region: &Region) -> bool {
        match region.backing {
            Backing::File { node, shared: true, .. } => self.nodes[node].private == 0,
            _ => true,
        }
    }

    /// A child has what its parent has.
    pub(super) fn fork(&mut self, parent: usize, child: usize) {
        let mut holdings = self.processes[parent].clone().expect("it forks");
        for (_, open) in &holdings.fds {
            self.opens[*open].refs += 1;
        }
        for region in &mut holdings.regions {
            region.is_locked = false;
            if let Backing::File { node, shared, .. } = region.backing {
                self.nodes[node].mapped += 1;
                self.nodes[node].private += usize::from(!shared);
            }
        }
        self.processes[child] = Some(holdings);
    }
}
