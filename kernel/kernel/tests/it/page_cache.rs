//! Mappings of files of the volume that are shared: what is stored through them, read, written and cut by calls, and
//! found on the disk afterwards is one file; beside files in memory, and beside an array of bytes.

use crate::common::*;
use pageferry_hal::*;
use pageferry_kernel::*;
use pageferry_model::Schedule;
use pageferry_vm::{Inherit, Madvise, MapAddr};
use proptest::prelude::*;

const DISK: u64 = 2 << 20;
const RW: OpenFlags = OpenFlags::READ.union(OpenFlags::WRITE);
const MAKE: OpenFlags = RW.union(OpenFlags::CREATE);
const PAGE: usize = PAGE_SIZE;
/// Pages that are mapped, and that the file has at most.
const PAGES: usize = 8;

fn everywhere(schedule: Schedule, init: impl Fn(&U) + Clone + 'static) {
    for (what, name, config) in kernels() {
        println!("{what}");
        run(name, schedule, config, init.clone());
    }
}

fn with_volume(init: impl Fn(&U) + Clone + 'static) {
    everywhere(Schedule::Timed, move |u| {
        u.attach_memory_disk(DISK).unwrap();
        u.make_volume(VolumeFormat::of_blocks(1024)).unwrap();
        init(u);
        whole(u);
    });
}

/// Unmounts, and has the disk looked at by the checker.
fn whole(u: &U) {
    u.unmount().unwrap();
    let fd = u.open("/dev/md0", OpenFlags::READ).unwrap();
    let buffer = u.map(DISK as usize, Prot::RW, Inherit::Copy).unwrap();
    assert_eq!(u.read(fd, buffer, DISK as usize), Ok(DISK as usize));
    let mut bytes = vec![0; DISK as usize];
    u.load(buffer, &mut bytes);
    u.close(fd).unwrap();
    let mut store = pageferry_fs::Cached::new(pageferry_fs::MemoryDevice::from_bytes(bytes));
    let report = pageferry_fs::check(&mut store).unwrap();
    assert!(report.is_clean() && report.unmounted, "{:?}", report.problems);
    u.detach_memory_disk().unwrap();
}

fn bytes(tag: u8, len: usize) -> Vec<u8> {
    (0..len).map(|i| tag.wrapping_add((i % 251) as u8)).collect()
}

fn loaded(u: &U, at: Va, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    u.load(at, &mut bytes);
    bytes
}

/// A file with bytes in it, and a buffer that is no mapping of it.
fn file(u: &U, name: &str, contents: &[u8]) -> (Fd, Va) {
    let buffer = u.map(PAGES * PAGE, Prot::RW, Inherit::Copy).unwrap();
    let fd = u.open(name, MAKE).unwrap();
    u.store(buffer, contents);
    assert_eq!(u.write(fd, buffer, contents.len()), Ok(contents.len()));
    (fd, buffer)
}

fn mapped(u: &U, fd: Fd) -> Va {
    u.map_file(fd, 0, MapAddr::Anywhere, PAGES * PAGE, Prot::RW, true).unwrap()
}

