//! A process ends at every step of what it does with another: at each of its system calls and accesses in turn it is
//! killed, or a signal comes, during the call or a little later, and ends it at its next step. Whatever is on its way
//! then (pages on loan, in a socket, in a pipe, offered, half passed, of a file) must come to rest: the other one gets
//! what was sent, or hears of the end, and nothing is left of either.

use crate::common::*;
use pageferry_hal::*;
use pageferry_kernel::*;
use pageferry_model::{LateSleep, Model, Schedule};
use pageferry_vm::{Inherit, MapAddr, PassMode, PushDown, VmCounter};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

const PAGE: usize = PAGE_SIZE;

/// How a process ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    /// By a fatal signal of its own making.
    Killed,
    /// A signal comes from another CPU, so many instructions after the step has begun; then it exits.
    Signalled(u32),
}

/// One that ends: which, at which of its steps, and how.
#[derive(Clone, Copy, Debug)]
struct Doom {
    /// 0 or 1.
    who: usize,
    step: u32,
    way: Way,
}

/// A process that counts its steps, and ends where it is to.
struct Mortal<'a> {
    u: &'a U,
    /// To the other.
    socket: Fd,
    /// The end of a pipe: the first writes, the second reads.
    pipe: Fd,
    steps: Cell<u32>,
    doom: Option<Doom>,
    /// Raised to ask for the signal.
    call: Rc<Cell<bool>>,
}

impl Mortal<'_> {
    fn step<R>(&self, work: impl FnOnce(&U) -> Result<R, Errno>) -> Result<R, Errno> {
        let step = self.steps.replace(self.steps.get() + 1);
        match self.doom {
            Some(Doom { step: at, way: Way::Killed, .. }) if at == step => self.u.store(Va(0), &[0]),
            Some(Doom { step: at, way: Way::Signalled(_), .. }) if at == step => self.call.set(true),
            _ => {}
        }
        if self.u.signals_taken() > 0 {
            return Err(Errno::Interrupted);
        }
        work(self.u)
    }

    fn map(&self, pages: usize) -> Result<Va, Errno> {
        self.step(|u| u.map(pages * PAGE, Prot::RW, Inherit::Copy))
    }

    fn store(&self, at: Va, bytes: &[u8]) -> Result<(), Errno> {
        self.step(|u| {
            u.store(at, bytes);
            alive(u, ())
        })
    }

    fn load(&self, at: Va, len: usize) -> Result<Vec<u8>, Errno> {
        self.step(|u| {
            let mut bytes = vec![0; len];
            u.load(at, &mut bytes);
            alive(u, bytes)
        })
    }

    /// All of it, or the end.
    fn send(&self, at: Va, len: usize, mode: SendMode) -> Result<(), Errno> {
        let mut sent = 0;
        while sent < len {
            sent += self.step(|u| u.send(self.socket, at + sent, len - sent, mode))?;
        }
        Ok(())
    }

    /// All of it, or the end.
    fn receive(&self, to: Va, len: usize) -> Result<(), Errno> {
        let mut got = 0;
        while got < len {
            match self.step(|u| u.receive(self.socket, to + got, len - got))? {
                0 => return Err(Errno::BrokenPipe),
                more => got += more,
            }
        }
        Ok(())
    }
}

fn alive<R>(u: &U, result: R) -> Result<R, Errno> {
    if u.is_killed() { Err(Errno::Killed) } else { Ok(result) }
}

