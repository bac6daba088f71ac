//! Peers that lie in the handshake, send other files than they should, and stop or die at each of its steps.

use crate::peer::{self, HELLO, Plan, READY, RawReceiver, RawSender, SETTLED, WELCOME};
use crate::stage::{Against, Holds, Row, Stage};
use pageferry::{Level, Verb};
use rustix::fs::SealFlags;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

/// A greeting that is sent in the place of the first one, with descriptors.
type Lie = fn(&mut [u8; 56]);

/// Where a field of a greeting is, and what is put there.
fn put(greeting: &mut [u8; 56], at: usize, bytes: &[u8]) {
    greeting[at..at + bytes.len()].copy_from_slice(bytes);
}

fn lies() -> Vec<(&'static str, Lie)> {
    vec![
        ("greets with another magic", |g| g[0] = b'p'),
        ("greets with a kind that there is not", |g| g[8] = 77),
        ("greets as if it were already settled", |g| g[8] = SETTLED),
        ("greets as ready", |g| g[8] = READY),
        ("greets with trust that is no truth value", |g| g[9] = 7),
        ("greets with a later version", |g| put(g, 10, &[9, 0, 9, 0])),
        ("greets with an earlier version", |g| put(g, 10, &[0, 0, 0, 0])),
        ("greets with versions upside down", |g| put(g, 10, &[2, 0, 1, 0])),
        ("greets from another machine", |g| put(g, 14, &[8, 0])),
        ("greets with pages of 64 KB", |g| put(g, 16, &65536u32.to_ne_bytes())),
        ("greets with pages of no bytes", |g| put(g, 16, &[0; 4])),
        ("greets with a level that there is not", |g| g[27] |= 0x80),
        ("greets with a verb that there is not", |g| g[31] |= 0x80),
        ("greets with no level", |g| put(g, 24, &[0; 4])),
        ("greets with bits that must be zero", |g| g[44] = 1),
    ]
}

fn shapes() -> Vec<(&'static str, Lie)> {
    vec![
        ("offers a ring of no cells", |g| put(g, 32, &[0; 4])),
        ("offers a ring of five cells", |g| put(g, 32, &5u32.to_ne_bytes())),
        ("offers a ring of 2^31 cells", |g| put(g, 32, &(1u32 << 31).to_ne_bytes())),
        ("offers messages of 4 GB in the ring", |g| put(g, 36, &(u32::MAX - 63).to_ne_bytes())),
        ("offers messages of odd length in the ring", |g| put(g, 36, &65u32.to_ne_bytes())),
        ("offers a larger ring than its file", |g| put(g, 32, &128u32.to_ne_bytes())),
        ("offers a smaller ring than its file", |g| put(g, 32, &32u32.to_ne_bytes())),
        ("offers a pool of no slots", |g| put(g, 40, &[0; 4])),
        ("offers a pool of 2^32 - 1 slots", |g| put(g, 40, &u32::MAX.to_ne_bytes())),
        ("offers a larger pool than its file", |g| put(g, 40, &5u32.to_ne_bytes())),
        ("offers a smaller pool than its file", |g| put(g, 40, &3u32.to_ne_bytes())),
        ("offers slots of no bytes", |g| put(g, 48, &[0; 8])),
        ("offers slots that are no pages", |g| put(g, 48, &100u64.to_ne_bytes())),
        ("offers slots of 2^63 bytes", |g| put(g, 48, &(1u64 << 63).to_ne_bytes())),
        ("offers slots of nearly 2^64 bytes", |g| put(g, 48, &(u64::MAX - 4095).to_ne_bytes())),
    ]
}

/// The files of an honest sender, which would take donations: ring, pool.
fn files(plan: &Plan) -> (OwnedFd, OwnedFd) {
    let ring = peer::memfd(plan.forward_bytes(), 4096, plan.ring_seals).0;
    let pool = peer::memfd(plan.pool_bytes(), 4096, plan.pool_seals).0;
    (ring, pool)
}

