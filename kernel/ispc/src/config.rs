//! How a kernel attaches memory for communication, and what it must have for that.

use super::services::{FileServiceConfig, NetServiceConfig};
use core::{fmt, iter};
use pageferry_defects::{Planted, defects};
use pageferry_hal::{Board, Mmu, PAGE_SIZE, paths};
use pageferry_pmap::{AreaConfig, AreaDefect, AreaPaths};

/// How pieces of the communication area are attached to processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// By page tables; misses fill the TLB, in entries that hardware chooses, and a detachment searches all of them.
    Random,
    /// By a reserved entry for each page, whether a server or an application has it, and by no page table.
    Previous,
    /// Servers see the whole area by permanent reserved entries of large pages; an application has a reserved entry for
    /// each of its pages. No page table.
    Proposed,
    /// A thread that makes a request crosses into its server's space, and back when that is answered: no queue, and no
    /// switch of threads. Attached is as by [`Method::Proposed`] where the kernel loads the TLB, and by page tables
    /// elsewhere.
    Migrating,
}

impl Method {
    /// Threads cross into their servers.
    pub const fn crosses(self) -> bool {
        matches!(self, Method::Migrating)
    }
}

/// How a method attaches on a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attaching {
    /// By reserved entries of the TLB; else by page tables.
    pub by_entries: bool,
    /// Servers have the whole area, for as long as they serve.
    pub servers_see_all: bool,
    /// log2 of the bytes of large pages that may attach pieces, from small to large.
    pub large: &'static [u8],
}

paths! {
    /// Path lengths of communication between processes. Attaching and detaching by entry are [`AreaPaths`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct IspcPaths {
        /// One call: looking up the target, and testing its number, owner and queue.
        pub call: CodePath,
        /// Putting a request into a queue, or taking one out.
        pub queue: CodePath,
        /// Looking up one piece of the area, and noting its owner from now on.
        pub ica: CodePath,
        /// Finding a reserved entry that is free, or giving one back.
        pub entry: CodePath,
        /// Changing the space that a thread runs in: noting where it came from, a stack for it there, the root and the
        /// tag.
        pub cross: CodePath,
        /// Handing a frame to the card for a driver, apart from writing its cache lines back.
        pub card_send: CodePath,
        /// One interrupt of the card, with freeing what was sent.
        pub card_interrupt: CodePath,
    }
}

defects! {
    /// What can be wrong with communication by a common area.
    pub enum IspcDefect {
        SenderKeeps: "A sender keeps what it has sent.",
        NotAttached: "What is detached is attached nowhere, though its owner is told that it has it.",
        RequestLost: "A request that a dead server had taken is lost: its caller is not told.",
        EntriesLost: "Reserved entries of a process that ends are not given back.",
        NotCleared: "A piece of the area is given out with what was left in it.",
        EntryTaken: "An entry is chosen without a look whether it is free.",
        AnswerUnasked: "Any process may answer any request.",
        SilentlyByTable: "Where reserved entries run out, a page-table entry attaches.",
        DataKept: "Data goes with its request, but stays with the server when that answers.",
        SpaceKept: "A thread that has crossed into a server stays in its space when it goes back.",
        InsideForgotten: "A server ends without a look for threads inside.",
        NotWrittenBack: "A frame is handed to a card that does not look into caches, and is in the cache only.",
        FreedWhileSent: "A piece is given to another while the card still reads it.",
        LargeBeyondEnd: "A large page attaches a page more than the piece has.",
        DeathUntold: "A thread that was inside a server that died is told that all went well.",
    }
    /// It shows only where a driver of the card is a program that does not wait for the wire.
    needs_a_card: [NotWrittenBack, FreedWhileSent];
    /// It shows only where large pages attach pieces.
    needs_large_pieces: [LargeBeyondEnd];
}

/// A kernel with communication between processes by a common area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IspcConfig {
    /// How it attaches.
    pub method: Method,
    /// Bytes of the area: whole pages of the servers' size.
    pub len_bytes: usize,
    /// Entries of the TLB that are reserved for the area (N); not used where page tables attach.
    pub reserved: usize,
    /// How many of them are servers' (X), where those see all of the area.
    pub server_entries: usize,
    /// Bytes of a page of the servers', where those see all of the area.
    pub server_page_bytes: usize,
    /// Bytes of a page by which a reserved entry attaches a piece, or a part of one: a frame, or what is smaller and
    /// the machine has.
    pub piece_page_bytes: usize,
    /// Reserved entries attach pieces by the largest pages that their lengths and places allow.
    pub large_pieces: bool,
    /// Detachment from a page table looks through all TLB entries by software where it can; else the page is
    /// invalidated by an associative write.
    pub searches: bool,
    /// Pieces of the area, and requests, at a time.
    pub pieces: usize,
    /// The kernel's file system is a server's.
    pub files: Option<FileServiceConfig>,
    /// The kernel's protocols, and the driver of its network card, are servers'.
    pub net: Option<NetServiceConfig>,
    /// Path lengths.
    pub paths: IspcPaths,
    /// Of attaching and detaching.
    pub area_paths: AreaPaths,
    /// A defect to plant; [`Planted::NONE`] but in tests.
    pub defect: Planted<IspcDefect>,
    /// Another, of what attaches; [`Planted::NONE`] but in tests.
    pub area_defect: Planted<AreaDefect>,
}