/// What one of the two does.
type Part = fn(&Mortal<'_>) -> Result<(), Errno>;

/// What is done together.
#[derive(Clone, Copy)]
struct Play {
    name: &'static str,
    parts: [Part; 2],
}

const ROUNDS: u64 = 3;
/// More than a socket has room for.
const LEN: usize = 20 * PAGE;
/// A half of a disk.
const DISK: usize = 8 * PAGE;

const PLAYS: [Play; 6] = [
    Play {
        name: "loans that are transferred, lent back and transferred again",
        parts: [
            |m| {
                let at = m.map(20)?;
                for round in 0..ROUNDS {
                    m.store(at, &bytes(round, 0, LEN))?;
                    m.send(at, LEN, SendMode::Loan)?;
                    // Broken, perhaps while the other has it.
                    m.store(at, &bytes(round + 100, 0, LEN))?;
                    let mut got = 0;
                    while got < LEN {
                        let back = m.step(|u| u.receive_transfer(m.socket, Some(at + got), LEN - got))?;
                        if back.len_bytes == 0 {
                            return Err(Errno::BrokenPipe);
                        }
                        got += back.len_bytes;
                    }
                    assert!(m.load(at, LEN)? == bytes(round, 0, LEN), "round {round} came back damaged");
                }
                Ok(())
            },
            |m| {
                for round in 0..ROUNDS {
                    let mut got = 0;
                    while got < LEN {
                        let part = m.step(|u| u.receive_transfer(m.socket, None, LEN - got))?;
                        if part.len_bytes == 0 {
                            return Err(Errno::BrokenPipe);
                        }
                        let seen = m.load(part.at, part.len_bytes)?;
                        assert!(seen == bytes(round, got, part.len_bytes), "round {round} is damaged");
                        m.send(part.at, part.len_bytes, SendMode::Loan)?;
                        m.step(|u| u.anflush(part.at, part.len_bytes.next_multiple_of(PAGE)))?;
                        got += part.len_bytes;
                    }
                }
                Ok(())
            },
        ],
    },
    Play {
        name: "a pipe of its own kind",
        parts: [
            |m| {
                let at = m.map(16)?;
                for round in 0..ROUNDS {
                    m.store(at, &bytes(round, 0, 60_000))?;
                    let mut sent = 0;
                    while sent < 60_000 {
                        sent += m.step(|u| u.write(m.pipe, at + sent, 60_000 - sent))?;
                    }
                }
                Ok(())
            },
            |m| {
                let at = m.map(8)?;
                for round in 0..ROUNDS {
                    let mut got = 0;
                    while got < 60_000 {
                        let len = m.step(|u| u.read(m.pipe, at, 20_000.min(60_000 - got)))?;
                        if len == 0 {
                            return Err(Errno::BrokenPipe);
                        }
                        assert!(m.load(at, len)? == bytes(round, got, len), "round {round} is damaged");
                        got += len;
                    }
                }
                Ok(())
            },
        ],
    },
    Play {
        name: "memory that is passed",
        parts: [
            |m| {
                // Behind what is stored is a page that was never touched.
                let (at, word) = (m.map(4 * 21)?, m.map(1)?);
                for (i, mode) in MODES.into_iter().enumerate() {
                    let part = at + i * (LEN + PAGE);
                    m.store(part, &bytes(i as u64, 0, LEN))?;
                    let id = m.step(|u| u.export(part, LEN + PAGE, mode, ExportTo::Anyone))?;
                    m.store(word, &id.0.to_le_bytes())?;
                    m.send(word, 8, SendMode::Copy)?;
                    // The other has it.
                    m.receive(word, 1)?;
                    match m.step(|u| u.withdraw(id)) {
                        Ok(()) | Err(Errno::Removed) => {}
                        Err(e) => return Err(e),
                    }
                    if mode != PassMode::Donate {
                        m.store(part, b"after")?;
                    }
                }
                Ok(())
            },
            |m| {
                let word = m.map(1)?;
                for (i, mode) in MODES.into_iter().enumerate() {
                    m.receive(word, 8)?;
                    let id = u64::from_le_bytes(m.load(word, 8)?.try_into().expect("eight"));
                    let got = m.step(|u| u.import(ExportId(id), None))?;
                    assert_eq!(got.len_bytes, LEN + PAGE);
                    assert!(m.load(got.at, LEN)? == bytes(i as u64, 0, LEN), "{mode:?} is damaged");
                    m.store(got.at + LEN, b"mine")?;
                    m.send(word, 1, SendMode::Copy)?;
                    m.step(|u| u.unmap(got.at, LEN))?;
                }
                Ok(())
            },
        ],
    },
    Play {
        name: "pages of a file, lent and pushed down",
        parts: [
            |m| {
                let at = m.map(20)?;
                let fd = m.step(|u| u.open("f", OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE))?;
                m.store(at, &bytes(1, 0, LEN))?;
                m.step(|u| u.write(fd, at, LEN))?;
                let shared = m.step(|u| u.map_file(fd, 0, MapAddr::Anywhere, LEN, Prot::RW, true))?;
                let private = m.step(|u| u.map_file(fd, 0, MapAddr::Anywhere, LEN, Prot::RW, false))?;
                m.send(shared, LEN, SendMode::Loan)?;
                m.store(shared, &bytes(2, 0, 2 * PAGE))?;
                m.step(|u| u.sync_file(fd))?;
                // What comes back goes down to the file that it came from.
                let mut got = 0;
                while got < LEN {
                    let back = m.step(|u| u.receive_transfer(m.socket, Some(private + got), LEN - got))?;
                    if back.len_bytes == 0 {
                        return Err(Errno::BrokenPipe);
                    }
                    got += back.len_bytes;
                }
                m.step(|u| u.push_down(fd, private, 3 * PAGE, PushDown::Lend))?;
                assert!(m.load(shared, 3 * PAGE)? == bytes(1, 0, 3 * PAGE));
                m.send(private, 2 * PAGE, SendMode::Loan)?;
                m.step(|u| u.truncate(fd, 5 * PAGE as u64))?;
                m.step(|u| u.unlink("f"))?;
                m.step(|u| u.close(fd))?;
                Ok(())
            },
            |m| {
                let at = m.map(20)?;
                m.receive(at, LEN)?;
                assert!(m.load(at, LEN)? == bytes(1, 0, LEN), "what was lent");
                m.send(at, LEN, SendMode::Loan)?;
                m.receive(at, 2 * PAGE)?;
                assert!(m.load(at, 2 * PAGE)? == bytes(1, 0, 2 * PAGE));
                Ok(())
            },
        ],
    },
    Play {
        name: "a disk that both use",
        parts: [
            |m| {
                m.step(|u| u.attach_memory_disk(2 * DISK as u64))?;
                let at = m.map(20)?;
                m.store(at, &bytes(1, 0, LEN))?;
                m.send(at, 1, SendMode::Copy)?;
                let disk = m.step(|u| u.open("/dev/md0", OpenFlags::READ | OpenFlags::WRITE))?;
                for _ in 0..ROUNDS {
                    m.step(|u| u.seek(disk, 0))?;
                    m.step(|u| u.write(disk, at, DISK))?;
                    m.store(at, &[0; LEN])?;
                    m.step(|u| u.seek(disk, 0))?;
                    m.step(|u| u.read(disk, at, DISK))?;
                    assert!(m.load(at, DISK)? == bytes(1, 0, DISK), "what was written");
                }
                Ok(())
            },
            |m| {
                let at = m.map(20)?;
                m.receive(at, 1)?;
                m.store(at, &bytes(2, 0, LEN))?;
                let disk = m.step(|u| u.open("/dev/md0", OpenFlags::READ | OpenFlags::WRITE))?;
                for _ in 0..ROUNDS {
                    m.step(|u| u.seek(disk, DISK as u64))?;
                    m.step(|u| u.write(disk, at, DISK))?;
                    m.step(|u| u.seek(disk, DISK as u64))?;
                    m.step(|u| u.read(disk, at, DISK))?;
                    assert!(m.load(at, DISK)? == bytes(2, 0, DISK), "what was written");
                }
                Ok(())
            },
        ],
    },
    Play {
        name: "whatever the kernel chooses, and a child that shares",
        parts: [
            |m| {
                let at = m.map(20)?;
                let shared = m.step(|u| u.map(PAGE, Prot::RW, Inherit::Share))?;
                m.store(at, &bytes(1, 0, LEN))?;
                let socket = m.socket;
                m.step(|u| {
                    let child = move |u: &U| {
                        u.store(shared, b"child");
                        u.store(at, &bytes(7, 0, PAGE));
                        let _ = u.send(socket, at, PAGE, SendMode::Loan);
                    };
                    u.fork("child", Box::new(child))
                })?;
                m.step(U::wait)?;
                assert_eq!(m.load(shared, 5)?, b"child");
                m.step(|u| match u.measure_moves() {
                    // Where memory is scarce, all is copied.
                    Err(Errno::NoMemory) => Ok(()),
                    measured => measured,
                })?;
                for _ in 0..ROUNDS {
                    m.send(at, LEN, SendMode::Auto)?;
                    m.store(at, &bytes(1, 0, PAGE))?;
                }
                Ok(())
            },
            |m| {
                let at = m.map(20)?;
                m.receive(at, PAGE)?;
                assert!(m.load(at, PAGE)? == bytes(7, 0, PAGE), "of the child");
                for round in 0..ROUNDS {
                    let mut got = 0;
                    while got < LEN {
                        let part = m.step(|u| u.receive_auto(m.socket, at, LEN - got))?;
                        if part.len_bytes == 0 {
                            return Err(Errno::BrokenPipe);
                        }
                        let seen = m.load(part.at, part.len_bytes)?;
                        assert!(seen == bytes(1, got, part.len_bytes), "round {round} is damaged");
                        got += part.len_bytes;
                    }
                }
                Ok(())
            },
        ],
    },
];

const MODES: [PassMode; 4] = [PassMode::Share, PassMode::Copy, PassMode::Donate, PassMode::DonateZero];

/// How much memory there is: plenty, or so little that pages of both go to the disk all the time.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Memory {
    Plenty,
    Scarce,
}