#[test]
fn a_shared_mapping_and_calls_see_one_file() {
    with_volume(|u| {
        let (fd, buffer) = file(u, "/mnt/file", &bytes(1, 2 * PAGE + 100));
        let at = mapped(u, fd);
        assert!(loaded(u, at, 2 * PAGE + 100) == bytes(1, 2 * PAGE + 100));
        assert!(loaded(u, at + (2 * PAGE + 100), PAGE - 100).iter().all(|&byte| byte == 0), "behind the end");
        u.store(at + PAGE, b"stored");
        assert_eq!(u.read_at(fd, PAGE as u64, buffer, 6), Ok(6));
        assert_eq!(loaded(u, buffer, 6), b"stored");
        u.store(buffer, b"written");
        assert_eq!(u.write_at(fd, 5, buffer, 7), Ok(7));
        assert_eq!(loaded(u, at + 5, 7), b"written");
        // A child has it, too.
        let child = u.fork("child", Box::new(move |u: &U| u.store(at, b"child"))).unwrap();
        assert_eq!(u.wait(), Ok(child));
        assert_eq!(u.read_at(fd, 0, buffer, 12), Ok(12));
        assert_eq!(loaded(u, buffer, 12), b"childwritten");
        // It grows, and what a store had left behind its end is clear.
        u.store(at + (2 * PAGE + 200), b"beyond");
        u.truncate(fd, 3 * PAGE as u64).unwrap();
        assert_eq!(loaded(u, at + (2 * PAGE + 200), 6), [0; 6]);
        u.truncate(fd, 10).unwrap();
        u.truncate(fd, PAGE as u64).unwrap();
        assert_eq!(loaded(u, at, 16), [&b"childwrit"[..], b"t", &[0; 6]].concat());
        u.unmap(at, PAGES * PAGE).unwrap();
        u.close(fd).unwrap();
    });
}

#[test]
fn what_was_stored_is_on_the_disk_when_it_is_mounted_again() {
    with_volume(|u| {
        let (fd, buffer) = file(u, "/mnt/file", &bytes(2, 3 * PAGE));
        let at = mapped(u, fd);
        u.store(at + 7, b"mapped");
        u.close(fd).unwrap();
        assert_eq!(u.unmount(), Err(Errno::Busy), "it is mapped");
        u.store(at + 2 * PAGE, b"later");
        u.unmap(at, PAGES * PAGE).unwrap();
        u.unmount().unwrap();
        u.mount().unwrap();
        let fd = u.open("/mnt/file", OpenFlags::READ).unwrap();
        assert_eq!(u.read(fd, buffer, 4 * PAGE), Ok(3 * PAGE));
        let mut expected = bytes(2, 3 * PAGE);
        expected[7..13].copy_from_slice(b"mapped");
        expected[2 * PAGE..2 * PAGE + 5].copy_from_slice(b"later");
        assert!(loaded(u, buffer, 3 * PAGE) == expected);
        assert_eq!(
            u.map_file(fd, 0, MapAddr::Anywhere, PAGE, Prot::RW, true),
            Err(Errno::Access),
            "it is not open to be written"
        );
        u.close(fd).unwrap();
    });
}

#[test]
fn a_name_that_goes_takes_nothing_from_who_has_it_mapped() {
    with_volume(|u| {
        let (fd, _) = file(u, "/mnt/file", &bytes(3, PAGE));
        let at = mapped(u, fd);
        u.unlink("/mnt/file").unwrap();
        u.close(fd).unwrap();
        assert!(loaded(u, at, PAGE) == bytes(3, PAGE));
        u.store(at, b"still");
        let fd = u.open("/mnt/file", MAKE).unwrap();
        assert_eq!(u.file_size(fd), Ok(0), "another file");
        u.close(fd).unwrap();
        assert_eq!(loaded(u, at, 5), b"still");
        u.unmap(at, PAGES * PAGE).unwrap();
    });
}

