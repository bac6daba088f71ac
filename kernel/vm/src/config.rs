//! Path lengths, and the sizes and numbers of this floor's structures.
//!
//! Nothing here changes after boot. The sizes are those of the structures that real kernels of the time kept (FreeBSD 5
//! and NetBSD 1.4, computed for pointers of 4 and 8 bytes); they decide how many cache lines the kernel's own data
//! takes. The numbers are limits: a zone that is full makes the call that wanted a structure fail with
//! [`crate::VmError::NoMemory`].

use pageferry_hal::{Board, CodePath, PAGE_SIZE, Width, paths};

paths! {
    /// Path lengths of this floor.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct VmPaths {
        /// A fault's look-ups and decisions, without trap entry and memory work.
        pub fault: CodePath,
        /// Making, clipping or removing a map entry.
        pub map_entry: CodePath,
        /// Looking at one entry on the way down the tree of a map.
        pub map_node: CodePath,
        /// Finding space in the kernel's address allocator.
        pub kva_alloc: CodePath,
        /// Giving addresses back to the kernel's address allocator.
        pub kva_free: CodePath,
        /// Taking a frame off the free list or putting it back.
        pub frame: CodePath,
        /// Wiring or unwiring one frame.
        pub wire: CodePath,
        /// One slot of an amap, or one anon.
        pub anon: CodePath,
        /// Lending one page, or taking it back.
        pub loan: CodePath,
        /// Moving one page into an address space, or flushing it out of there.
        pub transfer: CodePath,
        /// Passing one map entry, beside making it.
        pub pass: CodePath,
    }
}

/// What differs between kernels on this floor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VmConfig {
    /// Path lengths.
    pub paths: VmPaths,
    /// The page daemon and its swap area; `None` for a kernel without them, in which memory that is full stays full.
    pub paging: Option<PagingConfig>,
    /// Objects at a time that there is room for at least; for 0, as many as memory suggests.
    pub objects: usize,
    /// The lists of free frames.
    pub lists: FreeLists,
    /// What anonymous memory is made of.
    pub anonymous: Anonymous,
    /// Anonymous memory that is used for the first time is made so many pages at once, a power of two, in frames in a
    /// row, where an entry has room for all of them and none is there yet. 1: page by page. More needs
    /// [`Anonymous::Amaps`].
    pub zero_fill_pages: usize,
    /// What a transfer does once and what for each page, and where the pages go that it replaces.
    pub transfer: TransferConfig,
    /// How loans between objects and anons are locked.
    pub loan_locking: LoanLocking,
    /// Structures of other sizes than [`StructureSizes::of`] says, and how pages are found.
    pub structures: Option<StructuresConfig>,
}

/// The structures of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StructuresConfig {
    /// Their sizes.
    pub sizes: StructureSizes,
    /// Pages of objects and of the kernel are found by a hash table, as in NetBSD; without, by what an object has of
    /// its own (a tree of pages, as in FreeBSD 5), which takes no line beside the object's.
    pub page_hash: bool,
}

/// How an anon and the object that its page is on loan from come to know of each other's end (UVM paper, 4.1.1, 4.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LoanLocking {
    /// The counts and the owner of a frame change under the lock of the page queues, in one step: an object that lets a
    /// lent frame go makes the borrower its owner. Nobody needs the other's lock.
    #[default]
    OneStep,
    /// As published: who locks an anon for its page, locks the page queues if that is on loan, and then tries the
    /// object's lock, against the order; where that is taken, all starts over. An object that lets a lent frame go
    /// leaves it without an owner; the anon adopts it when it is next locked.
    Published,
}

/// How far a transfer of several pages is one step, and where the pages go that it replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct TransferConfig {
    /// So many of the locked instructions of [`VmPaths::transfer`] are made once a call, and not for each page.
    pub locked_once: u32,
    /// A page that is replaced goes back to whom the new one comes from, and not to the allocator.
    pub returns: bool,
    /// So many of the locked instructions of [`VmPaths::transfer`] give a page that is replaced to the allocator.
    pub put_locked: u32,
}

