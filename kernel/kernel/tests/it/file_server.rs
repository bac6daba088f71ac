//! A file server: a process that has the file system, asked through memory that is attached to one process at a time.
//! (What programs see of files, whoever has them, is in `volume`.)

use crate::common::*;
use crate::ispc::{
    PAGE, SERVICE, ant, ant_with_files, check, load, on_sh4, served, try_served, until_served,
};
use pageferry_hal::*;
use pageferry_kernel::*;
use pageferry_model::Schedule;
use pageferry_pmap::PmapCounter;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

const RW: OpenFlags = OpenFlags::READ.union(OpenFlags::WRITE);
const MAKE: OpenFlags = RW.union(OpenFlags::CREATE);
const ALL: [Method; 4] = [Method::Random, Method::Previous, Method::Proposed, Method::Migrating];
const BUFFER: usize = 40_000;

/// A volume of so many bytes.
pub fn mounted(u: &U, disk_bytes: u64) {
    u.attach_memory_disk(disk_bytes).unwrap();
    u.make_volume(VolumeFormat { block_bytes: 2048, fragment_bytes: 512 }).unwrap();
}

/// Numbers by a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }
}

/// A plain model of one directory, and of what is open.
#[derive(Default)]
struct Plain {
    names: BTreeMap<u64, u64>,
    files: BTreeMap<u64, Vec<u8>>,
    next: u64,
}

struct OpenFile {
    fd: Fd,
    file: u64,
    at: usize,
    readable: bool,
    writable: bool,
    appends: bool,
}