/// Frames that are left to all of it when memory is scarce: fewer than one part has pages.
const SCARCE_PAGES: usize = 56;

/// How it went.
struct Performed {
    /// Of each part.
    steps: [u32; 2],
    /// Whether each part got to its end.
    through: [bool; 2],
    /// Of all threads.
    sleeps: u64,
    page_outs: u64,
}

/// Runs both parts of `play` on four CPUs, of which one may end before its time.
fn perform(schedule: Schedule, memory: Memory, play: Play, doom: Option<Doom>) -> Performed {
    let performed = perform_on(machine("xeon-mp-htt", schedule), memory, play, doom);
    // On other machines than the named one, other tables take other parts of what is left.
    let min_page_outs = if other_kind().is_some() { 20 } else { 30 };
    assert!(
        doom.is_some() || memory == Memory::Plenty || performed.page_outs > min_page_outs,
        "{}: little goes out, {} pages",
        play.name,
        performed.page_outs
    );
    performed
}

/// As [`perform`], on a machine that is there, and however little goes out.
fn perform_on(m: Model, memory: Memory, play: Play, doom: Option<Doom>) -> Performed {
    let (steps, through) = (Rc::new(RefCell::new([0; 2])), Rc::new(RefCell::new([false; 2])));
    let (counted, ended) = (steps.clone(), through.clone());
    let config = paging(sf_buf(64), 512);
    let what = format!("{}, {memory:?} memory, {doom:?}", play.name);
    let ended = run_on(m, "xeon-mp-htt", &what.clone(), config, move |u| {
        let hoard = (memory == Memory::Scarce).then(|| hoard(u, SCARCE_PAGES));
        let (sockets, pipe) = (u.socket_pair().unwrap(), u.pipe().unwrap());
        let call = Rc::new(Cell::new(false));
        let mut pids = Vec::new();
        for (who, part) in play.parts.into_iter().enumerate() {
            let doom = doom.filter(|d| d.who == who);
            let (call, counted, ended) = (call.clone(), counted.clone(), ended.clone());
            pids.push(fork(u, ["first", "second"][who], move |u| {
                // A process that keeps an end of the other's never learns that the other is gone.
                let (socket, other) = if who == 0 { sockets } else { (sockets.1, sockets.0) };
                let (pipe, its) = if who == 0 { (pipe.1, pipe.0) } else { pipe };
                u.close(other).unwrap();
                u.close(its).unwrap();
                let m = Mortal { u, socket, pipe, steps: Cell::new(0), doom, call };
                let result = part(&m);
                counted.borrow_mut()[who] = m.steps.get();
                ended.borrow_mut()[who] = result.is_ok();
                // A process at its end gets the signal while it exits, if at all.
                m.call.set(doom.is_some());
            }));
        }
        for fd in [sockets.0, sockets.1, pipe.0, pipe.1] {
            u.close(fd).unwrap();
        }
        if let Some(Doom { who, way: Way::Signalled(delay), .. }) = doom {
            while !call.get() {
                // The disk takes its time.
                u.compute(Instructions(if memory == Memory::Plenty { 20 } else { 5000 }));
            }
            u.compute(Instructions(delay));
            let _ = u.signal(pids[who]);
        }
        for _ in &pids {
            u.wait().unwrap();
        }
        let _ = u.unlink("f");
        // A process that was waited for may still be on its way out, and a child of the one that ended, too.
        let mut turns = 0;
        while u.kernel().vm().structure_census().spaces > 1 {
            turns += 1;
            assert!(turns < 100_000, "{what}: the memory of a process is left: {}", u.kernel().sleepers());
            u.compute(Instructions(1000));
        }
        // The page daemon is not at rest before all are gone: `run` checks then.
        if memory == Memory::Plenty {
            u.kernel().check().unwrap_or_else(|law| panic!("{what}: {law}"));
        }
        assert_eq!(u.kernel().vm().wired_frames(), 0, "{what}");
        hoard.into_iter().for_each(|pages| u.kernel().vm().free_kernel_pages(pages));
    });
    let (steps, through) = (*steps.borrow(), *through.borrow());
    let (sleeps, page_outs) = (ended.counter(KernelCounter::Sleeps), ended.counter(VmCounter::PageOuts));
    Performed { steps, through, sleeps, page_outs }
}