#[test]
fn buffers_that_are_mappings_of_the_volume_wait_for_nothing() {
    with_volume(|u| {
        let (fd, buffer) = file(u, "/mnt/a", &bytes(4, 4 * PAGE));
        let (other, _) = file(u, "/mnt/b", &bytes(5, 4 * PAGE));
        let (a, b) = (mapped(u, fd), mapped(u, other));
        // Into itself, from another, and from the disk itself.
        assert_eq!(u.read_at(fd, 9, a + 2 * PAGE, PAGE), Ok(PAGE));
        assert!(loaded(u, a + 2 * PAGE, PAGE) == bytes(4, 4 * PAGE)[9..PAGE + 9]);
        assert_eq!(u.write_at(fd, 0, b + PAGE, 2 * PAGE), Ok(2 * PAGE));
        assert!(loaded(u, a, 2 * PAGE) == bytes(5, 4 * PAGE)[PAGE..3 * PAGE]);
        assert_eq!(u.write_at(other, 3 * PAGE as u64, b, 3), Ok(3));
        let disk = u.open("/dev/md0", OpenFlags::READ).unwrap();
        assert_eq!(u.read_at(disk, 0, b, 4 * PAGE), Ok(4 * PAGE));
        assert_eq!(u.read_at(disk, 0, buffer, 4 * PAGE), Ok(4 * PAGE));
        assert!(loaded(u, b, 4 * PAGE)[..512] == loaded(u, buffer, 512));
        u.close(disk).unwrap();
        for (fd, at) in [(fd, a), (other, b)] {
            u.unmap(at, PAGES * PAGE).unwrap();
            u.close(fd).unwrap();
        }
    });
}

#[test]
fn a_write_that_finds_the_volume_full_ends_where_the_space_does() {
    with_volume(|u| {
        let (fd, _) = file(u, "/mnt/mapped", &bytes(6, PAGE));
        let at = mapped(u, fd);
        let (big, buffer) = file(u, "/mnt/big", &bytes(7, PAGES * PAGE));
        let mut len = (PAGES * PAGE) as u64;
        let last = loop {
            match u.write_at(big, len, buffer, PAGES * PAGE) {
                Ok(written) => len += written as u64,
                Err(error) => break error,
            }
        };
        assert_eq!((last, u.file_size(big)), (Errno::NoSpace, Ok(len)));
        assert!(len > DISK / 2 && len < DISK);
        let tail = (len as usize) % (PAGES * PAGE);
        assert_eq!(u.read_at(big, len - tail as u64, buffer, PAGES * PAGE), Ok(tail));
        assert!(loaded(u, buffer, tail) == bytes(7, tail));
        u.close(big).unwrap();
        u.unlink("/mnt/big").unwrap();
        u.unmap(at, PAGES * PAGE).unwrap();
        u.close(fd).unwrap();
    });
}

#[test]
fn pages_of_a_file_that_is_sent_are_lent_and_stay_as_they_were() {
    with_volume(|u| {
        let (fd, buffer) = file(u, "/mnt/file", &bytes(8, 2 * PAGE + 77));
        let (here, there) = u.socket_pair().unwrap();
        let lent = || u.machine().snapshot().counter(KernelCounter::PagesLent);
        let before = lent();
        assert_eq!(u.send_file(here, fd, 0, 1 << 20, SendMode::Loan), Ok(2 * PAGE + 77));
        assert_eq!(lent() - before, 3);
        u.store(buffer, &[0; PAGE]);
        assert_eq!(u.write_at(fd, 100, buffer, PAGE), Ok(PAGE));
        u.truncate(fd, 5000).unwrap();
        let mut got = Vec::new();
        while got.len() < 2 * PAGE + 77 {
            let len = u.read(there, buffer, PAGE).unwrap();
            got.extend(loaded(u, buffer, len));
        }
        assert!(got == bytes(8, 2 * PAGE + 77), "what was sent is what was there");
        assert_eq!(u.read_at(fd, 100, buffer, 2 * PAGE), Ok(4900));
        assert_eq!(loaded(u, buffer, 4), [0; 4]);
        u.close(here).unwrap();
        u.close(there).unwrap();
        u.close(fd).unwrap();
    });
}

/// What is done to a file that is mapped.
#[derive(Clone, Debug)]
enum Step {
    Write {
        at: usize,
        len: usize,
        tag: u8,
    },
    Append {
        len: usize,
        tag: u8,
    },
    Read {
        at: usize,
        len: usize,
    },
    Store {
        at: usize,
        len: usize,
        tag: u8,
    },
    Load {
        at: usize,
        len: usize,
    },
    /// A call whose buffer is the mapping.
    ReadToMapping {
        at: usize,
        to: usize,
        len: usize,
    },
    WriteFromMapping {
        at: usize,
        from: usize,
        len: usize,
    },
    Truncate {
        len: usize,
    },
    SyncFile,
    SyncMemory,
    MapAgain,
    OpenAgain,
    /// Memory is short: what can go out does.
    Reclaim,
}