/// Makes file calls, right ones and wrong ones, beside the plain model; every answer goes into the log.
fn calls(u: &U, (dir, seed): (&str, u64), steps: u64, log: &RefCell<Vec<String>>) {
    u.mkdir(dir).unwrap();
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut plain = Plain::default();
    let mut open: Vec<OpenFile> = Vec::new();
    let buffer = map(u, BUFFER + PAGE);
    // Behind the buffer is nothing.
    u.unmap(buffer + BUFFER / PAGE * PAGE, BUFFER + PAGE - BUFFER / PAGE * PAGE).unwrap();
    let room = BUFFER / PAGE * PAGE;
    let say = |what: String| log.borrow_mut().push(what);
    for step in 0..steps {
        let name = dice.below(5);
        let path = format!("{dir}/{name}");
        let which = dice.below(open.len().max(1) as u64) as usize;
        match dice.below(16) {
            0..=2 => {
                let flags = [RW, MAKE, OpenFlags::READ, OpenFlags::WRITE, MAKE.union(OpenFlags::EXCLUSIVE)]
                    [dice.below(5) as usize];
                let more = [OpenFlags::empty(), OpenFlags::TRUNCATE, OpenFlags::APPEND];
                let flags = flags.union(more[dice.below(3) as usize]);
                let result = u.open(&path, flags);
                say(format!("{step} open {name} {flags:?}: {result:?}"));
                let known = plain.names.get(&name).copied();
                let (writes, exclusive) =
                    (flags.contains(OpenFlags::WRITE), flags.contains(OpenFlags::EXCLUSIVE));
                let expected = match known {
                    _ if flags.contains(OpenFlags::TRUNCATE) && !writes => Err(Errno::Invalid),
                    Some(_) if exclusive => Err(Errno::Exists),
                    Some(file) => Ok(file),
                    None if flags.contains(OpenFlags::CREATE) => Ok(plain.next),
                    None => Err(Errno::NoFile),
                };
                assert_eq!(result.map(|_| ()), expected.map(|_| ()), "step {step}");
                let (Ok(fd), Ok(file)) = (result, expected) else { continue };
                plain.next += u64::from(known.is_none());
                plain.names.insert(name, file);
                let bytes = plain.files.entry(file).or_default();
                if flags.contains(OpenFlags::TRUNCATE) {
                    bytes.clear();
                }
                let (readable, appends) =
                    (flags.contains(OpenFlags::READ), flags.contains(OpenFlags::APPEND));
                open.push(OpenFile { fd, file, at: 0, readable, writable: writes, appends });
            }
            3 => {
                let result = u.unlink(&path);
                say(format!("{step} unlink {name}: {result:?}"));
                assert_eq!(result.is_ok(), plain.names.remove(&name).is_some());
            }
            4 => {
                let size = plain.names.get(&name).map(|file| plain.files[file].len() as u64);
                let result = u.stat(&path);
                say(format!("{step} stat {name}: {result:?}"));
                assert_eq!(result.ok().map(|stat| stat.size_bytes), size, "step {step}");
            }
            5 => {
                let result = u.list(dir);
                say(format!("{step} list: {result:?}"));
                let mut names: Vec<String> = plain.names.keys().map(|name| name.to_string()).collect();
                let mut found: Vec<String> = result.unwrap().into_iter().map(|(name, _)| name).collect();
                names.sort();
                found.sort();
                assert_eq!(found, names);
            }
            _ if open.is_empty() => {
                say(format!("{step} read: {:?}", u.read(Fd(77), buffer, 1)));
            }
            6 => {
                let held = open.remove(which);
                say(format!("{step} close: {:?}", u.close(held.fd)));
                assert_eq!(u.file_size(held.fd), Err(Errno::BadFd));
            }
            7 => {
                let to = dice.below(30_000);
                say(format!("{step} seek {to}: {:?}", u.seek(open[which].fd, to)));
                open[which].at = to as usize;
            }
            8 => {
                let (size, held) = (dice.below(30_000), &open[which]);
                let result = u.truncate(held.fd, size);
                say(format!("{step} truncate {size}: {result:?}"));
                assert_eq!(result, if held.writable { Ok(()) } else { Err(Errno::BadFd) });
                if held.writable {
                    plain.files.get_mut(&held.file).unwrap().resize(size as usize, 0);
                }
            }
            9 => {
                let held = &open[which];
                let found = u.file_size(held.fd);
                say(format!("{step} size: {found:?}, sync: {:?}", u.sync_file(held.fd)));
                assert_eq!(found, Ok(plain.files[&held.file].len() as u64), "step {step}");
            }
            10..=12 => {
                // Some that the buffer has not, and some that the file has not.
                let len = dice.below(room as u64 + 3000) as usize;
                let from = dice.below(3) * (room as u64 - 5000) / 2;
                let offset = (dice.below(2) == 0).then(|| dice.below(30_000) as usize);
                let held = &mut open[which];
                let bytes = bytes(seed + step, 0, room - from as usize);
                u.store(buffer + from as usize, &bytes);
                let result = match offset {
                    Some(offset) => u.write_at(held.fd, offset as u64, buffer + from as usize, len),
                    None => u.write(held.fd, buffer + from as usize, len),
                };
                say(format!("{step} write {len} at {offset:?}: {result:?}"));
                let there = len.min(bytes.len());
                let whole = plain.files.get_mut(&held.file).unwrap();
                if !held.writable {
                    assert_eq!(result, Err(Errno::BadFd));
                    continue;
                }
                assert_eq!(result, Ok(there), "step {step}");
                let at = offset.unwrap_or(if held.appends { whole.len() } else { held.at });
                if there > 0 {
                    whole.resize(whole.len().max(at + there), 0);
                    whole[at..at + there].copy_from_slice(&bytes[..there]);
                }
                if offset.is_none() {
                    held.at = at + there;
                }
            }
            _ => {
                let len = dice.below(room as u64 + 3000) as usize;
                let from = dice.below(3) as usize * (room - 5000) / 2;
                let offset = (dice.below(2) == 0).then(|| dice.below(30_000) as usize);
                let held = &mut open[which];
                let result = match offset {
                    Some(offset) => u.read_at(held.fd, offset as u64, buffer + from, len),
                    None => u.read(held.fd, buffer + from, len),
                };
                say(format!("{step} read {len} at {offset:?}: {result:?}"));
                if !held.readable {
                    assert_eq!(result, Err(Errno::BadFd));
                    continue;
                }
                let whole = &plain.files[&held.file];
                let at = offset.unwrap_or(held.at).min(whole.len());
                let there = len.min(whole.len() - at).min(room - from);
                assert_eq!(result, Ok(there), "step {step}");
                let found = load(u, buffer + from, there);
                if let Some(first) = (0..there).find(|i| found[*i] != whole[at + i]) {
                    let last = (0..there).rfind(|i| found[*i] != whole[at + i]).unwrap();
                    panic!(
                        "step {step}: bytes {}..={} of {}: {:?}",
                        at + first,
                        at + last,
                        whole.len(),
                        log.borrow()
                    );
                }
                if offset.is_none() {
                    held.at += there;
                }
            }
        }
    }
    for held in open {
        u.close(held.fd).unwrap();
    }
}

