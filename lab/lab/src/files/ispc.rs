//! Communication by a common area: `[ispc]` of a kernel's file.
//!
//! A kernel without this table has none. What attaches is a setting (`kernel.ispc.method`), and so are the numbers of
//! entries and the sizes of pages; what does not go together is refused where the kernel boots.

use super::paths::paths;
use pageferry_hal::{Board, CodePath};
use pageferry_kernel::{
    FileServiceConfig, IspcConfig, IspcPaths, Method, NetServiceConfig, NetServicePaths, Planted,
};
use pageferry_pmap::{AreaPaths, EntryChoice};
use pageferry_sourced::Sourced;
use serde::{Deserialize, Serialize};

/// How memory for communication is attached. See [`Method`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MethodName {
    /// By page tables.
    Random,
    /// By reserved TLB entries that all share.
    Previous,
    /// By reserved TLB entries; servers see all of the area.
    Proposed,
    /// As the one before, and threads cross into their servers.
    Migrating,
}

/// Which entry of the TLB a refill takes. See [`EntryChoice`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChoiceName {
    /// As hardware's counter says.
    Hardware,
    /// One that is not in use first.
    UnusedFirst,
    /// By the method: hardware's where page tables attach, else one that is not in use first.
    Method,
}

paths! {
    /// See [`IspcPaths`].
    IspcPathsFile for IspcPaths {
        call, queue, ica, entry, cross, card_send, card_interrupt;
        wire, unwire, table, bounds, choose, card_post, card_take
    }
}

/// Communication by a common area. See [`IspcConfig`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IspcFile {
    /// How it is attached.
    pub method: Sourced<MethodName>,
    /// The size of the area.
    pub area_bytes: Sourced<u64>,
    /// Entries of the TLB that are reserved (N).
    pub reserved_entries: Sourced<u64>,
    /// How many of them are servers' (X).
    pub server_entries: Sourced<u64>,
    /// The size of a page of theirs.
    pub server_page_bytes: Sourced<u64>,
    /// The size of a page by which a reserved entry attaches a piece or a part of one.
    pub piece_page_bytes: Sourced<u64>,
    /// Reserved entries attach a piece by the largest pages that its length and place allow; not if this is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub large_pieces: Option<Sourced<bool>>,
    /// Detachment from a page table looks at TLB entries one by one.
    pub searches: Sourced<bool>,
    /// Which entry of the TLB a refill takes.
    pub choice: Sourced<ChoiceName>,
    /// The file system below `/mnt` is a server's.
    pub file_server: Sourced<bool>,
    /// Pages of data that go with a request to it.
    pub file_pages: Sourced<u64>,
    /// Where there is a network, protocols and the driver of the card are servers'.
    pub network_servers: Sourced<bool>,
    /// Pages of data that go with a request to the protocols'.
    pub network_pages: Sourced<u64>,
    /// Frames that may be on their way from there to the card.
    pub network_frames: Sourced<u64>,
    /// Frames that the card has room for.
    pub network_buffers: Sourced<u64>,
    /// Path lengths in instructions.
    pub paths: IspcPathsFile,
}

impl IspcFile {
    /// What the kernel is booted with.
    pub(super) fn config(&self) -> IspcConfig {
        let path = |of: &Sourced<u32>| CodePath::of(of.value);
        IspcConfig {
            method: match self.method.value {
                MethodName::Random => Method::Random,
                MethodName::Previous => Method::Previous,
                MethodName::Proposed => Method::Proposed,
                MethodName::Migrating => Method::Migrating,
            },
            len_bytes: self.area_bytes.value as usize,
            reserved: self.reserved_entries.value as usize,
            server_entries: self.server_entries.value as usize,
            server_page_bytes: self.server_page_bytes.value as usize,
            piece_page_bytes: self.piece_page_bytes.value as usize,
            large_pieces: self.large_pieces.as_ref().is_some_and(|large| large.value),
            searches: self.searches.value,
            pieces: 512,
            files: self.file_server.value.then_some(FileServiceConfig {
                data_pages: self.file_pages.value as usize,
                defect: Planted::NONE,
            }),
            net: self.network_servers.value.then_some(NetServiceConfig {
                data_pages: self.network_pages.value as usize,
                frames: self.network_frames.value as usize,
                buffers: self.network_buffers.value as usize,
                paths: NetServicePaths {
                    card_post: path(&self.paths.card_post),
                    card_take: path(&self.paths.card_take),
                },
                defect: Planted::NONE,
            }),
            paths: self.paths.lengths(),
            area_paths: AreaPaths {
                wire: path(&self.paths.wire),
                unwire: path(&self.paths.unwire),
                table: path(&self.paths.table),
                bounds: path(&self.paths.bounds),
            },
            defect: Planted::NONE,
            area_defect: Planted::NONE,
        }
    }

    /// Which entry a refill takes. What a method prefers is what it gets where the kernel can choose on this board.
    pub(super) fn choice(&self, board: &Board) -> EntryChoice {
        match (self.choice.value, self.method.value) {
            (ChoiceName::Hardware, _) | (ChoiceName::Method, MethodName::Random) => EntryChoice::Hardware,
            (ChoiceName::Method, _) if !EntryChoice::UnusedFirst.is_possible(board) => EntryChoice::Hardware,
            (ChoiceName::UnusedFirst | ChoiceName::Method, _) => EntryChoice::UnusedFirst,
        }
    }
}