/// Ends each of the two at every step of its own.
fn end_at_every_step(play: Play, memory: Memory, ways: &[Way], schedule: impl Fn(u32) -> Schedule) {
    let Performed { steps, through, .. } = perform(Schedule::Timed, memory, play, None);
    assert_eq!(through, [true; 2], "{} comes to its end if it is not ended", play.name);
    for who in 0..2 {
        assert!(steps[who] >= 5, "{}: {steps:?} steps", play.name);
        for step in 0..steps[who] {
            for &way in ways {
                let doom = Doom { who, step, way };
                let Performed { steps: made, through, .. } =
                    perform(schedule(step), memory, play, Some(doom));
                if way == Way::Killed && schedule(step) == Schedule::Timed {
                    assert_eq!((made[who], through[who]), (step + 1, false), "{}, {doom:?}", play.name);
                }
            }
        }
    }
}

#[test]
fn a_process_is_killed_at_every_step() {
    for play in PLAYS {
        end_at_every_step(play, Memory::Plenty, &[Way::Killed], |_| Schedule::Timed);
        end_at_every_step(play, Memory::Scarce, &[Way::Killed], |step| Schedule::Seeded(step.into()));
    }
}

#[test]
fn a_signal_ends_a_process_at_every_step() {
    for play in PLAYS {
        let soon = [0, 300, 3_000, 30_000].map(Way::Signalled);
        end_at_every_step(play, Memory::Plenty, &soon, |_| Schedule::Timed);
        let late = [0, 200_000].map(Way::Signalled);
        end_at_every_step(play, Memory::Scarce, &late, |_| Schedule::Timed);
    }
}

/// Whoever sleeps may be late: between its last look at what it waits for and its place on the queue of sleepers, all
/// others go on, for some instructions or until a disk has answered. No wakeup is lost. (Were it longer, those that
/// spin for a lock of the late one would take the host minutes.)
#[test]
fn a_thread_is_late_to_sleep_at_every_sleep() {
    let late = |play: Play, memory, late| {
        let performed = perform_on(late_machine("xeon-mp-htt", late), memory, play, None);
        assert_eq!(performed.through, [true; 2], "{}, {memory:?} memory, {late:?}", play.name);
        performed.sleeps
    };
    for (number, play) in (0..).zip(PLAYS) {
        for by in [30_000, 1_000_000].map(Cycles) {
            let sleeps = late(play, Memory::Plenty, None);
            (0..sleeps).for_each(|sleep| _ = late(play, Memory::Plenty, Some(LateSleep { sleep, by })));
        }
        // Most of these many wait for the disk, and a part is enough.
        let (sleeps, by) = (late(play, Memory::Scarce, None), Cycles(1_000_000));
        let some = (number..sleeps).step_by(PLAYS.len());
        some.for_each(|sleep| _ = late(play, Memory::Scarce, Some(LateSleep { sleep, by })));
    }
}