/// One seeded program under the kernel's own file system, and under a server by every method: the same bytes, and the
/// same errors.
#[test]
fn answers_and_bytes_are_those_of_a_kernel_that_has_its_files_itself() {
    for seed in 1..4 {
        let log = Rc::new(RefCell::new(Vec::new()));
        let program = {
            let log = log.clone();
            move |u: &U| {
                mounted(u, 1 << 20);
                calls(u, ("/mnt/d", seed), 150, &log);
                u.unmount().unwrap();
                u.detach_memory_disk().unwrap();
            }
        };
        on_sh4(ant(Method::Proposed), program.clone());
        let own = log.take();
        assert!(own.len() > 100 && own.iter().any(|line| line.contains("BadFd")));
        for (name, method) in served() {
            let ended = try_served(name, Schedule::Timed, method, Planted::NONE, program.clone());
            sound(&ended, name);
            for (own, servers) in own.iter().zip(log.take()) {
                assert_eq!(*own, servers, "seed {seed}, {method:?} on {name}");
            }
        }
    }
}

/// A volume that fills up takes of a call what it has room for, and says how much that was.
#[test]
fn a_full_volume_has_what_calls_said_that_it_took() {
    let log = Rc::new(RefCell::new(Vec::new()));
    let program = {
        let log = log.clone();
        move |u: &U| {
            mounted(u, 1 << 20);
            let buffer = map(u, 8 * PAGE);
            for (name, len) in [("/mnt/a", 5 * PAGE + 77), ("/mnt/b", 7 * PAGE), ("/mnt/c", 300)] {
                let fd = u.open(name, MAKE).unwrap();
                let mut whole = 0;
                let error = loop {
                    u.store(buffer, &bytes(3, whole, len));
                    match u.write(fd, buffer, len) {
                        Ok(put) => {
                            assert!(put <= len);
                            whole += put;
                        }
                        Err(e) => break e,
                    }
                };
                assert_eq!((error, u.file_size(fd)), (Errno::NoSpace, Ok(whole as u64)), "{name}");
                u.seek(fd, 0).unwrap();
                for at in (0..whole).step_by(8 * PAGE) {
                    let there = (whole - at).min(8 * PAGE);
                    assert_eq!(u.read(fd, buffer, 8 * PAGE), Ok(there));
                    assert!(load(u, buffer, there) == bytes(3, at, there), "{name} from byte {at} on");
                }
                log.borrow_mut().push(whole);
                // Some room for the next.
                u.truncate(fd, whole as u64 / 2).unwrap();
                u.close(fd).unwrap();
            }
            u.unmount().unwrap();
            u.detach_memory_disk().unwrap();
        }
    };
    on_sh4(ant(Method::Proposed), program.clone());
    let own = log.take();
    assert!(own[0] > 500_000, "{own:?}");
    for (name, method) in served() {
        let ended = try_served(name, Schedule::Timed, method, Planted::NONE, program.clone());
        sound(&ended, name);
        assert_eq!(own, log.take(), "{method:?} on {name}");
    }
}