fn hello(stage: &Stage, greeting: &[u8], fds: &[&OwnedFd]) {
    let socket = stage.socket();
    let fds: Vec<BorrowedFd<'_>> = fds.iter().map(|fd| fd.as_fd()).collect();
    peer::send(&socket, greeting, &fds).expect("the victim listens");
    stage.attacked();
    stage.linger();
}

/// The answer of a receiver, in the place of an honest one.
fn welcome(stage: &Stage, greeting: impl Fn(&mut [u8; 56]), fds: impl Fn(&OwnedFd) -> Vec<OwnedFd>) {
    let socket = stage.socket();
    let (said, _) = peer::recv(&socket);
    let mut plan = Plan::honest(stage.level);
    plan.learn(&said);
    let mut bytes = plan.greeting(WELCOME);
    greeting(&mut bytes);
    let fds = fds(&peer::memfd(plan.reverse_bytes(), 4096, plan.ring_seals).0);
    let fds: Vec<BorrowedFd<'_>> = fds.iter().map(|fd| fd.as_fd()).collect();
    peer::send(&socket, &bytes, &fds).expect("the victim listens");
    stage.attacked();
    stage.linger();
}

/// Files that are none of those that they should be. So many bytes are expected of it.
pub type File = fn(u64) -> OwnedFd;

fn opened(path: &str) -> OwnedFd {
    std::fs::File::options().read(true).write(true).open(path).expect(path).into()
}

pub fn wrong_files() -> Vec<(&'static str, File)> {
    vec![
        ("an ordinary file", |bytes| {
            let file = tempfile::tempfile().unwrap();
            file.set_len(bytes).unwrap();
            file.into()
        }),
        ("a file of /dev/shm", |bytes| match tempfile::tempfile_in("/dev/shm") {
            Ok(file) => {
                file.set_len(bytes).unwrap();
                file.into()
            }
            Err(_) => std::fs::File::open("/dev/null").unwrap().into(),
        }),
        ("a directory", |_| std::fs::File::open("/").unwrap().into()),
        ("a pipe", |_| std::io::pipe().unwrap().0.into()),
        ("a socket", |_| peer::sockets().0),
        ("an eventfd", |_| rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()).unwrap()),
        ("a terminal's master", |_| opened("/dev/ptmx")),
        ("/dev/zero", |_| opened("/dev/zero")),
        ("a file of /proc", |_| std::fs::File::open("/proc/self/status").unwrap().into()),
        ("a descriptor that only names", |_| {
            let flags = rustix::fs::OFlags::PATH;
            rustix::fs::open("/", flags, rustix::fs::Mode::empty()).unwrap()
        }),
        ("memory without seals", |bytes| peer::memfd(bytes, 4096, SealFlags::empty()).0),
        ("memory that can shrink", |bytes| {
            peer::memfd(bytes, 4096, peer::POOL_SEALS.difference(SealFlags::SHRINK)).0
        }),
        ("memory that can be sealed further", |bytes| {
            peer::memfd(bytes, 4096, peer::POOL_SEALS.difference(SealFlags::SEAL)).0
        }),
        ("memory that the receiver could write", |bytes| {
            peer::memfd(bytes, 4096, peer::POOL_SEALS.difference(SealFlags::FUTURE_WRITE)).0
        }),
        ("memory of no bytes", |_| {
            let fd = rustix::fs::memfd_create("peer", rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap();
            rustix::fs::fcntl_add_seals(&fd, peer::POOL_SEALS).unwrap();
            fd
        }),
        ("memory of one page more", |bytes| {
            peer::memfd(bytes + peer::page_bytes(), 4096, peer::POOL_SEALS).0
        }),
        ("memory of half a page less", |bytes| {
            peer::memfd(bytes - peer::page_bytes() / 2, 2048, peer::POOL_SEALS).0
        }),
        ("memory that cannot be read", |bytes| {
            let fd = peer::memfd(bytes, 4096, peer::POOL_SEALS).0;
            let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
            std::fs::File::options().write(true).open(path).unwrap().into()
        }),
        ("memory of huge pages that are not there", |bytes| huge_pages(bytes, peer::POOL_SEALS)),
        ("a socket whose close waits", |_| slow_to_close()),
    ]
}

