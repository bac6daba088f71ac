//! What a process has of the kernel, to be compared: descriptors, and memory without a name.

use std::collections::BTreeMap;

/// See the top of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ground {
    /// What each descriptor leads to, and how often.
    descriptors: BTreeMap<String, usize>,
    /// Mappings of memfds.
    mappings: Vec<String>,
}

impl Ground {
    /// As it is now.
    pub fn now() -> Ground {
        let mut descriptors = BTreeMap::new();
        for entry in std::fs::read_dir("/proc/self/fd").unwrap() {
            let link = std::fs::read_link(entry.unwrap().path());
            // The directory's own descriptor is closed by then; inode numbers would tell equals apart.
            let Ok(link) = link else { continue };
            let name = link.to_string_lossy().split(':').next().unwrap().to_owned();
            if !name.starts_with("/proc/") {
                *descriptors.entry(name).or_default() += 1;
            }
        }
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let of_memfds = maps.lines().filter(|line| line.contains("memfd:"));
        Ground { descriptors, mappings: of_memfds.map(str::to_owned).collect() }
    }

    /// Bytes of shared memory that are in this process's page tables, as the kernel counts them.
    pub fn shared_bytes() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("RssShmem:")).unwrap();
        line.split_ascii_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
    }

    /// Nothing is left of what came after `self`.
    pub fn check(&self) -> Result<(), String> {
        let now = Ground::now();
        if now != *self {
            return Err(format!("left behind: {now:?}, at first there was {self:?}"));
        }
        // The kernel's counters of a process are off by some pages for each CPU.
        let shared = Ground::shared_bytes();
        if shared > 2 << 20 {
            return Err(format!("{shared} bytes of shared memory are mapped, and by no mapping"));
        }
        Ok(())
    }
}