/// The bytes of a call go through attached memory: as often as the method says, and for as much as the data piece has.
#[test]
fn bytes_move_through_pieces_that_are_attached() {
    for method in ALL {
        on_sh4(ant_with_files(method, Planted::NONE), move |u| {
            mounted(u, 1 << 20);
            let buffer = map(u, 4 * PAGE);
            let fd = u.open("/mnt/file", MAKE).unwrap();
            u.store(buffer, &bytes(9, 0, 4 * PAGE));
            let count = |work: &mut dyn FnMut()| {
                let before = u.machine().snapshot();
                work();
                let spent = u.machine().snapshot().since(&before);
                let counters = [
                    KernelCounter::IspcRequests.metric(),
                    PmapCounter::IcaAttachments.metric(),
                    PmapCounter::IcaDetachments.metric(),
                ];
                counters.map(|c| spent.counter(c))
            };
            let wrote = count(&mut || assert_eq!(u.write(fd, buffer, 4 * PAGE), Ok(4 * PAGE)));
            u.seek(fd, 0).unwrap();
            u.store(buffer, &[0; 4 * PAGE]);
            let read = count(&mut || assert_eq!(u.read(fd, buffer, 4 * PAGE), Ok(4 * PAGE)));
            assert!(load(u, buffer, 4 * PAGE) == bytes(9, 0, 4 * PAGE));
            let little = count(&mut || assert_eq!(u.read_at(fd, 5, buffer, 100), Ok(100)));
            // Two requests of two pages and the control page: to the program, away, to the server and away where it has
            // none for ever, back, and kept.
            let times = if matches!(method, Method::Random | Method::Previous) { 3 } else { 2 };
            let (pages, few) = (2 * 3 * times, 2 * times);
            assert_eq!((wrote, read), ([2, pages, pages], [2, pages, pages]), "{method:?}");
            assert_eq!(little, [1, few, few], "a page of data for less than a page");
            // Between calls a program has no entry.
            check(u);
            let own = if method != Method::Random { u.kernel().config().ispc.unwrap().reserved } else { 0 };
            let others = if matches!(method, Method::Proposed | Method::Migrating) { 8 } else { 0 };
            let pieces: Vec<Va> =
                (0..own - others.min(own)).map(|_| u.ica_alloc(1, Wait::No).unwrap()).collect();
            if method != Method::Random {
                assert_eq!(u.file_size(fd), Err(Errno::NoMemory), "it has itself what it would wait for");
                check(u);
            }
            pieces.into_iter().for_each(|at| u.ica_free(at).unwrap());
            assert_eq!(u.file_size(fd), Ok(4 * PAGE as u64));
            u.close(fd).unwrap();
            u.unmount().unwrap();
        });
    }
}

/// Where the area is full of pieces that others only keep, those make way.
#[test]
fn kept_pieces_make_way() {
    on_sh4(ant_with_files(Method::Random, Planted::NONE), |u| {
        mounted(u, 1 << 20);
        let fd = u.open("/mnt/file", MAKE).unwrap();
        let over = Rc::new(Cell::new(false));
        for _ in 0..8 {
            let over = over.clone();
            fork(u, "keeps", move |u| {
                let buffer = map(u, PAGE);
                assert_eq!(u.read_at(fd, 0, buffer, 1), Ok(0));
                while !over.get() {
                    u.sleep_for(Cycles(1_000_000)).unwrap();
                }
                assert_eq!(u.read_at(fd, 0, buffer, 1), Ok(0));
            });
        }
        u.sleep_for(Cycles(60_000_000)).unwrap();
        let pieces: Vec<Va> = (0..).map_while(|_| u.ica_alloc(1, Wait::No).ok()).collect();
        assert!(pieces.len() >= 240, "{}", pieces.len());
        check(u);
        pieces.into_iter().for_each(|at| u.ica_free(at).unwrap());
        over.set(true);
        (0..8).for_each(|_| _ = u.wait().unwrap());
        u.close(fd).unwrap();
        u.unmount().unwrap();
    });
}

