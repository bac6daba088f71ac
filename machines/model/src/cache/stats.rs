//! What is counted, level by level and package by package.

/// What happened in one level of one package.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LevelStats {
    /// Look-ups that found the line.
    pub hits: u64,
    /// Look-ups that did not; each is an access of the next level, or of memory.
    pub misses: u64,
    /// Hits of stores that went on to the next level all the same; each is an access there, or of memory.
    pub write_throughs: u64,
    /// Lines that came in.
    pub fills: u64,
    /// Lines that had to leave for others.
    pub evictions: u64,
    /// Evictions of dirty lines.
    pub writebacks: u64,
    /// Lines taken away: by another package's store, by a flush, or by the level above from an exclusive one.
    pub removals: u64,
}

impl LevelStats {
    /// Look-ups on behalf of loads and stores.
    pub fn accesses(&self) -> u64 {
        self.hits + self.misses
    }
}

/// What happened between one package and the rest of the machine.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PackageStats {
    /// Loads and stores of the package's CPUs.
    pub accesses: u64,
    /// Lines read from memory.
    pub memory_reads: u64,
    /// Lines that came dirty from another package, or that one of the own complex had and the shared level lacked.
    pub transfers: u64,
    /// Lines that came from a package of the own complex, which had them newer than the shared level, or alone.
    pub near_transfers: u64,
    /// Stores that had to ask the other packages for their copies of a line that was here.
    pub upgrades: u64,
    /// Stores that no level takes in: they went to memory.
    pub memory_stores: u64,
    /// Dirty lines written to memory: evicted, flushed, or read by another package.
    pub memory_writebacks: u64,
}

/// Every count, at one moment.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct CacheStats {
    /// By package, then by level from the CPU outwards. What a complex shares counts for the package that used it last.
    pub levels: Vec<Vec<LevelStats>>,
    /// By package.
    pub packages: Vec<PackageStats>,
    /// The instruction caches, by package; empty where there are none.
    pub instruction: Vec<LevelStats>,
}

impl CacheStats {
    /// Lines read from memory by all packages.
    pub fn memory_reads(&self) -> u64 {
        self.packages.iter().map(|p| p.memory_reads).sum()
    }

    /// Lines or stores written to memory by all packages.
    pub fn memory_writes(&self) -> u64 {
        self.packages.iter().map(|p| p.memory_stores + p.memory_writebacks).sum()
    }

    /// Lines that moved dirty between packages.
    pub fn transfers(&self) -> u64 {
        self.packages.iter().map(|p| p.transfers).sum()
    }
}