fn step() -> impl Strategy<Value = Step> {
    let place = || 0..PAGES * PAGE;
    let len = || prop_oneof![1..200_usize, 1..3 * PAGE, Just(PAGE)];
    prop_oneof![
        4 => (place(), len(), any::<u8>()).prop_map(|(at, len, tag)| Step::Write { at, len, tag }),
        1 => (len(), any::<u8>()).prop_map(|(len, tag)| Step::Append { len, tag }),
        3 => (place(), len()).prop_map(|(at, len)| Step::Read { at, len }),
        5 => (place(), len(), any::<u8>()).prop_map(|(at, len, tag)| Step::Store { at, len, tag }),
        3 => (place(), len()).prop_map(|(at, len)| Step::Load { at, len }),
        2 => (place(), place(), len()).prop_map(|(at, to, len)| Step::ReadToMapping { at, to, len }),
        2 => (place(), place(), len()).prop_map(|(at, from, len)| Step::WriteFromMapping { at, from, len }),
        2 => place().prop_map(|len| Step::Truncate { len }),
        1 => Just(Step::SyncFile),
        1 => Just(Step::SyncMemory),
        1 => Just(Step::MapAgain),
        1 => Just(Step::OpenAgain),
        2 => Just(Step::Reclaim),
    ]
}

/// A file as a program has it, and what must be in it.
struct Subject {
    name: &'static str,
    fd: Fd,
    at: Va,
    buffer: Va,
    model: Vec<u8>,
}

impl Subject {
    fn new(u: &U, name: &'static str) -> Subject {
        let (fd, buffer) = file(u, name, &[]);
        Subject { name, fd, at: mapped(u, fd), buffer, model: Vec::new() }
    }

