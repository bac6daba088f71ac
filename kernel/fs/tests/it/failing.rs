//! A write that fails, at each of its steps: what the file had before is there, and nothing of what another file had in
//! its blocks, however it grows.

use crate::common::*;
use pageferry_fs::*;
use std::ops::Range;

/// A store of which one write fails, behind so many that do not.
struct Failing<'a> {
    store: &'a mut Cached<MemoryDevice>,
    left: Option<u32>,
}

impl Store for Failing<'_> {
    fn len_bytes(&self) -> u64 {
        self.store.len_bytes()
    }

    fn read(&mut self, at: u64, bytes: &mut [u8]) -> Result<(), IoError> {
        self.store.read(at, bytes)
    }

    fn write(&mut self, at: u64, bytes: &[u8], when: When) -> Result<(), IoError> {
        match self.left {
            Some(0) => {
                self.left = None;
                return Err(IoError::of_disk(at));
            }
            Some(left) => self.left = Some(left - 1),
            None => {}
        }
        self.store.write(at, bytes, when)
    }

    fn forget(&mut self, bytes: Range<u64>) {
        self.store.forget(bytes);
    }

    fn flush(&mut self, bytes: Range<u64>) -> Result<(), IoError> {
        self.store.flush(bytes)
    }
}

#[test]
fn no_other_files_bytes_come_to_light_where_a_write_fails() {
    for format in [blocks_of(512), fragments_of(1024, 512), fragments_of(4096, 512)] {
        no_bytes_come_to_light(format);
    }
}

fn no_bytes_come_to_light(format: Format) {
    const BLOCK: usize = 512;
    let written_bytes = 4 * format.block_bytes as usize;
    // At the end, within direct blocks and where indirect ones are needed; and in holes.
    let ends = [0, 10, BLOCK, 10 * BLOCK + 7, 138 * BLOCK].map(|size| (size, size));
    let holes = [2, 10, 137].map(|block| (1, block * BLOCK + 100));
    for (size, at) in ends.into_iter().chain(holes) {
        let mut failed = 0;
        for left in 0.. {
            let mut side = Side::new(1 << 20, format, 4096, None);
            let root = side.volume.root();
            let file = side.volume.make(&mut side.store, root, b"file", Kind::File).unwrap();
            assert_eq!(side.volume.write(&mut side.store, file, 0, &vec![1; size]), Ok(size));
            let long = if at > size { 200 * BLOCK } else { size };
            side.volume.truncate(&mut side.store, file, long as u64).unwrap();
            let mut store = Failing { store: &mut side.store, left: Some(left) };
            let written = side.volume.write(&mut store, file, at as u64, &vec![2; written_bytes]);
            if store.left.is_some() {
                assert_eq!(written, Ok(written_bytes));
                break;
            }
            failed += 1;
            let len = side.volume.stat(&mut side.store, file).unwrap().size_bytes as usize;
            // The last write is that of the length, with all bytes there.
            let all = long.max(at + written_bytes);
            let told = written.as_ref().map_or(long, |done| long.max(at + done));
            assert!(len == told || len == all, "{written:?} of a file of {long} bytes makes it {len} long");
            side.volume.truncate(&mut side.store, file, 250 * BLOCK as u64).unwrap();
            let bytes = side.contents(file).unwrap();
            let wrong = bytes.iter().enumerate().position(|(i, byte)| {
                *byte != if i < size { 1 } else { 0 }
                    && !(*byte == 2 && (at..at + written_bytes).contains(&i))
            });
            assert_eq!(
                wrong, None,
                "write {left} fails: {written:?} of a file of {long} bytes, from {at} on"
            );
            side.volume.sync(&mut side.store).unwrap();
            // What was written of the maps and what was not may differ.
            let problems = check(&mut side.store).unwrap().problems;
            assert!(problems.iter().all(|problem| problem.weight == Weight::Leftover), "{problems:?}");
        }
        assert!(failed > 3, "{failed} writes failed");
    }
}