/// Threads of two clients are inside a server at once, and each makes a request as that server: the kernel keeps the
/// pieces of one, and gives those of the other back.
#[test]
fn a_process_keeps_the_pieces_of_one_request_however_many_it_makes_at_once() {
    let ended = try_served("xeon-mp", Schedule::Timed, Method::Migrating, Planted::NONE, |u| {
        mounted(u, 1 << 20);
        let buffer = map(u, PAGE);
        let fd = u.open("/mnt/file", MAKE).unwrap();
        assert_eq!(u.write(fd, buffer, PAGE), Ok(PAGE));
        let (inside, max_inside) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        let seen = max_inside.clone();
        let server = u.fork(
            "server",
            Box::new(move |u| {
                let buffer = map(u, PAGE);
                let procedure = move |u: &U, _: &Inquiry| {
                    inside.set(inside.get() + 1);
                    max_inside.set(max_inside.get().max(inside.get()));
                    assert_eq!(u.read_at(fd, 0, buffer, PAGE), Ok(PAGE));
                    inside.set(inside.get() - 1);
                };
                u.ispc_serve_by(SERVICE, Box::new(procedure)).unwrap();
                assert_eq!(u.ispc_receive(Wait::Yes), Err(Errno::Interrupted));
            }),
        );
        for _ in 0..2 {
            fork(u, "client", |u| {
                let control = u.ica_alloc(1, Wait::Yes).unwrap();
                until_served(u, control);
                (0..50).for_each(|_| u.ispc_request(SERVICE, control, None, Wait::Yes).unwrap());
            });
        }
        (0..2).for_each(|_| _ = u.wait().unwrap());
        assert_eq!(seen.get(), 2, "never two at once");
        u.kernel().check().unwrap();
        u.signal(server.unwrap()).unwrap();
        u.wait().unwrap();
        u.close(fd).unwrap();
        u.unmount().unwrap();
    });
    sound(&ended, "xeon-mp");
}

/// Programs may not speak to the server themselves, nor be it.
#[test]
fn the_servers_service_is_the_kernels() {
    on_sh4(ant_with_files(Method::Proposed, Planted::NONE), |u| {
        mounted(u, 1 << 20);
        let control = u.ica_alloc(1, Wait::Yes).unwrap();
        assert_eq!(u.ispc_request(u32::MAX, control, None, Wait::Yes), Err(Errno::Access));
        assert_eq!(u.ispc_post(u32::MAX, control, None), Err(Errno::Access));
        assert_eq!(u.ispc_serve(u32::MAX), Err(Errno::Access));
        assert_eq!(u.ispc_serve(SERVICE), Ok(()), "another is anybody's");
        let server = u.kernel().file_server().unwrap();
        // A signal is nothing to it.
        u.signal(server).unwrap();
        assert_eq!(u.list("/mnt"), Ok(vec![]));
        u.unmount().unwrap();
        assert_eq!(u.signal(server), Err(Errno::NoProcess));
        assert_eq!((u.kernel().file_server(), u.unmount()), (None, Err(Errno::Invalid)));
    });
}

/// The server is killed while others use it, at many moments: each is told, has its memory, and can go on with the next
/// server; all entries are free again, and the volume is repaired when it is mounted.
#[test]
fn a_server_that_is_killed_in_the_middle() {
    let seen = Rc::new(RefCell::new(BTreeMap::new()));
    for (name, method) in served() {
        for moment in 1..7u64 {
            let seen = seen.clone();
            let ended = try_served(name, Schedule::Timed, method, Planted::NONE, move |u| {
                mounted(u, 1 << 20);
                let kept = u.open("/mnt/kept", MAKE).unwrap();
                let buffer = map(u, BUFFER);
                u.store(buffer, &bytes(1, 0, 10_000));
                assert_eq!(u.write(kept, buffer, 10_000), Ok(10_000));
                u.sync_file(kept).unwrap();
                for number in 0..3u64 {
                    let seen = seen.clone();
                    fork(u, "user", move |u| {
                        let buffer = map(u, BUFFER);
                        let error = use_until_it_fails(u, number, buffer);
                        *seen.borrow_mut().entry(format!("{error:?}")).or_insert(0) += 1;
                        u.store(buffer, &[7; BUFFER]);
                    });
                }
                let server = u.kernel().file_server().unwrap();
                u.sleep_for(Cycles(300_000 + moment * 377_777)).unwrap();
                u.kill(server).unwrap();
                (0..3).for_each(|_| _ = u.wait().unwrap());
                check(u);
                // Until it has ended another cannot begin.
                while u.mount() == Err(Errno::Busy) {
                    u.yield_now().unwrap();
                }
                assert_ne!(u.kernel().file_server(), Some(server));
                assert_eq!(
                    u.read_at(kept, 0, buffer, 100),
                    Err(Errno::ConnectionReset),
                    "another opened that"
                );
                assert_eq!(u.seek(kept, 0), Err(Errno::ConnectionReset));
                u.close(kept).unwrap();
                let kept = u.open("/mnt/kept", RW).unwrap();
                assert_eq!(u.read(kept, buffer, BUFFER), Ok(10_000));
                assert!(load(u, buffer, 10_000) == bytes(1, 0, 10_000));
                u.close(kept).unwrap();
                u.unmount().unwrap();
                clean(u);
                u.detach_memory_disk().unwrap();
            });
            sound(&ended, &format!("{name}, {method:?}, moment {moment}"));
        }
    }
    let seen = seen.take();
    assert!(seen.get("ConnectionReset").is_some_and(|times| *times > 20), "{seen:?}");
}