/// What anonymous memory is made of, and with it what copy-on-write does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Anonymous {
    /// Amaps of anons, each a page with a count of its own (UVM paper, 3.1).
    #[default]
    Amaps,
    /// Chains of shadow objects, as BSD VM has them from Mach (UVM paper, 2.1). Nothing is lent or transferred there.
    Shadows(ShadowConfig),
}

impl Anonymous {
    /// The paths that only this kind of memory takes.
    pub fn each_path_mut(&mut self, visit: &mut dyn FnMut(&mut CodePath)) {
        match self {
            Anonymous::Amaps => {}
            Anonymous::Shadows(shadows) => shadows.paths.each_mut(visit),
        }
    }
}

/// How a VM system with shadow objects goes about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShadowConfig {
    /// The most neighbouring pages of one object that go to the swap area in one request. A page keeps its slot there.
    pub cluster_pages: usize,
    /// Path lengths.
    pub paths: ShadowPaths,
}

paths! {
    /// Path lengths of chains.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ShadowPaths {
        /// Looking for a page in one object of a chain, and the step to the next.
        pub search: CodePath,
        /// Putting a new object before another.
        pub shadow: CodePath,
        /// Marking one page of an object, at a fork, as one that is copied on write.
        pub mark: CodePath,
        /// One page that a collapse, a bypass or a copy of an object looks at.
        pub collapse: CodePath,
    }
}

/// Where in the free list a frame comes that is freed. They are taken from its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum FreedTo {
    /// To the head: the last freed is the first used again, what was never used is used last, and caches have what is
    /// known of few frames (FreeBSD, `vm_page_free_toq`).
    #[default]
    Head,
    /// To the tail: what was never used is used first, and all of memory goes round (UVM, `uvm_pagefree`).
    Tail,
}

/// The lists of free frames: how many there are, where a frame comes that is freed, and where one is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeLists {
    /// Where a frame comes that is freed.
    pub freed_to: FreedTo,
    /// A page that is to be clear takes its frame from the list's tail, where what is known to be clear would be, and
    /// others theirs from its head (FreeBSD, `vm_pageq_find`). If not, all take it from the head.
    pub clear_from_tail: bool,
    /// How many lists there are, each of the frames of one colour, so that the pages of an object, one after the other,
    /// lie beside each other in a cache that is looked up by physical addresses (FreeBSD, `PQ_L2_SIZE`): a power of
    /// two; 1 for none. On a board that gives pages colours by their addresses those count, and these do not.
    pub colours: u32,
    /// The first page of an object has the colour that many behind that of the object made before it, or as many as
    /// that has pages, if those are fewer (FreeBSD, `_vm_object_allocate`).
    pub max_colour_step: u32,
}

impl FreeLists {
    /// One list.
    pub const fn one(freed_to: FreedTo) -> FreeLists {
        FreeLists { freed_to, clear_from_tail: false, colours: 1, max_colour_step: 0 }
    }
}

paths! {
    /// Path lengths of paging.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct PagingPaths {
        /// The page daemon's look at one frame, and its decision.
        pub scan: CodePath,
        /// Handing one request to the disk and taking its answer, in the pager and the driver.
        pub io: CodePath,
    }
}

/// How memory that is not used is taken back (UVM paper, 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PagingConfig {
    /// The swap area: the first blocks of the disk, of a page each. The rest is for files.
    pub swap_pages: u32,
    /// The page daemon begins when fewer frames are free (NetBSD: `freemin`).
    pub free_min_pages: usize,
    /// It takes frames until so many are free, a cluster at a time (NetBSD: four times `freetarg`).
    pub free_target_pages: usize,
    /// The last frames that only the kernel itself gets.
    pub kernel_reserve_pages: usize,
    /// Of these, the last that only the page daemon gets.
    pub daemon_reserve_pages: usize,
    /// The part of pageable frames that the page daemon keeps inactive.
    pub inactive_percent: usize,
    /// The most pages that go out in one request.
    pub cluster_pages: usize,
    /// The most neighbours that come in with a file's page.
    pub read_ahead_pages: usize,
    /// The part of all frames that may be locked with [`crate::Space::lock_memory`].
    pub lock_limit_percent: usize,
    /// What the kernel keeps of each block of a request, if that is known.
    pub heads: Option<BufferHeads>,
    /// Path lengths.
    pub paths: PagingPaths,
}

