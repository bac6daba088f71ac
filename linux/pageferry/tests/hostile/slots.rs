//! Receivers that answer with leases, and whose slots are not what they should be.

use crate::greetings::{self, sends_slow_sockets};
use crate::peer::{self, Map, Plan, READY, WELCOME};
use crate::stage::{Against, Holds, Row, Stage};
use pageferry::Level;
use pageferry::host::{Host, Verdict};
use rustix::fs::{Mode, OFlags, SealFlags};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};

const SLOTS: u8 = 6;

/// Whether this host has leases: otherwise no sender offers them.
pub fn are_here() -> bool {
    crate::once("PAGEFERRY_TEST_LEASES", leases)
}

fn leases() -> bool {
    let items = Host::get().items();
    items.iter().any(|item| item.name == "leases" && item.verdict == Verdict::Good)
}

/// The seals of an honest slot.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

fn open(fd: &OwnedFd, flags: OFlags) -> OwnedFd {
    rustix::fs::open(format!("/proc/self/fd/{}", fd.as_raw_fd()), flags, Mode::empty()).unwrap()
}

/// Memory of so many bytes with these seals, as a descriptor for reading.
fn slot(bytes: u64, seals: SealFlags) -> OwnedFd {
    let flags = rustix::fs::MemfdFlags::CLOEXEC | rustix::fs::MemfdFlags::ALLOW_SEALING;
    let fd = rustix::fs::memfd_create("slot", flags).unwrap();
    rustix::fs::ftruncate(&fd, bytes).unwrap();
    if !seals.is_empty() {
        rustix::fs::fcntl_add_seals(&fd, seals).unwrap();
    }
    open(&fd, OFlags::RDONLY)
}

/// A receiver that has welcomed a sender, by accepting leases.
struct Welcomed {
    socket: OwnedFd,
    plan: Plan,
    _reverse: Map,
}

impl Welcomed {
    fn new(stage: &Stage) -> Welcomed {
        let socket = stage.socket();
        let (hello, _) = peer::recv(&socket);
        let mut plan = Plan::honest(Level::Leased);
        plan.learn(&hello);
        let levels = u32::from_ne_bytes(hello[24..28].try_into().unwrap());
        assert_ne!(levels & peer::level_bit(Level::Leased), 0, "it offers leases");
        let (ring, reverse) =
            peer::memfd(plan.reverse_bytes(), plan.reverse_bytes() as usize, plan.ring_seals);
        peer::send(&socket, &plan.greeting(WELCOME), &[ring.as_fd()]).unwrap();
        Welcomed { socket, plan, _reverse: reverse }
    }

    fn honest(&self) -> Vec<OwnedFd> {
        (0..self.plan.slots).map(|_| slot(self.plan.slot_bytes, SEALS)).collect()
    }

    /// Sends slots, of which this is the number of the first.
    fn sends(&self, first: u32, slots: &[OwnedFd]) {
        let plan = Plan { slots: first, ..self.plan.clone() };
        let fds: Vec<BorrowedFd<'_>> = slots.iter().map(|fd| fd.as_fd()).collect();
        let _ = peer::send(&self.socket, &plan.greeting(SLOTS), &fds);
    }

    /// The same, and says that it is ready.
    fn is_ready(&self, slots: &[OwnedFd]) {
        self.sends(0, slots);
        peer::recv(&self.socket);
        let _ = peer::send(&self.socket, &self.plan.greeting(READY), &[]);
    }
}