/// Memory of hugetlbfs, of which holes may be all that there is. Where the kernel has none, an empty file.
pub fn huge_pages(bytes: u64, seals: SealFlags) -> OwnedFd {
    let flags = libc::MFD_ALLOW_SEALING | libc::MFD_HUGETLB;
    // SAFETY: a name that ends with zero, and flags.
    let fd = unsafe { libc::memfd_create(c"peer".as_ptr(), flags) };
    if fd < 0 {
        return std::fs::File::open("/dev/null").unwrap().into();
    }
    // SAFETY: the kernel has just made it for us.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    rustix::fs::ftruncate(&fd, bytes.next_multiple_of(2 << 20)).unwrap();
    rustix::fs::fcntl_add_seals(&fd, seals).unwrap();
    fd
}

/// A TCP socket with bytes that its other end does not take: whoever closes it last waits for as long as it says.
pub fn slow_to_close() -> OwnedFd {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    // Few bytes fill it.
    rustix::net::sockopt::set_socket_recv_buffer_size(&listener, 4096).unwrap();
    let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    rustix::net::sockopt::set_socket_send_buffer_size(&stream, 4096).unwrap();
    std::mem::forget(listener);
    stream.set_nonblocking(true).unwrap();
    while std::io::Write::write(&mut &stream, &[0; 65536]).is_ok() {}
    rustix::net::sockopt::set_socket_linger(&stream, Some(std::time::Duration::from_secs(3600))).unwrap();
    stream.into()
}

/// Sends such sockets, and keeps none: whoever gets them closes them last.
pub fn sends_slow_sockets(socket: &OwnedFd, bytes: &[u8], count: usize) {
    let slow: Vec<_> = (0..count).map(|_| slow_to_close()).collect();
    let fds: Vec<_> = slow.iter().map(|fd| fd.as_fd()).collect();
    let _ = peer::send(socket, bytes, &fds);
    // Where the other side was faster, it is this one that waits.
    std::thread::spawn(move || drop(slow));
}

fn stop() {
    // SAFETY: a signal to this process alone.
    unsafe { libc::raise(libc::SIGSTOP) };
}

const RECEIVERS: [Against; 2] = [Against::Receiver, Against::TrustedReceiver];
const SENDERS: [Against; 2] = [Against::Sender, Against::TrustedSender];

pub fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for against in RECEIVERS {
        offers(&mut rows, against);
        steps_of_a_sender(&mut rows, against);
    }
    for against in SENDERS {
        answers(&mut rows, against);
        steps_of_a_receiver(&mut rows, against);
    }
    rows
}