/// Heads of buffers, one for each block of a request, and their hash table (Linux).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferHeads {
    /// Bytes of a head.
    pub head_bytes: usize,
    /// Bytes of a block: a page, or a part of it that is a power of two.
    pub block_bytes: usize,
    /// Pointers of the hash table.
    pub buckets: usize,
}

impl PagingConfig {
    /// True when it makes sense: reserves below the minimum, that below the target, and something to move.
    pub fn is_valid(&self) -> bool {
        self.daemon_reserve_pages <= self.kernel_reserve_pages
            && self.kernel_reserve_pages < self.free_min_pages
            && self.free_min_pages <= self.free_target_pages
            && (1..=100).contains(&self.inactive_percent)
            && self.lock_limit_percent <= 100
            && self.cluster_pages > 0
    }
}

impl VmConfig {
    /// Chooses what `word` names, as tests name it; false when it names nothing here.
    pub fn choose(&mut self, word: &str, pointer: Width) -> bool {
        match word {
            "tail" => self.lists = FreeLists::one(FreedTo::Tail),
            "coloured" => {
                let freed_to = self.lists.freed_to;
                self.lists = FreeLists { freed_to, clear_from_tail: true, colours: 8, max_colour_step: 5 };
            }
            "published" => self.loan_locking = LoanLocking::Published,
            "tabled" => {
                let sizes = StructureSizes::of(pointer);
                self.structures = Some(StructuresConfig { sizes, page_hash: true });
            }
            _ => return false,
        }
        true
    }

    /// Bytes of the arena of kernel structures that [`crate::Vm::new`] takes on this machine without paging, at most,
    /// where structures have the usual sizes.
    pub fn arena_bytes(board: Board) -> usize {
        VmConfig::arena_bytes_with(board, None, None)
    }

    /// The same with paging: anonymous memory may then be more than memory; and for other structures.
    pub fn arena_bytes_with(
        board: Board,
        paging: Option<&PagingConfig>,
        structures: Option<&StructuresConfig>,
    ) -> usize {
        let sizes = structures.map_or(StructureSizes::of(board.pointer), |its| its.sizes);
        let virtual_pages = virtual_pages(board, paging);
        let zones: usize =
            Kind::ALL.iter().map(|&k| sizes.item_bytes(k) * k.capacity(virtual_pages) + PAGE_SIZE).sum();
        // Chains of shadow objects take less than the anons that they stand for.
        let kernel_entries = kernel_entries(board.frames) * sizes.entry_bytes + PAGE_SIZE;
        let heads = paging.and_then(|paging| paging.heads).map_or(0, BufferHeads::arena_bytes);
        let hash = match structures {
            Some(its) if its.page_hash => page_hash_buckets(board) * bucket_bytes(board) + PAGE_SIZE,
            _ => 0,
        };
        zones + heads + hash + kernel_entries + board.frames * sizes.page_bytes + PAGE_SIZE
    }

    /// The sizes of structures on this machine.
    pub(crate) fn sizes_on(&self, board: Board) -> StructureSizes {
        let sizes = self.structures.map_or(StructureSizes::of(board.pointer), |its| its.sizes);
        sizes.with(board.pointer, &self.anonymous)
    }

    /// Pages are found by a hash table.
    pub(crate) fn has_page_hash(&self) -> bool {
        self.structures.is_some_and(|its| its.page_hash)
    }
}

/// Lists of the hash table of pages: at least as many as frames (`uvm_page_rehash`).
pub(crate) fn page_hash_buckets(board: Board) -> usize {
    board.frames.next_power_of_two()
}

/// The head of one: two pointers.
pub(crate) fn bucket_bytes(board: Board) -> usize {
    2 * board.pointer.bytes()
}

/// Pages of anonymous memory that there can be: in frames and in the swap area.
pub(crate) fn virtual_pages(board: Board, paging: Option<&PagingConfig>) -> usize {
    board.frames + paging.map_or(0, |p| p.swap_pages as usize)
}

/// The kinds of structure that come from zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// `vm_anon`.
    Anon,
    /// `vm_map_entry` of a user map.
    Entry,
    /// The fixed part of a `vm_amap`.
    Amap,
    /// [`SLOTS_PER_CHUNK`] slots of an amap.
    Chunk,
    /// `uvm_object`.
    Object,
    /// `vmspace`.
    Space,
}