/// What is wrong with such a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IspcError {
    /// More entries for servers than are reserved.
    #[error(
        "{server_entries} TLB entries for servers, expected no more than the {reserved} that are reserved"
    )]
    ServersBeyondReserved {
        /// X.
        server_entries: usize,
        /// N.
        reserved: usize,
    },
    /// Reserved entries and those of servers beside them are more than the TLB has.
    #[error(
        "{reserved} reserved TLB entries, {server_entries} of them for servers, in a TLB of {entries}: two at least \
         must be left"
    )]
    BeyondTlb {
        /// N.
        reserved: usize,
        /// X.
        server_entries: usize,
        /// What the TLB has.
        entries: usize,
    },
    /// The area is no whole number of the servers' pages.
    #[error(
        "a communication area of {len_bytes} bytes, expected a multiple of the servers' pages of {server_page_bytes}"
    )]
    NotDivided {
        /// The area.
        len_bytes: usize,
        /// A page.
        server_page_bytes: usize,
    },
    /// The machine has no pages of this size.
    #[error("pages of {server_page_bytes} bytes for servers, expected {}", ServerPages(large))]
    NoSuchPages {
        /// A page.
        server_page_bytes: usize,
        /// log2 of those that there are beside the smallest.
        large: &'static [u8],
    },
    /// The machine has no pages of this size, or they are larger than a frame.
    #[error("pages of {piece_page_bytes} bytes for pieces of the area, expected {PAGE_SIZE}{}", Smaller(*part))]
    NoSuchParts {
        /// A page.
        piece_page_bytes: usize,
        /// log2 of the smaller one, where there is one.
        part: Option<u8>,
    },
    /// Not one server has room.
    #[error(
        "{server_entries} TLB entries for servers, expected at least the {needed} by which one sees the area"
    )]
    NoServer {
        /// X.
        server_entries: usize,
        /// What one server takes.
        needed: usize,
    },
    /// The machine's TLB is not loaded by the kernel, or has sets.
    #[error(
        "memory is to be attached by TLB entries: expected one processor whose TLB the kernel loads, with tags and \
         without sets (sh7751r)"
    )]
    NoSoftTlb,
}

/// The sizes of pages by which servers can see all of the area, on a machine with these larger pages: all that the area
/// is aligned to.
struct ServerPages(&'static [u8]);

impl ServerPages {
    fn sizes(&self) -> impl Iterator<Item = usize> {
        iter::once(PAGE_SIZE).chain(self.fitting().iter().map(|&shift| 1 << shift))
    }

    /// log2 of the larger ones.
    fn fitting(&self) -> &'static [u8] {
        let fit = self.0.iter().take_while(|&&shift| 1 << shift <= AreaConfig::LARGEST_PAGE).count();
        &self.0[..fit]
    }
}

impl fmt::Display for ServerPages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = self.sizes().count() - 1;
        self.sizes().enumerate().try_for_each(|(i, bytes)| match i {
            0 => write!(f, "{bytes}"),
            i if i == last => write!(f, " or {bytes}"),
            _ => write!(f, ", {bytes}"),
        })
    }
}

/// The size of pages that are smaller than a frame, as the end of a sentence.
struct Smaller(Option<u8>);

impl fmt::Display for Smaller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |shift| write!(f, " or {}", 1 << shift))
    }
}

impl IspcConfig {
    /// Entries by which one server sees the area, where servers see all of it.
    pub const fn entries_of_a_server(&self) -> usize {
        self.len_bytes / self.server_page_bytes
    }

    /// How the method attaches on this machine.
    ///
    /// # Errors
    /// [`IspcError::NoSoftTlb`].
    pub fn attaching(&self, board: &Board) -> Result<Attaching, IspcError> {
        let can_reserve = board.reservable_entries().is_some();
        let by_entries = match self.method {
            Method::Random => false,
            Method::Migrating => can_reserve,
            Method::Previous | Method::Proposed if can_reserve => true,
            Method::Previous | Method::Proposed => return Err(IspcError::NoSoftTlb),
        };
        let servers_see_all = by_entries && self.method != Method::Previous;
        let large = match board.mmu {
            Mmu::Soft { large, .. } if by_entries && self.large_pieces => ServerPages(large).fitting(),
            _ => &[],
        };
        Ok(Attaching { by_entries, servers_see_all, large })
    }

    /// What the pmap is to make.
    ///
    /// # Errors
    /// [`IspcError`].
    pub fn area(&self, board: &Board) -> Result<AreaConfig, IspcError> {
        let IspcConfig { len_bytes, server_entries, server_page_bytes, piece_page_bytes, .. } = *self;
        let Attaching { by_entries, servers_see_all, .. } = self.attaching(board)?;
        let reserved = if by_entries { self.reserved } else { 0 };
        if let Some(entries) = board.reservable_entries().filter(|_| by_entries) {
            if server_entries > reserved {
                return Err(IspcError::ServersBeyondReserved { server_entries, reserved });
            }
            if reserved + 2 > entries {
                return Err(IspcError::BeyondTlb { reserved, server_entries, entries });
            }
        }
        let (large, part) = match board.mmu {
            Mmu::Soft { large, part, .. } => (large, part),
            Mmu::Radix(_) | Mmu::Hash => (&[][..], None),
        };
        if by_entries
            && piece_page_bytes != PAGE_SIZE
            && part.is_none_or(|shift| piece_page_bytes != 1 << shift)
        {
            return Err(IspcError::NoSuchParts { piece_page_bytes, part });
        }
        if servers_see_all {
            if !ServerPages(large).sizes().any(|bytes| bytes == server_page_bytes) {
                return Err(IspcError::NoSuchPages { server_page_bytes, large });
            }
            if !len_bytes.is_multiple_of(server_page_bytes) {
                return Err(IspcError::NotDivided { len_bytes, server_page_bytes });
            }
            let needed = self.entries_of_a_server();
            if server_entries < needed {
                return Err(IspcError::NoServer { server_entries, needed });
            }
        }
        Ok(AreaConfig {
            len_bytes,
            reserved,
            searches: self.searches,
            paths: self.area_paths,
            defect: self.area_defect,
        })
    }
}