/// Uses files until a call fails.
fn use_until_it_fails(u: &U, number: u64, buffer: Va) -> Errno {
    let path = format!("/mnt/{number}");
    let tries = || -> Result<(), Errno> {
        let fd = u.open(&path, MAKE.union(OpenFlags::TRUNCATE))?;
        loop {
            u.write(fd, buffer, BUFFER)?;
            u.seek(fd, 0)?;
            u.read(fd, buffer, BUFFER)?;
            u.truncate(fd, 0)?;
            u.seek(fd, 0)?;
        }
    };
    tries().unwrap_err()
}

/// The disk, looked at by the checker.
fn clean(u: &U) {
    let fd = u.open("/dev/md0", OpenFlags::READ).unwrap();
    let len = u.file_size(fd).unwrap() as usize;
    let buffer = map(u, 65536);
    let mut bytes = Vec::new();
    while bytes.len() < len {
        let got = u.read_at(fd, bytes.len() as u64, buffer, 65536).unwrap();
        bytes.extend(load(u, buffer, got));
    }
    u.close(fd).unwrap();
    u.unmap(buffer, 65536).unwrap();
    let mut store = pageferry_fs::Cached::new(pageferry_fs::MemoryDevice::from_bytes(bytes));
    let report = pageferry_fs::check(&mut store).unwrap();
    assert!(report.is_clean() && report.unmounted, "{:?}", report.problems);
}

/// A process that uses files is killed while its request is with the server: the server and the others go on.
#[test]
fn a_program_that_is_killed_in_the_middle() {
    for (name, method) in served() {
        for moment in 1..5u64 {
            let ended = try_served(name, Schedule::Timed, method, Planted::NONE, move |u| {
                mounted(u, 1 << 20);
                let killed = fork(u, "killed", |u| {
                    let buffer = map(u, BUFFER);
                    let error = use_until_it_fails(u, 0, buffer);
                    // The call that was under way is interrupted; the next does nothing.
                    assert!([Errno::Interrupted, Errno::Killed].contains(&error), "{error:?}");
                    assert_eq!((u.is_killed(), u.null_call()), (true, Err(Errno::Killed)));
                });
                u.sleep_for(Cycles(300_000 + moment * 377_777)).unwrap();
                u.kill(killed).unwrap();
                assert_eq!(u.wait(), Ok(killed));
                assert_eq!(u.kill(killed), Err(Errno::NoProcess));
                check(u);
                let log = RefCell::default();
                calls(u, ("/mnt/d", moment), 20, &log);
                assert_eq!(u.unmount(), Ok(()), "what it had open is closed");
                clean(u);
            });
            sound(&ended, &format!("{name}, {method:?}, moment {moment}"));
        }
    }
}