/// Slots of an amap that are allocated together. NetBSD allocates the amaps of big sparse entries in pieces of as many.
pub(crate) const SLOTS_PER_CHUNK: u64 = 16;

impl Kind {
    pub(crate) const ALL: [Kind; 6] =
        [Kind::Anon, Kind::Entry, Kind::Amap, Kind::Chunk, Kind::Object, Kind::Space];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Kind::Anon => "anons",
            Kind::Entry => "map entries",
            Kind::Amap => "amaps",
            Kind::Chunk => "amap slots",
            Kind::Object => "objects",
            Kind::Space => "address spaces",
        }
    }

    /// The same where `anonymous` says what memory is made of: objects are as many as there could be amaps, too.
    pub(crate) fn capacity_of(self, frames: usize, anonymous: &Anonymous) -> usize {
        match (anonymous, self) {
            (Anonymous::Shadows(_), Kind::Anon | Kind::Amap | Kind::Chunk) => 1,
            (Anonymous::Shadows(_), Kind::Object) => {
                Kind::Object.capacity(frames) + Kind::Amap.capacity(frames)
            }
            _ => self.capacity(frames),
        }
    }

    /// The most structures of this kind for `frames` pages of memory.
    pub(crate) fn capacity(self, frames: usize) -> usize {
        match self {
            Kind::Anon => frames + frames / 2 + 64,
            Kind::Entry => (frames / 8).clamp(256, 131_072),
            Kind::Amap => (frames / 8).clamp(256, 16384),
            Kind::Chunk => frames / 4 + 512,
            Kind::Object => (frames / 32).clamp(32, 8192),
            Kind::Space => (frames / 64).clamp(32, 1024),
        }
    }
}

/// Map entries of the kernel map: an upper bound of the address ranges that are allocated at one time.
pub(crate) fn kernel_entries(frames: usize) -> usize {
    (frames / 16).clamp(256, 16384)
}

/// Bytes of each structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StructureSizes {
    /// `vm_page`, one for each frame.
    pub page_bytes: usize,
    /// `vm_anon`.
    pub anon_bytes: usize,
    /// `vm_map_entry`.
    pub entry_bytes: usize,
    /// The fixed part of a `vm_amap`.
    pub amap_bytes: usize,
    /// One slot: its anon pointer and its share of the indices of used slots.
    pub slot_bytes: usize,
    /// `uvm_object`.
    pub object_bytes: usize,
    /// `vmspace`.
    pub space_bytes: usize,
}

impl StructureSizes {
    /// Those of FreeBSD 5 and NetBSD 1.6, the larger.
    pub const fn of(pointer: Width) -> StructureSizes {
        match pointer {
            Width::Four => StructureSizes {
                page_bytes: 72,
                anon_bytes: 24,
                entry_bytes: 72,
                amap_bytes: 64,
                slot_bytes: 8,
                object_bytes: 32,
                space_bytes: 256,
            },
            Width::Eight => StructureSizes {
                page_bytes: 120,
                anon_bytes: 40,
                entry_bytes: 128,
                amap_bytes: 64,
                slot_bytes: 16,
                object_bytes: 56,
                space_bytes: 384,
            },
        }
    }

    /// The same where `anonymous` says what memory is made of: 4.4BSD's `vm_object` has a shadow, a copy, a pager and
    /// their offsets, too.
    const fn with(self, pointer: Width, anonymous: &Anonymous) -> StructureSizes {
        let object_bytes = match (anonymous, pointer) {
            (Anonymous::Amaps, _) => self.object_bytes,
            (Anonymous::Shadows(_), Width::Four) => 68,
            (Anonymous::Shadows(_), Width::Eight) => 120,
        };
        StructureSizes { object_bytes, ..self }
    }

    pub(crate) const fn item_bytes(&self, kind: Kind) -> usize {
        match kind {
            Kind::Anon => self.anon_bytes,
            Kind::Entry => self.entry_bytes,
            Kind::Amap => self.amap_bytes,
            Kind::Chunk => self.slot_bytes * SLOTS_PER_CHUNK as usize,
            Kind::Object => self.object_bytes,
            Kind::Space => self.space_bytes,
        }
    }
}