type Act = fn(&Welcomed, &Stage);

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn acts() -> Vec<(&'static str, Holds, Act)> {
    use Holds::*;
    vec![
        ("sends no slots", Refused, |it, _| it.sends(0, &[])),
        ("sends too few slots", Refused, |it, _| it.sends(0, &it.honest()[1..])),
        ("sends too many slots", Refused, |it, _| it.sends(0, &[it.honest(), it.honest()].concat_all()[..5])),
        ("sends more slots than a packet has", Refused, |it, _| {
            it.sends(0, &[it.honest(), it.honest(), it.honest()].concat_all());
        }),
        ("sends its slots from the second on", Refused, |it, _| it.sends(1, &it.honest())),
        ("sends its slots from the last number on", Refused, |it, _| it.sends(u32::MAX, &it.honest())),
        ("sends its slots twice", Refused, |it, _| {
            let slots = it.honest();
            it.sends(0, &slots);
            it.sends(0, &slots);
        }),
        ("sends one memory for all slots", Refused, |it, _| {
            let one = slot(it.plan.slot_bytes, SEALS);
            it.sends(0, &it.honest().iter().map(|_| one.try_clone().unwrap()).collect::<Vec<_>>());
        }),
        ("sends its slots a packet each", Refused, |it, _| {
            for (number, slot) in (0..).zip(it.honest()) {
                it.sends(number, &[slot]);
            }
        }),
        ("is ready in the place of its slots", Refused, |it, _| {
            let _ = peer::send(&it.socket, &it.plan.greeting(READY), &[]);
        }),
        ("welcomes once more in the place of its slots", Refused, |it, _| {
            let slots = it.honest();
            let _ = peer::send(&it.socket, &it.plan.greeting(WELCOME), &[slots[0].as_fd()]);
        }),
        ("sends sockets whose close waits for slots", Refused, |it, _| {
            let plan = Plan { slots: 0, ..it.plan.clone() };
            sends_slow_sockets(&it.socket, &plan.greeting(SLOTS), 4);
        }),
        ("sends nothing in the place of its slots", Late, |_, stage| {
            stage.attacked();
            stage.linger();
        }),
        ("dies in the place of its slots", Dead, |_, _| ()),
        // A victim that may open every file is not kept out.
        ("takes the mode of its slots away", if is_root() { Alive } else { Refused }, |it, _| {
            let slots = it.honest();
            // SAFETY: plain numbers. Files of another user's are made, where this process may be another.
            unsafe { libc::syscall(libc::SYS_setfsuid, 65534) };
            let theirs = it.honest();
            for fd in slots.iter().chain(&theirs) {
                let _ = rustix::fs::fchmod(fd, Mode::empty());
            }
            it.is_ready(&theirs);
        }),
        ("holds leases on its slots", Refused, |it, stage| {
            let slots = it.honest();
            let held: Vec<_> = slots.iter().map(|slot| open(slot, OFlags::RDONLY)).collect();
            for fd in &held {
                // SAFETY: a descriptor of ours and plain numbers. Who breaks it sends a signal that does nothing.
                unsafe {
                    libc::fcntl(fd.as_raw_fd(), 10, libc::SIGURG);
                    assert_eq!(libc::fcntl(fd.as_raw_fd(), libc::F_SETLEASE, libc::F_RDLCK), 0);
                }
            }
            it.is_ready(&slots);
            stage.attacked();
            stage.linger();
        }),
        ("writes to its slots all the time", Alive, |it, stage| {
            let slots = it.honest();
            let writable: Vec<_> = slots.iter().map(|slot| open(slot, OFlags::RDWR)).collect();
            it.is_ready(&slots);
            stage.attacked();
            for _ in 0..1000 {
                for fd in &writable {
                    rustix::io::pwrite(fd, &[crate::stage::HONEST; 64], 0).unwrap();
                }
            }
        }),
    ]
}

trait ConcatAll {
    fn concat_all(self) -> Vec<OwnedFd>;
}

impl<const N: usize> ConcatAll for [Vec<OwnedFd>; N] {
    fn concat_all(self) -> Vec<OwnedFd> {
        self.into_iter().flatten().collect()
    }
}

type File = fn(u64) -> OwnedFd;

/// What is sent for the last slot.
fn files() -> Vec<(&'static str, File)> {
    vec![
        ("memory that can shrink and not grow", |bytes| slot(bytes, SEALS.difference(SealFlags::SHRINK))),
        ("memory without any seal", |bytes| slot(bytes, SealFlags::empty())),
        ("memory that nobody can write", |bytes| slot(bytes, SEALS | SealFlags::WRITE)),
        ("memory that nobody can open for writing", |bytes| slot(bytes, SEALS | SealFlags::FUTURE_WRITE)),
        ("memory of one page more than a slot", |bytes| slot(bytes + peer::page_bytes(), SEALS)),
        ("memory of one byte less than a slot", |bytes| slot(bytes - 1, SEALS)),
        ("memory of nothing", |_| slot(0, SEALS)),
        ("memory of 2^40 bytes", |_| slot(1 << 40, SEALS)),
        ("memory of huge pages with a slot's seals", |bytes| greetings::huge_pages(bytes, SEALS)),
    ]
}

pub fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    let against = Against::TrustedSender;
    if !are_here() {
        return rows;
    }
    for (attack, holds, act) in acts() {
        rows.push(Row::new(Level::Leased, against, attack, holds, move |stage| {
            let it = Welcomed::new(stage);
            act(&it, stage);
            stage.attacked();
            if holds == Holds::Refused {
                stage.linger();
            }
        }));
    }
    // One of these has just the seals of a slot.
    let others =
        greetings::wrong_files().into_iter().filter(|(what, _)| !what.contains("receiver could write"));
    for (what, file) in files().into_iter().chain(others) {
        let attack: &'static str = format!("sends {what} for a slot").leak();
        rows.push(Row::new(Level::Leased, against, attack, Holds::Refused, move |stage| {
            let it = Welcomed::new(stage);
            let mut slots = it.honest();
            slots.pop();
            slots.push(file(it.plan.slot_bytes));
            it.sends(0, &slots);
            stage.attacked();
            stage.linger();
        }));
    }
    // Who has offered no leases waits for no slots.
    for against in [Against::Sender, Against::TrustedSender] {
        let attack = "sends slots that nobody asked for";
        rows.push(Row::new(Level::Mmu, against, attack, Holds::Refused, |stage| {
            let socket = stage.socket();
            let mut plan = Plan::honest(Level::Leased);
            plan.learn(&peer::recv(&socket).0);
            let (ring, _) = peer::memfd(plan.reverse_bytes(), 4096, plan.ring_seals);
            let _ = peer::send(&socket, &plan.greeting(WELCOME), &[ring.as_fd()]);
            let some = slot(plan.slot_bytes, SEALS);
            let _ = peer::send(&socket, &Plan { slots: 0, ..plan }.greeting(SLOTS), &[some.as_fd()]);
            stage.attacked();
            stage.linger();
        }));
    }
    rows
}