/// What finds each planted defect.
fn judge(u: &U) {
    mounted(u, 256 << 10);
    let buffer = map(u, 2 * PAGE);
    u.unmap(buffer + PAGE, PAGE).unwrap();
    u.store(buffer, &bytes(4, 0, PAGE));
    let fd = u.open("/mnt/file", MAKE).unwrap();
    check(u);
    assert_eq!(u.write(fd, buffer, PAGE), Ok(PAGE));
    let before = u.machine().snapshot();
    assert_eq!(u.write(fd, buffer, PAGE), Ok(PAGE));
    let spent = u.machine().snapshot().since(&before);
    let [attached, detached] =
        [PmapCounter::IcaAttachments, PmapCounter::IcaDetachments].map(|c| spent.counter(c));
    assert_eq!(attached, detached, "between calls nothing is attached");
    check(u);
    // The end of the buffer is not there: the next read begins where this ends.
    u.seek(fd, 0).unwrap();
    assert_eq!(u.read(fd, buffer + (PAGE - 100), 200), Ok(100));
    assert_eq!(u.read(fd, buffer, 50), Ok(50));
    assert_eq!(load(u, buffer, 50), bytes(4, 100, 50));
    // Full.
    let full = u.open("/mnt/full", MAKE).unwrap();
    let mut size = 0;
    let error = loop {
        match u.write(full, buffer, PAGE) {
            Ok(len) => size += len as u64,
            Err(error) => break error,
        }
        assert!(size < 256 << 10, "more than the disk has");
    };
    assert_eq!((error, u.file_size(full)), (Errno::NoSpace, Ok(size)));
    u.close(full).unwrap();
    u.unlink("/mnt/full").unwrap();
    // Another server.
    u.sync_file(fd).unwrap();
    u.kill(u.kernel().file_server().unwrap()).unwrap();
    while u.mount() == Err(Errno::Busy) {
        u.yield_now().unwrap();
    }
    let other = u.open("/mnt/other", MAKE).unwrap();
    assert_eq!(u.file_size(fd), Err(Errno::ConnectionReset));
    u.close(fd).unwrap();
    u.close(other).unwrap();
    u.unmount().unwrap();
}

#[test]
fn planted_defects_are_found() {
    for (name, method) in served() {
        sound(&try_served(name, Schedule::Timed, method, Planted::NONE, judge), name);
        for &defect in FileServiceDefect::ALL {
            let ended = try_served(name, Schedule::Timed, method, defect.into(), judge);
            assert!(ended.result.is_err(), "{defect:?} by {method:?} on {name} is not found");
        }
    }
}

/// A data piece is no larger than what can be attached beside the control piece; where not even a page can, no call can
/// be made.
#[test]
fn as_much_data_goes_with_a_request_as_can_be_attached() {
    for (method, reserved, works) in [
        (Method::Previous, 32, true),
        (Method::Proposed, 32, true),
        (Method::Proposed, 10, true),
        (Method::Proposed, 9, false),
        (Method::Previous, 1, false),
        (Method::Random, 0, true),
    ] {
        let mut config = ant_with_files(method, Planted::NONE);
        let ispc = config.ispc.as_mut().unwrap();
        ispc.reserved = reserved;
        ispc.server_entries = ispc.server_entries.min(reserved);
        ispc.files.as_mut().unwrap().data_pages = 100;
        on_sh4(config, move |u| {
            mounted(u, 1 << 20);
            let buffer = map(u, BUFFER);
            u.store(buffer, &bytes(3, 0, BUFFER));
            let fd = u.open("/mnt/file", MAKE).unwrap_or(Fd(9));
            let wrote = u.write(fd, buffer, BUFFER);
            assert_eq!(wrote.is_ok(), works, "{method:?} with {reserved}: {wrote:?}");
            u.store(buffer, &[0; BUFFER]);
            if works {
                assert_eq!(u.read_at(fd, 0, buffer, BUFFER), Ok(BUFFER));
                assert!(load(u, buffer, BUFFER) == bytes(3, 0, BUFFER));
                u.close(fd).unwrap();
                u.unmount().unwrap();
            }
        });
    }
}
