//! The plain copying model: what files, streams and memory hold, and who refers to them.

use super::steps::NAMES;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::RefCell;
use pageferry_hal::{PAGE_SIZE, Prot, Va};
use pageferry_kernel::{ExportId, Fd, Pid};
use pageferry_vm::{Inherit, PassMode};

/// A file.
#[derive(Default)]
pub(super) struct Node {
    pub(super) bytes: Vec<u8>,
    /// Regions that map it, and the private ones among them. As long as there are such, nobody changes the file:
    /// whether they would see that, no system promises.
    pub(super) mapped: usize,
    pub(super) private: usize,
}

/// One direction of a pipe, of a pair of sockets or of a connection.
#[derive(Default)]
pub(super) struct Stream {
    pub(super) queue: VecDeque<u8>,
    /// Open ends, however many descriptors lead to each.
    pub(super) writers: usize,
    pub(super) readers: usize,
    /// Its receive area, and the process whose memory that is.
    pub(super) area: Option<(Pid, Va)>,
    /// It is TCP's, and the other direction is this one: what was sent is under way for some time.
    pub(super) back: Option<usize>,
    /// An end has closed before it had read all, or somebody has written to one that had: the connection may have been
    /// reset, and what was under way be lost.
    pub(super) may_be_reset: bool,
}

impl Stream {
    /// Bytes, or the end, are to come.
    pub(super) fn is_due(&self) -> bool {
        !self.queue.is_empty() || self.writers == 0
    }
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
    /// The sound device.
    Sound,
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
    /// The page of what is shared, or of the file, that it begins with.
    pub(super) first: usize,
    /// What may be done to each page.
    pub(super) prot: Vec<Prot>,
    /// What a child has of it.
    pub(super) inherit: Inherit,
    /// How often each page is locked cannot be told apart: it is, or it is not.
    pub(super) is_locked: bool,
}

impl Region {
    /// One that its process may read and write.
    pub(super) fn new(at: Va, pages: usize, backing: Backing, inherit: Inherit) -> Region {
        Region { at, pages, backing, first: 0, prot: vec![Prot::RW; pages], inherit, is_locked: false }
    }

    /// How many pages from `page` on permit this, up to the first that does not.
    pub(super) fn permits(&self, page: usize, prot: Prot) -> usize {
        self.prot[page..].iter().take_while(|own| own.contains(prot)).count()
    }

    /// Cuts off what is from `page` on.
    fn split_off(&mut self, page: usize) -> Region {
        let backing = match &mut self.backing {
            Backing::Own(bytes) => Backing::Own(bytes.split_off(page * PAGE_SIZE)),
            Backing::Common(bytes) => Backing::Common(bytes.clone()),
            Backing::File { node, shared, own } => {
                Backing::File { node: *node, shared: *shared, own: own.split_off(page) }
            }
        };
        let rest = Region {
            at: self.at + page * PAGE_SIZE,
            pages: self.pages - page,
            backing,
            first: self.first + page,
            prot: self.prot.split_off(page),
            ..*self
        };
        self.pages = page;
        if let Backing::Own(_) = self.backing {
            return Region { first: 0, ..rest };
        }
        rest
    }
}

/// What a process has.
#[derive(Clone)]
pub(super) struct Holdings {
    pub(super) pid: Pid,
    pub(super) parent: Pid,
    /// Signals that it was sent.
    pub(super) signals: u32,
    pub(super) fds: Vec<(Fd, usize)>,
    pub(super) regions: Vec<Region>,
}

impl Holdings {
    /// Of a process that has nothing yet.
    pub(super) fn new(pid: Pid, parent: Pid) -> Holdings {
        Holdings { pid, parent, signals: 0, fds: Vec::new(), regions: Vec::new() }
    }
}

/// Memory that a process offers.
#[derive(Clone, Copy)]
pub(super) struct Offer {
    pub(super) id: ExportId,
    pub(super) maker: Pid,
    pub(super) at: Va,
    pub(super) pages: usize,
    pub(super) mode: PassMode,
}

