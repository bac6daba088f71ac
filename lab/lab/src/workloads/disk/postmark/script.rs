//! What PostMark 1.5 does, without doing it: which file is made, read, made longer or removed next, and how long it is
//! then.
//!
//! The slots of the table of files are twice as many as the files at first; a new file takes the slot behind the last
//! one that was taken, or else the first that is free. Everything else is drawn. Block sizes are the defaults (512
//! bytes), sizes 500 to 10,000 bytes, reads and appends are as likely, creations and deletions as well; there are no
//! subdirectories.

use super::random::Random;

pub(super) const MIN_BYTES: u64 = 500;
pub(super) const MAX_BYTES: u64 = 10_000;
const BIAS: u64 = 5;

/// One thing that is done to a file: the slot and the file's number, which is its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    Create {
        slot: usize,
        name: u64,
        bytes: usize,
    },
    Read {
        slot: usize,
        name: u64,
        bytes: usize,
    },
    /// `bytes` more, none if it is long enough.
    Append {
        slot: usize,
        name: u64,
        bytes: usize,
    },
    Delete {
        slot: usize,
        name: u64,
    },
}

/// What was done so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Counts {
    pub(super) created: u64,
    pub(super) read: u64,
    pub(super) appended: u64,
    pub(super) deleted: u64,
    pub(super) bytes_read: u64,
    pub(super) bytes_written: u64,
    /// What the files that there are take, in whole fragments.
    pub(super) live_bytes: u64,
    /// The most that they took at once.
    pub(super) max_live_bytes: u64,
}

#[derive(Clone, Copy)]
struct File {
    name: u64,
    bytes: u64,
}

pub(super) struct Script {
    random: Random,
    slots: Vec<Option<File>>,
    cursor: usize,
    names: u64,
    pub(super) counts: Counts,
    /// What is written: letters and signs.
    pub(super) source: Vec<u8>,
    fragment_bytes: u64,
}

impl Script {
    pub(super) fn new(seed: u32, files: usize, fragment_bytes: u32) -> Script {
        let mut random = Random::new(seed);
        let source = (0..2 * MAX_BYTES).map(|_| 32 + random.below(95) as u8).collect();
        Script {
            random,
            slots: vec![None; 2 * files],
            cursor: 0,
            names: 0,
            counts: Counts::default(),
            source,
            fragment_bytes: u64::from(fragment_bytes),
        }
    }

    /// Fills, grows or empties a slot.
    fn set(&mut self, slot: usize, file: Option<File>) {
        let taken =
            |file: Option<File>| file.map_or(0, |file| file.bytes.next_multiple_of(self.fragment_bytes));
        let (before, after) = (taken(self.slots[slot]), taken(file));
        self.slots[slot] = file;
        self.counts.live_bytes = self.counts.live_bytes - before + after;
        self.counts.max_live_bytes = self.counts.max_live_bytes.max(self.counts.live_bytes);
    }

    pub(super) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Makes a file, if there is a slot.
    pub(super) fn create(&mut self) -> Option<Step> {
        let at_cursor = self.slots.get(self.cursor).is_some_and(Option::is_none);
        let slot = if at_cursor { self.cursor } else { self.slots.iter().position(Option::is_none)? };
        self.cursor = slot + 1;
        let bytes = MIN_BYTES + self.random.below(MAX_BYTES - MIN_BYTES);
        self.names += 1;
        self.set(slot, Some(File { name: self.names, bytes }));
        self.counts.created += 1;
        self.counts.bytes_written += bytes;
        Some(Step::Create { slot, name: self.names, bytes: bytes as usize })
    }

    /// A file that there is.
    fn pick(&mut self) -> (usize, File) {
        loop {
            let slot = self.random.below(self.slots.len() as u64) as usize;
            if let Some(file) = self.slots[slot] {
                return (slot, file);
            }
        }
    }

    /// Takes the file in a slot away, if there is one.
    pub(super) fn delete(&mut self, slot: usize) -> Option<Step> {
        let file = self.slots[slot]?;
        self.set(slot, None);
        self.counts.deleted += 1;
        Some(Step::Delete { slot, name: file.name })
    }

    /// A transaction: a file is read or made longer, and one is made or taken away.
    pub(super) fn transaction(&mut self) -> [Option<Step>; 2] {
        // The last file may be gone.
        if self.slots.iter().all(Option::is_none) {
            return [None, None];
        }
        let reads = self.random.below(10) < BIAS;
        let (slot, file) = self.pick();
        let first = if reads {
            self.counts.read += 1;
            self.counts.bytes_read += file.bytes;
            Step::Read { slot, name: file.name, bytes: file.bytes as usize }
        } else {
            let more = if file.bytes < MAX_BYTES { self.random.below(MAX_BYTES - file.bytes) + 1 } else { 0 };
            if more > 0 {
                self.set(slot, Some(File { bytes: file.bytes + more, ..file }));
                self.counts.appended += 1;
                self.counts.bytes_written += more;
            }
            Step::Append { slot, name: file.name, bytes: more as usize }
        };
        let second = if self.random.below(10) < BIAS {
            self.create()
        } else {
            let (slot, _) = self.pick();
            self.delete(slot)
        };
        [Some(first), second]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All of a run; what was done, what of it in transactions, and the numbers drawn.
    fn run(files: usize, transactions: u64) -> (Counts, Counts, u64) {
        let mut script = Script::new(42, files, 2048);
        for _ in 0..files {
            script.create();
        }
        let before = script.counts;
        for _ in 0..transactions {
            script.transaction();
        }
        let behind = script.counts;
        for slot in 0..script.slots() {
            script.delete(slot);
        }
        let mixed = Counts {
            created: behind.created - before.created,
            deleted: behind.deleted - before.deleted,
            ..behind
        };
        (script.counts, mixed, script.random.draws())
    }

    /// Counted in the output of the program itself: Debian's 1.53-2, and a build of 1.5.
    #[test]
    fn it_does_what_the_program_does() {
        for (
            files,
            transactions,
            created,
            mixed,
            read,
            appended,
            deleted,
            bytes_read,
            bytes_written,
            draws,
        ) in [
            (500, 500, 764, 264, 243, 257, 236, 1_430_770, 4_662_068, 23_479),
            (1000, 50_000, 26_014, 25_014, 24_868, 24_880, 24_986, 168_976_432, 176_555_840, 322_766),
            (20_000, 50_000, 45_093, 25_093, 24_789, 25_184, 24_907, 151_053_776, 285_079_691, 339_953),
            (20_000, 100_000, 70_128, 50_128, 49_656, 50_199, 49_872, 318_197_777, 457_377_596, 638_476),
        ] {
            let (all, in_mix, drawn) = run(files, transactions);
            assert_eq!((all.created, in_mix.created), (created, mixed));
            assert_eq!((all.read, all.appended), (read, appended));
            assert_eq!((in_mix.deleted, all.deleted), (deleted, created));
            assert_eq!((all.bytes_read, all.bytes_written, drawn), (bytes_read, bytes_written, draws));
            assert_eq!(all.live_bytes, 0);
        }
    }

    #[test]
    fn the_first_sizes_are_those_of_the_program() {
        let mut script = Script::new(42, 5, 2048);
        let sizes = [0; 5].map(|_| match script.create() {
            Some(Step::Create { bytes, .. }) => bytes,
            other => panic!("{other:?}"),
        });
        assert_eq!(sizes, [1390, 4732, 3583, 6507, 9640]);
    }
}