/// Hostile senders.
fn offers(rows: &mut Vec<Row>, against: Against) {
    let level = Level::Sealed;
    let mut add = |attack: &str, holds, peer: Box<dyn Fn(&Stage)>| {
        let attack: &'static str = attack.to_owned().leak();
        rows.push(Row::new(level, against, attack, holds, move |stage| peer(stage)));
    };
    for (attack, lie) in lies().into_iter().chain(shapes()) {
        // The levels that a sender offers are only told: it settles on one later.
        let holds = if attack == "greets with no level" { Holds::Dead } else { Holds::Refused };
        add(
            attack,
            holds,
            Box::new(move |stage| {
                let plan = Plan { capacity: 64, ..Plan::honest(level) };
                let (ring, pool) = files(&plan);
                let mut greeting = plan.greeting(HELLO);
                lie(&mut greeting);
                if holds == Holds::Dead {
                    let socket = stage.socket();
                    let _ = peer::send(&socket, &greeting, &[ring.as_fd(), pool.as_fd()]);
                    return stage.attacked();
                }
                hello(stage, &greeting, &[&ring, &pool]);
            }),
        );
    }
    for (what, file) in wrong_files() {
        add(
            &format!("sends {what} for the pool"),
            Holds::Refused,
            Box::new(move |stage| {
                let plan = Plan::honest(level);
                let file = file(plan.pool_bytes());
                hello(stage, &plan.greeting(HELLO), &[&files(&plan).0, &file]);
            }),
        );
        add(
            &format!("sends {what} for the ring"),
            Holds::Refused,
            Box::new(move |stage| {
                let plan = Plan::honest(level);
                let file = file(plan.forward_bytes());
                hello(stage, &plan.greeting(HELLO), &[&file, &files(&plan).1]);
            }),
        );
    }
    for count in [0, 1, 3, 8, 9, 253] {
        add(
            &format!("sends {count} descriptors with its greeting"),
            Holds::Refused,
            Box::new(move |stage| {
                let plan = Plan::honest(level);
                let (ring, pool) = files(&plan);
                let fds: Vec<&OwnedFd> = [&ring, &pool].into_iter().cycle().take(count).collect();
                hello(stage, &plan.greeting(HELLO), &fds);
            }),
        );
    }
    for len in [1, 8, 55, 57, 512, 513, 60_000] {
        add(
            &format!("greets with {len} bytes"),
            Holds::Refused,
            Box::new(move |stage| {
                let plan = Plan::honest(level);
                let (ring, pool) = files(&plan);
                let mut greeting = plan.greeting(HELLO).to_vec();
                greeting.resize(len, 0);
                hello(stage, &greeting, &[&ring, &pool]);
            }),
        );
    }
    add("greets with nothing", Holds::Refused, Box::new(|stage| hello(stage, &[], &[])));
    add(
        "greets with nothing and dies",
        Holds::Alive,
        Box::new(|stage| {
            let socket = stage.socket();
            let _ = peer::send(&socket, &[], &[]);
            stage.attacked();
        }),
    );
    add(
        "greets with twelve sockets whose close waits",
        Holds::Refused,
        Box::new(|stage| {
            let socket = stage.socket();
            sends_slow_sockets(&socket, &Plan::honest(Level::Sealed).greeting(HELLO), 12);
            stage.attacked();
            stage.linger();
        }),
    );
    add(
        "refuses with control characters",
        Holds::Refused,
        Box::new(|stage| {
            let mut greeting = Plan::honest(Level::Sealed).greeting(peer::REFUSE).to_vec();
            greeting.extend([0x1b; 400]);
            hello(stage, &greeting, &[]);
        }),
    );
    add(
        "offers a pool of holes beyond the budget",
        Holds::OverBudget,
        Box::new(|stage| {
            let mut plan = Plan::honest(Level::Sealed);
            (plan.slots, plan.slot_bytes) = (4096, 1 << 20);
            let (ring, pool) = files(&plan);
            hello(stage, &plan.greeting(HELLO), &[&ring, &pool]);
        }),
    );
    add(
        "offers a ring of holes beyond the budget",
        Holds::OverBudget,
        Box::new(|stage| {
            let mut plan = Plan::honest(Level::Sealed);
            (plan.capacity, plan.inline_bytes) = (4096, 1 << 20);
            let (ring, pool) = files(&plan);
            hello(stage, &plan.greeting(HELLO), &[&ring, &pool]);
        }),
    );
    add(
        "offers donations and has sealed the pool before",
        trusted_refuses(against),
        Box::new(|stage| {
            let mut plan = Plan::donating(Level::Mmu);
            plan.pool_seals = peer::POOL_SEALS;
            plan.late_seals = SealFlags::empty();
            plan.settled_levels = peer::level_bit(Level::Copy);
            plan.settled_verbs = 0;
            settle(stage, plan);
        }),
    );
    add(
        "offers donations and does not seal the pool",
        Holds::Refused,
        Box::new(|stage| {
            let mut plan = Plan::donating(Level::Mmu);
            plan.late_seals = SealFlags::empty();
            plan.settled_levels = peer::level_bit(Level::Copy);
            plan.settled_verbs = 0;
            settle(stage, plan);
        }),
    );
    for (attack, levels) in [
        ("settles on no level", 0),
        ("settles on two levels", peer::level_bit(Level::Copy) | peer::level_bit(Level::Sealed)),
        ("settles on a level that there is not", 1 << 17),
        ("settles on leases", peer::level_bit(Level::Leased)),
    ] {
        add(
            attack,
            Holds::Refused,
            Box::new(move |stage| {
                let mut plan = Plan::honest(Level::Sealed);
                plan.settled_levels = levels;
                settle(stage, plan);
            }),
        );
    }
    for (attack, level) in [
        ("settles on loans in place", Level::Mmu),
        ("settles on loans that only types protect", Level::Typed),
    ] {
        if against == Against::Receiver {
            add(attack, Holds::Refused, Box::new(move |stage| settle(stage, Plan::honest(level))));
        }
    }
    for (attack, verb) in [("settles on donations", Verb::Donate), ("settles on shared memory", Verb::Share)]
    {
        if against == Against::Receiver || verb == Verb::Donate {
            add(
                attack,
                Holds::Refused,
                Box::new(move |stage| {
                    let mut plan = Plan::honest(Level::Sealed);
                    plan.settled_verbs |= peer::verb_bit(verb);
                    settle(stage, plan);
                }),
            );
        }
    }
}