/// Everything.
#[derive(Default)]
pub(super) struct Reference {
    pub(super) names: BTreeMap<usize, usize>,
    pub(super) nodes: Vec<Node>,
    pub(super) streams: Vec<Stream>,
    pub(super) opens: Vec<Open>,
    pub(super) processes: Vec<Option<Holdings>>,
    pub(super) offers: Vec<Offer>,
    /// What the sound device has got to play.
    pub(super) played: Vec<u8>,
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
            if let Some(input) = input.filter(|i| !self.streams[*i].queue.is_empty()) {
                self.may_reset(input);
            }
        }
    }

    /// Where it is a connection's, both directions may be gone.
    pub(super) fn may_reset(&mut self, stream: usize) {
        if let Some(back) = self.streams[stream].back {
            [stream, back].into_iter().for_each(|one| self.streams[one].may_be_reset = true);
        }
    }

    /// A stream with nobody at its ends.
    pub(super) fn stream(&mut self) -> usize {
        self.streams.push(Stream::default());
        self.streams.len() - 1
    }

    /// The two directions of a connection.
    pub(super) fn connection(&mut self) -> (usize, usize) {
        let (there, back) = (self.stream(), self.stream());
        self.streams[there].back = Some(back);
        self.streams[back].back = Some(there);
        (there, back)
    }

    /// How many bytes of a region can be used: of a mapped file, those that it has.
    pub(super) fn usable(&self, region: &Region) -> usize {
        let all = region.pages * PAGE_SIZE;
        match region.backing {
            Backing::File { node, .. } => {
                self.nodes[node].bytes.len().saturating_sub(region.first * PAGE_SIZE).min(all)
            }
            _ => all,
        }
    }

    /// What a region holds, as far as it can be used.
    pub(super) fn contents(&self, region: &Region) -> Vec<u8> {
        let (from, len) = (region.first * PAGE_SIZE, self.usable(region));
        match &region.backing {
            Backing::Own(bytes) => bytes.clone(),
            Backing::Common(bytes) => bytes.borrow()[from..from + len].to_vec(),
            Backing::File { .. } if len == 0 => Vec::new(),
            Backing::File { node, own, .. } => {
                let mut bytes = self.nodes[*node].bytes[from..from + len].to_vec();
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
        let region = &mut holdings.regions[region];
        let first = region.first;
        let from = first * PAGE_SIZE + offset;
        match &mut region.backing {
            Backing::Own(all) => all[offset..offset + bytes.len()].copy_from_slice(bytes),
            Backing::Common(all) => {
                all.borrow_mut()[from..from + bytes.len()].copy_from_slice(bytes);
            }
            Backing::File { node, shared: true, .. } => {
                nodes[*node].bytes[from..from + bytes.len()].copy_from_slice(bytes);
            }
            Backing::File { node, own, .. } => {
                for (i, byte) in bytes.iter().enumerate() {
                    let (page, at) = ((offset + i) / PAGE_SIZE, (offset + i) % PAGE_SIZE);
                    own[page].get_or_insert_with(|| {
                        let file = &nodes[*node].bytes;
                        let from = ((first + page) * PAGE_SIZE).min(file.len());
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

    /// Has a region of a process begin at this page of it, and end behind so many: its index then.
    pub(super) fn cut(&mut self, process: usize, region: usize, page: usize, pages: usize) -> usize {
        let regions = &mut self.processes[process].as_mut().expect("it is alive").regions;
        let mut rest = Vec::new();
        if page + pages < regions[region].pages {
            rest.push(regions[region].split_off(page + pages));
        }
        let index = if page > 0 {
            rest.push(regions[region].split_off(page));
            regions.len() + rest.len() - 1
        } else {
            region
        };
        regions.extend(rest.iter().cloned());
        rest.iter().for_each(|region| self.map_again(region));
        index
    }

    /// One more region shows what this one does.
    fn map_again(&mut self, region: &Region) {
        if let Backing::File { node, shared, .. } = region.backing {
            self.map(node, shared);
        }
    }

    /// Has others see what a region has of its own.
    pub(super) fn make_common(region: &mut Region) {
        if let Backing::Own(bytes) = &mut region.backing {
            region.backing = Backing::Common(Rc::new(core::mem::take(bytes).into()));
        }
    }

    /// A copy of a region's bytes, for somebody else.
    pub(super) fn copied(&self, region: &Region) -> Region {
        let copy = Region { is_locked: false, ..region.clone() };
        match region.backing {
            Backing::Common(_) => Region { backing: Backing::Own(self.contents(region)), first: 0, ..copy },
            _ => copy,
        }
    }

    /// A child has of its parent what that lets it have.
    pub(super) fn fork(&mut self, parent: usize, child: usize) {
        let holdings = self.processes[parent].as_mut().expect("it forks");
        for region in holdings.regions.iter_mut().filter(|region| region.inherit == Inherit::Share) {
            Reference::make_common(region);
        }
        let holdings = holdings.clone();
        for (_, open) in &holdings.fds {
            self.opens[*open].refs += 1;
        }
        let inherited = holdings.regions.iter().filter_map(|region| match region.inherit {
            Inherit::None => None,
            Inherit::Share => Some(Region { is_locked: false, ..region.clone() }),
            Inherit::Copy => Some(self.copied(region)),
        });
        let regions: Vec<Region> = inherited.collect();
        regions.iter().for_each(|region| self.map_again(region));
        // Its number is not known yet.
        let own = Holdings::new(holdings.pid, holdings.pid);
        self.processes[child] = Some(Holdings { fds: holdings.fds, regions, ..own });
    }

    /// A process is no more, whatever it had.
    pub(super) fn end(&mut self, process: usize) {
        let Some(holdings) = self.processes[process].take() else { return };
        holdings.fds.iter().for_each(|(_, open)| self.close(*open));
        holdings.regions.iter().for_each(|region| self.unmap(region));
    }
}
