//! What the loader tells: memory, the command line, a module, and where ACPI's tables are.
//!
//! A PVH loader and GRUB say the same in two formats, anywhere in memory. It is read once, first of all, while the
//! first page tables map the lowest 4 GB, and copied: afterwards that memory is anybody's. What does not fit or makes
//! no sense is an error with a line that says so; nothing here panics.

use crate::start::{MAPPED_BYTES, MULTIBOOT2};
use core::ops::Range;

/// Bytes of a command line.
const MAX_LINE_BYTES: usize = 512;
/// Runs of memory; firmware names some ten.
const MAX_RUNS: usize = 64;

/// What a loader has told.
pub(crate) struct Handover {
    line: [u8; MAX_LINE_BYTES],
    line_bytes: usize,
    runs: [Range<u64>; MAX_RUNS],
    run_count: usize,
    /// The first module, if there is one.
    pub(crate) module: Option<Range<u64>>,
    /// The root of ACPI's tables, if the loader knows it.
    pub(crate) acpi_root: Option<u64>,
}

/// A value at a physical address, or nothing if that is not mapped. What type it has is the reader's business, so it is
/// one in which all bits are valid.
pub(crate) fn read<T: Number>(at: u64) -> Option<T> {
    if at == 0 || at > MAPPED_BYTES - 8 {
        return None;
    }
    // SAFETY: the first page tables, which are in use, map the lowest 4 GB at their physical addresses, and any bits
    // are a `T`. Volatile, because it is no memory of Rust's; it may lie anywhere, so byte by byte.
    Some(T::from_bytes(|i| unsafe { core::ptr::read_volatile((at + i as u64) as *const u8) }))
}

/// Numbers of the formats here.
pub(crate) trait Number {
    /// The number whose bytes are these.
    fn from_bytes(byte: impl Fn(usize) -> u8) -> Self;
}

impl Number for u8 {
    fn from_bytes(byte: impl Fn(usize) -> u8) -> u8 {
        byte(0)
    }
}

impl Number for u32 {
    fn from_bytes(byte: impl Fn(usize) -> u8) -> u32 {
        u32::from_le_bytes(core::array::from_fn(byte))
    }
}

impl Number for u64 {
    fn from_bytes(byte: impl Fn(usize) -> u8) -> u64 {
        u64::from_le_bytes(core::array::from_fn(byte))
    }
}

const OUT_OF_REACH: &str = "the loader tells of memory that is out of reach";

/// As [`read`], where the loader said that there is something.
fn told<T: Number>(at: u64) -> Result<T, &'static str> {
    read(at).ok_or(OUT_OF_REACH)
}

impl Handover {
    /// Reads what a loader has told that left `magic` in EAX and `at` in EBX.
    pub(crate) fn read(magic: u32, at: u64) -> Result<Handover, &'static str> {
        const PVH: u32 = 0x336e_c578;
        let mut handover = Handover {
            line: [0; MAX_LINE_BYTES],
            line_bytes: 0,
            runs: [const { 0..0 }; MAX_RUNS],
            run_count: 0,
            module: None,
            acpi_root: None,
        };
        if magic == MULTIBOOT2 {
            handover.read_multiboot2(at)?;
        } else if read(at) == Some(PVH) {
            handover.read_pvh(at)?;
        } else {
            return Err("this loader speaks neither PVH nor multiboot2");
        }
        Ok(handover)
    }

    fn read_pvh(&mut self, at: u64) -> Result<(), &'static str> {
        let modules: u32 = told(at + 12)?;
        if modules > 0 {
            let list: u64 = told(at + 16)?;
            self.take_module(told(list)?, told(list + 8)?)?;
        }
        self.take_line(told(at + 24)?)?;
        self.acpi_root = Some(told(at + 32)?).filter(|&root| root != 0);
        let version: u32 = told(at + 4)?;
        if version == 0 {
            return Err("this loader does not tell what memory there is");
        }
        let (map, entries): (u64, u32) = (told(at + 40)?, told(at + 48)?);
        for entry in 0..u64::from(entries) {
            let entry = map + 24 * entry;
            self.take_run(told(entry)?, told(entry + 8)?, told(entry + 16)?)?;
        }
        Ok(())
    }

    fn read_multiboot2(&mut self, at: u64) -> Result<(), &'static str> {
        let total: u32 = told(at)?;
        let end = at + u64::from(total);
        let mut tag = at + 8;
        while tag + 8 <= end {
            let (kind, size): (u32, u32) = (told(tag)?, told(tag + 4)?);
            match kind {
                0 => break,
                1 => self.take_line(tag + 8)?,
                3 if self.module.is_none() => {
                    let (from, to): (u32, u32) = (told(tag + 8)?, told(tag + 12)?);
                    self.take_module(from.into(), u64::from(to).saturating_sub(from.into()))?;
                }
                6 => {
                    let entry_bytes: u32 = told(tag + 8)?;
                    let mut entry = tag + 16;
                    while entry_bytes >= 24 && entry + u64::from(entry_bytes) <= tag + u64::from(size) {
                        self.take_run(told(entry)?, told(entry + 8)?, told(entry + 16)?)?;
                        entry += u64::from(entry_bytes);
                    }
                }
                // The old root and the new one: copies, in the tag.
                14 | 15 => self.acpi_root = Some(tag + 8),
                _ => {}
            }
            tag += u64::from(size.max(8)).next_multiple_of(8);
        }
        Ok(())
    }

    fn take_line(&mut self, at: u64) -> Result<(), &'static str> {
        if at == 0 {
            return Ok(());
        }
        for i in 0.. {
            match told(at + i as u64)? {
                0 => break,
                byte if i < MAX_LINE_BYTES => self.line[i] = byte,
                _ => return Err("the command line is longer than 512 bytes"),
            }
            self.line_bytes = i + 1;
        }
        Ok(())
    }

    fn take_module(&mut self, at: u64, len_bytes: u64) -> Result<(), &'static str> {
        let end = at.checked_add(len_bytes).filter(|&end| end <= MAPPED_BYTES).ok_or(OUT_OF_REACH)?;
        self.module = Some(at..end);
        Ok(())
    }

    fn take_run(&mut self, at: u64, len_bytes: u64, kind: u32) -> Result<(), &'static str> {
        const MEMORY: u32 = 1;
        if kind == MEMORY {
            let run =
                self.runs.get_mut(self.run_count).ok_or("the loader tells of more than 64 runs of memory")?;
            *run = at..at.saturating_add(len_bytes);
            self.run_count += 1;
        }
        Ok(())
    }

    /// The command line. What is no UTF-8 is left out.
    pub(crate) fn line(&self) -> &str {
        let line = &self.line[..self.line_bytes];
        core::str::from_utf8(line)
            .unwrap_or_else(|e| core::str::from_utf8(&line[..e.valid_up_to()]).expect("valid up to there"))
    }

    /// The end of the memory that begins at 1 MB or below and has no hole behind that.
    pub(crate) fn memory_end(&self) -> u64 {
        const MB: u64 = 1 << 20;
        let mut end = MB;
        // Firmware may have cut it into runs, in any order.
        while let Some(run) = self.runs[..self.run_count].iter().find(|run| run.start <= end && run.end > end)
        {
            end = run.end;
        }
        end.min(MAPPED_BYTES)
    }
}