/// For a guarded receiver the seal comes early and that is all; one that is to take donations cannot map the pool.
fn trusted_refuses(against: Against) -> Holds {
    if against == Against::TrustedReceiver { Holds::Refused } else { Holds::Dead }
}

fn settle(stage: &Stage, plan: Plan) {
    // The refusal comes in the middle of it, or at its end.
    let met = RawSender::meet(stage.socket(), plan);
    stage.attacked();
    drop(met);
}

/// A sender that dies or stops at each step.
fn steps_of_a_sender(rows: &mut Vec<Row>, against: Against) {
    for (attack, holds, end) in [("dies", Holds::Dead, die as fn()), ("stops", Holds::Late, stop)] {
        for step in 0..5 {
            let attack: &'static str = format!("{attack} after step {step} of the handshake").leak();
            rows.push(Row::new(Level::Sealed, against, attack, holds, move |stage| {
                let plan = Plan::honest(stage.level);
                let socket = stage.socket();
                let (ring, pool) = files(&plan);
                let at = |now: usize| {
                    if step == now {
                        stage.attacked();
                        end();
                    }
                };
                at(0);
                let _ = peer::send(&socket, &plan.greeting(HELLO), &[ring.as_fd(), pool.as_fd()]);
                at(1);
                peer::recv(&socket);
                at(2);
                let _ = peer::send(&socket, &plan.greeting(SETTLED), &[]);
                at(3);
                peer::recv(&socket);
                at(4);
            }));
        }
    }
}

fn die() {
    // SAFETY: a signal to this process alone.
    unsafe { libc::raise(libc::SIGKILL) };
}