    /// What of `len` bytes from `at` on is in the file.
    fn there(&self, at: usize, len: usize) -> usize {
        len.min(self.model.len().saturating_sub(at))
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        let end = self.model.len().max(at + bytes.len());
        self.model.resize(end, 0);
        self.model[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn step(&mut self, u: &U, step: &Step) {
        let max_bytes = PAGES * PAGE;
        match *step {
            Step::Write { at, len, tag } => {
                let contents = bytes(tag, len.min(max_bytes - at));
                u.store(self.buffer, &contents);
                assert_eq!(u.write_at(self.fd, at as u64, self.buffer, contents.len()), Ok(contents.len()));
                self.put(at, &contents);
            }
            Step::Append { len, tag } => {
                let contents = bytes(tag, len.min(max_bytes - self.model.len()));
                let fd = u.open(self.name, RW | OpenFlags::APPEND).unwrap();
                u.store(self.buffer, &contents);
                assert_eq!(u.write(fd, self.buffer, contents.len()), Ok(contents.len()));
                u.close(fd).unwrap();
                self.put(self.model.len(), &contents);
            }
            Step::Read { at, len } => {
                let there = self.there(at, len);
                assert_eq!(u.read_at(self.fd, at as u64, self.buffer, len), Ok(there));
                assert!(loaded(u, self.buffer, there) == self.model[at.min(self.model.len())..][..there]);
            }
            Step::Store { at, len, tag } => {
                let contents = bytes(tag, self.there(at, len));
                u.store(self.at + at, &contents);
                if !contents.is_empty() {
                    self.put(at, &contents);
                }
            }
            Step::Load { at, len } => {
                let there = self.there(at, len);
                assert!(loaded(u, self.at + at, there) == self.model[at.min(self.model.len())..][..there]);
            }
            Step::ReadToMapping { at, to, len } => {
                // Bytes that overlap go page by page, in an order that is nobody's business.
                let len = self.there(at, len).min(self.there(to, len));
                if at.abs_diff(to) < len + PAGE {
                    return;
                }
                assert_eq!(u.read_at(self.fd, at as u64, self.at + to, len), Ok(len));
                let moved = self.model[at.min(self.model.len())..][..len].to_vec();
                if len > 0 {
                    self.put(to, &moved);
                }
            }
            Step::WriteFromMapping { at, from, len } => {
                let len = self.there(from, len).min(max_bytes - at);
                if at.abs_diff(from) < len + PAGE {
                    return;
                }
                let moved = self.model[from.min(self.model.len())..][..len].to_vec();
                assert_eq!(u.write_at(self.fd, at as u64, self.at + from, len), Ok(len));
                if len > 0 {
                    self.put(at, &moved);
                }
            }
            Step::Truncate { len } => {
                u.truncate(self.fd, len as u64).unwrap();
                self.model.resize(len, 0);
            }
            Step::SyncFile => u.sync_file(self.fd).unwrap(),
            Step::SyncMemory => u.sync_memory(self.at, max_bytes).unwrap(),
            Step::MapAgain => {
                u.unmap(self.at, max_bytes).unwrap();
                self.at = mapped(u, self.fd);
            }
            Step::Reclaim => {
                u.advise(self.at, max_bytes, Madvise::DontNeed).unwrap();
                let vm = u.kernel().vm();
                let hoard = hoard(u, 4);
                vm.reclaim(u.thread());
                vm.free_kernel_pages(hoard);
            }
            Step::OpenAgain => {
                u.close(self.fd).unwrap();
                self.fd = u.open(self.name, RW).unwrap();
            }
        }
    }

    /// All of it is what it must be, by a call and in the mapping.
    fn check(&self, u: &U) {
        let len = self.model.len();
        assert_eq!(u.file_size(self.fd), Ok(len as u64), "{}", self.name);
        assert_eq!(u.read_at(self.fd, 0, self.buffer, PAGES * PAGE), Ok(len));
        let by_call = loaded(u, self.buffer, len);
        let wrong = by_call.iter().zip(&self.model).position(|(a, b)| a != b);
        assert_eq!(wrong, None, "a byte of {}, by a call", self.name);
        let there = loaded(u, self.at, len);
        let wrong = there.iter().zip(&self.model).position(|(a, b)| a != b);
        assert_eq!(wrong, None, "a byte of {}, in the mapping", self.name);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn a_mapped_file_is_an_array_of_bytes(
        steps in prop::collection::vec(step(), 1..60),
        format in prop_oneof![
            Just(VolumeFormat::of_blocks(1024)),
            Just(VolumeFormat { block_bytes: 4096, fragment_bytes: 512 }),
            Just(VolumeFormat::default()),
        ],
    ) {
        let (name, config) = ("xeon-mp", paging(sf_buf(64), 512));
        run(name, Schedule::Timed, config, move |u| {
            u.attach_memory_disk(DISK).unwrap();
            u.make_volume(format).unwrap();
            let mut files = [Subject::new(u, "/mnt/file"), Subject::new(u, "/file")];
            for step in &steps {
                for file in &mut files {
                    file.step(u, step);
                }
            }
            for file in files {
                file.check(u);
                u.unmap(file.at, PAGES * PAGE).unwrap();
                u.close(file.fd).unwrap();
                if file.name.starts_with("/mnt") {
                    u.unmount().unwrap();
                    u.mount().unwrap();
                    let fd = u.open(file.name, OpenFlags::READ).unwrap();
                    let len = file.model.len();
                    assert_eq!(u.read(fd, file.buffer, PAGES * PAGE), Ok(len));
                    assert!(loaded(u, file.buffer, len) == file.model, "after it was mounted again");
                    u.close(fd).unwrap();
                } else {
                    u.unlink(file.name).unwrap();
                }
            }
            whole(u);
        });
    }
}