/// Hostile receivers.
fn answers(rows: &mut Vec<Row>, against: Against) {
    let mut add = |attack: &str, holds, peer: Box<dyn Fn(&Stage)>| {
        let attack: &'static str = attack.to_owned().leak();
        rows.push(Row::new(Level::Mmu, against, attack, holds, move |stage| peer(stage)));
    };
    let clone = |fd: &OwnedFd| vec![fd.try_clone().unwrap()];
    for (attack, lie) in lies() {
        add(attack, Holds::Refused, Box::new(move |stage| welcome(stage, lie, clone)));
    }
    for (what, file) in wrong_files() {
        add(
            &format!("sends {what} for the ring"),
            Holds::Refused,
            Box::new(move |stage| {
                welcome(stage, |_| (), |ring| vec![file(rustix::fs::fstat(ring).unwrap().st_size as u64)]);
            }),
        );
    }
    for count in [0, 2, 9, 253] {
        add(
            &format!("sends {count} descriptors with its answer"),
            Holds::Refused,
            Box::new(move |stage| {
                welcome(stage, |_| (), |ring| (0..count).map(|_| ring.try_clone().unwrap()).collect());
            }),
        );
    }
    add(
        "is a sender as well",
        Holds::Refused,
        Box::new(|stage| {
            let plan = Plan::honest(Level::Mmu);
            let (ring, pool) = files(&plan);
            hello(stage, &plan.greeting(HELLO), &[&ring, &pool]);
        }),
    );
    add(
        "sends the sender's own ring back",
        Holds::Refused,
        Box::new(|stage| {
            let socket = stage.socket();
            let (_, fds) = peer::recv(&socket);
            let _ = peer::send(&socket, &Plan::honest(Level::Mmu).greeting(WELCOME), &[fds[0].as_fd()]);
            let _ = peer::send(&socket, &Plan::honest(Level::Mmu).greeting(READY), &[]);
            stage.attacked();
            stage.linger();
        }),
    );
    add(
        "answers twice",
        Holds::Refused,
        Box::new(|stage| {
            let socket = stage.socket();
            let (said, _) = peer::recv(&socket);
            let mut plan = Plan::honest(stage.level);
            plan.learn(&said);
            let ring = peer::memfd(plan.reverse_bytes(), 4096, plan.ring_seals).0;
            for _ in 0..2 {
                let _ = peer::send(&socket, &plan.greeting(WELCOME), &[ring.as_fd()]);
            }
            stage.attacked();
            stage.linger();
        }),
    );
    add(
        "is ready with a descriptor",
        Holds::Refused,
        Box::new(|stage| {
            let socket = stage.socket();
            let (said, fds) = peer::recv(&socket);
            let mut plan = Plan::honest(stage.level);
            plan.learn(&said);
            let ring = peer::memfd(plan.reverse_bytes(), 4096, plan.ring_seals).0;
            let _ = peer::send(&socket, &plan.greeting(WELCOME), &[ring.as_fd()]);
            peer::recv(&socket);
            let _ = peer::send(&socket, &plan.greeting(READY), &[fds[0].as_fd()]);
            stage.attacked();
            stage.linger();
        }),
    );
}

/// A receiver that dies or stops at each step, and after it.
fn steps_of_a_receiver(rows: &mut Vec<Row>, against: Against) {
    for (attack, holds, end) in [("dies", Holds::Dead, die as fn()), ("stops", Holds::Late, stop)] {
        for step in 0..5 {
            let attack: &'static str = format!("{attack} after step {step} of the handshake").leak();
            rows.push(Row::new(Level::Mmu, against, attack, holds, move |stage| {
                let socket = stage.socket();
                let at = |now: usize| {
                    if step == now {
                        stage.attacked();
                        end();
                    }
                };
                at(0);
                let (said, _fds) = peer::recv(&socket);
                at(1);
                let mut plan = Plan::honest(stage.level);
                plan.learn(&said);
                let ring = peer::memfd(plan.reverse_bytes(), 4096, plan.ring_seals).0;
                let _ = peer::send(&socket, &plan.greeting(WELCOME), &[ring.as_fd()]);
                at(2);
                peer::recv(&socket);
                at(3);
                let _ = peer::send(&socket, &plan.greeting(READY), &[]);
                at(4);
            }));
        }
        let attack: &'static str = format!("{attack} in the middle of it").leak();
        rows.push(Row::new(Level::Mmu, against, attack, holds, move |stage| {
            let Ok(mut raw) = RawReceiver::meet(stage.socket(), Plan::honest(stage.level)) else { return };
            stage.go();
            raw.ack([0, 0]);
            stage.attacked();
            end();
        }));
    }
}
