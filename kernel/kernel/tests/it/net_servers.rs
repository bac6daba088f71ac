//! Protocols and a network card that are servers': programs make the same calls as under a kernel that has them itself,
//! and get the same answers.

use crate::common::far::*;
use crate::common::puppet::*;
use crate::common::*;
use crate::ispc::{PAGE, ant, check, load, served};
use pageferry_hal::*;
use pageferry_kernel::*;
use pageferry_model::Schedule;
use pageferry_model::net::smol::Service;
use pageferry_model::net::{FarEnd, Wire};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::rc::Rc;

/// The microkernel with a protocol server and a driver's server; `name` is the machine that it is for.
fn with_servers(name: &str, method: Method, defect: Planted<NetServiceDefect>) -> KernelConfig {
    let mut config = ant(method);
    if name != "sh7751r" {
        config = KernelConfig { ispc: config.ispc, ..sf_buf(64) };
    }
    config.net = internet().net;
    let ispc = config.ispc.as_mut().expect("it has an area");
    let paths = NetServicePaths::all(CodePath::of(100));
    ispc.net = Some(NetServiceConfig { data_pages: 2, frames: 4, buffers: 64, paths, defect });
    config
}

/// Runs a program on such a kernel, whose card is connected to `far`.
fn try_with(
    (name, method): (&str, Method),
    defect: Planted<NetServiceDefect>,
    far: impl FarEnd + 'static,
    init: impl FnOnce(&U) + 'static,
) -> Ended {
    let m = machine_with(name, Schedule::Timed, Wire::default(), far);
    try_run_on(m, name, with_servers(name, method, defect), init)
}

fn echoing(seed: u64) -> impl FarEnd + 'static {
    let mut far = far_end(seed);
    let _ = far.listen(ECHO.port(), Service::Echo);
    far
}

/// Milliseconds of the machine's.
fn ms(u: &U, count: u64) -> Cycles {
    Cycles(u.kernel().config().net.expect("it has one").ms_cycles.0 * count)
}

/// A conversation with a far end: both sides call, and every byte is compared. Over a wire that does nothing nothing is
/// lost in between either; what is lost on another is sent again.
#[test]
fn two_hosts_talk_through_servers() {
    on_named_machines!();
    let plan = Plan { echoed: 60_000, heard: 20_000, answered: 30_000, chunk: 9000, closes_first: false };
    for (name, method) in served() {
        let config = with_servers(name, method, Planted::NONE);
        let ended = converse(name, Schedule::Timed, config, Wire::default(), plan);
        let counts = ended.kernel.as_ref().expect("it booted").net_counts();
        assert_eq!(
            (counts.retransmitted, counts.malformed, counts.no_room),
            (0, 0, 0),
            "{method:?} on {name}"
        );
        assert_eq!(ended.m.nic_statistics().missed, 0, "{method:?} on {name}");
        let few = Plan { echoed: 9_000, heard: 7_000, answered: 8_000, ..plan };
        for seed in 0..3 {
            let wire = Wire {
                seed,
                loss_ppm: 30_000,
                duplicate_ppm: 50_000,
                reorder_ppm: 50_000,
                corrupt_ppm: 10_000,
                reorder_ns: 200_000,
                delay_ns: 20_000,
            };
            let config = with_servers(name, method, Planted::NONE);
            converse(name, Schedule::Timed, config, wire, few);
        }
    }
}

/// Both ends on this machine, by calls that wait.
#[test]
fn both_ends_may_be_here() {
    on_named_machines!();
    for (name, method) in served() {
        for (to, up, down, chunk) in
            [(LOCALHOST, 0, 5000, 777), (OUR_ADDRESS, 123_457, 65_432, 10_000), (LOCALHOST, 1, 1, PAGE)]
        {
            let config = with_servers(name, method, Planted::NONE);
            crate::inet::exchange(name, Schedule::Timed, config, to, up, down, chunk);
        }
    }
    for seed in 0..6 {
        let config = with_servers("xeon-mp", Method::Random, Planted::NONE);
        crate::inet::exchange("xeon-mp", Schedule::Seeded(seed), config, LOCALHOST, 20_000, 9_000, 5000);
        let config = with_servers("xeon-mp", Method::Migrating, Planted::NONE);
        crate::inet::exchange("xeon-mp", Schedule::Seeded(seed), config, LOCALHOST, 20_000, 9_000, 5000);
    }
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

/// Makes socket calls that do not wait, right ones and wrong ones; every answer goes into the log.
fn calls(u: &U, seed: u64, steps: u64, log: &RefCell<Vec<String>>) {
    const BUFFER: usize = 4 * PAGE;
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let buffer = map(u, BUFFER + PAGE);
    // Behind the buffer is nothing.
    u.unmap(buffer + BUFFER, PAGE).unwrap();
    let mut open: Vec<Fd> = Vec::new();
    let say = |what: String| log.borrow_mut().push(what);
    let digest = |at: Va, len: usize| {
        load(u, at, len).iter().fold(7u64, |sum, b| sum.wrapping_mul(31).wrapping_add(u64::from(*b)))
    };
    for step in 0..steps {
        let which = dice.below(open.len().max(1) as u64) as usize;
        let fd = open.get(which).copied().unwrap_or(Fd(200));
        let name = SocketAddrV4::new(
            [LOCALHOST, OUR_ADDRESS, Ipv4Addr::UNSPECIFIED, Ipv4Addr::new(192, 0, 2, 1)]
                [dice.below(10).saturating_sub(6) as usize],
            1000 + dice.below(4) as u16,
        );
        // Some that the buffer has not.
        let from = dice.below(4) as usize * PAGE + dice.below(90) as usize;
        let len = dice.below(9000) as usize * usize::from(dice.below(9) > 0);
        match dice.below(20) {
            0..=2 if open.len() < 9 => {
                let kind = if dice.below(3) == 0 { SocketKind::Datagram } else { SocketKind::Stream };
                let made = u.socket(kind);
                say(format!("{step} socket {kind:?}: {made:?}"));
                let fd = made.unwrap();
                u.set_nonblocking(fd, true).unwrap();
                open.push(fd);
            }
            0..=3 => say(format!("{step} bind {fd:?} {name}: {:?}", u.bind(fd, name))),
            4 => say(format!("{step} listen {fd:?}: {:?}", u.listen(fd, 1 + step as usize % 3))),
            5 | 6 => say(format!("{step} connect {fd:?} {name}: {:?}", u.connect(fd, name))),
            7 | 8 => {
                for fd in open.clone() {
                    let accepted = u.accept(fd);
                    say(format!("{step} accept {fd:?}: {accepted:?}"));
                    if let Ok((fd, _)) = accepted {
                        u.set_nonblocking(fd, true).unwrap();
                        open.push(fd);
                    }
                }
            }
            9..=11 => {
                u.store(buffer, &bytes(seed + step, 0, BUFFER));
                say(format!("{step} write {fd:?} {len}: {:?}", u.write(fd, buffer + from, len)));
            }
            12..=14 => {
                let read = u.read(fd, buffer + from, len);
                let digest = digest(buffer + from, read.unwrap_or(0));
                say(format!("{step} read {fd:?} {len}: {read:?} {digest}"));
            }
            15 => {
                u.store(buffer, &bytes(seed + step, 0, BUFFER));
                let sent = u.send_to(fd, buffer + from, len, name);
                say(format!("{step} send {fd:?} {len} to {name}: {sent:?}"));
            }
            16 => {
                let got = u.receive_from(fd, buffer + from, len);
                let digest = digest(buffer + from, got.map_or(0, |(len, _)| len));
                say(format!("{step} receive {fd:?} {len}: {got:?} {digest}"));
            }
            17 => {
                let how = [Shutdown::Receive, Shutdown::Send, Shutdown::Both][dice.below(3) as usize];
                say(format!("{step} shutdown {fd:?} {how:?}: {:?}", u.shutdown(fd, how)));
            }
            18 => {
                let option = [
                    SocketOption::SendBuffer(len),
                    SocketOption::ReceiveBuffer(len * 2),
                    SocketOption::ReuseAddress(len.is_multiple_of(2)),
                    SocketOption::NoDelay(len.is_multiple_of(2)),
                    SocketOption::ResetOnClose(len.is_multiple_of(2)),
                ][dice.below(5) as usize];
                let set = u.set_socket_option(fd, option);
                say(format!("{step} option {fd:?} {option:?}: {set:?}, {:?}", u.socket_error(fd)));
            }
            _ if open.is_empty() => {}
            _ if dice.below(2) == 0 => {
                open.remove(which);
                say(format!("{step} close {fd:?}: {:?}", u.close(fd)));
            }
            _ => {}
        }
        // What is on its way arrives.
        u.sleep_for(ms(u, 3)).unwrap();
        let mut polled: Vec<Polled> = open.iter().map(|fd| Polled::new(*fd, true, true)).collect();
        let ready = u.poll(&mut polled, Some(Cycles(0)));
        let names: Vec<_> = open.iter().map(|fd| u.socket_names(*fd)).collect();
        say(format!("{step} {ready:?} {:?} {names:?}", polled.iter().map(|p| p.ready).collect::<Vec<_>>()));
    }
    open.into_iter().for_each(|fd| u.close(fd).unwrap());
}

/// One seeded program under a kernel that has its protocols itself, and under servers by every method: the same bytes,
/// the same errors.
#[test]
fn answers_and_bytes_are_those_of_a_kernel_that_has_its_protocols_itself() {
    on_named_machines!();
    let (mut moved, mut refused) = (0, 0);
    for seed in 1..5 {
        let log = Rc::new(RefCell::new(Vec::new()));
        let program = || {
            let log = log.clone();
            move |u: &U| calls(u, seed, 250, &log)
        };
        let mut config = with_servers("sh7751r", Method::Random, Planted::NONE);
        config.ispc.as_mut().unwrap().net = None;
        run("sh7751r", Schedule::Timed, config, program());
        let own = log.take();
        moved += own.iter().filter(|line| line.contains(" read ") && line.contains("Ok(")).count();
        refused += own.iter().filter(|line| line.contains("ConnectionRe")).count();
        for (name, method) in served() {
            let ended = try_with((name, method), Planted::NONE, far_end(1), program());
            sound(&ended, &format!("seed {seed}, {method:?} on {name}"));
            for (own, servers) in own.iter().zip(log.take()) {
                assert_eq!(*own, servers, "seed {seed}, {method:?} on {name}");
            }
        }
    }
    assert!(moved > 20 && refused > 5, "{moved} reads, {refused} refusals");
}

/// Datagrams to and from the wire, whole or cut; a call that waits is woken, or interrupted.
#[test]
fn datagrams_go_over_the_wire() {
    on_named_machines!();
    for (name, method) in served() {
        let (m, puppet) = on_strings(name);
        let config = with_servers(name, method, Planted::NONE);
        let ended = try_run_on(m, name, config, move |u| {
            let fd = u.socket(SocketKind::Datagram).unwrap();
            u.bind(fd, SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 53)).unwrap();
            let at = map(u, 4 * PAGE);
            let waits = fork(u, "waits", move |u| {
                let at = map(u, PAGE);
                let (len, from) = u.receive_from(fd, at, PAGE).unwrap();
                assert_eq!((load(u, at, len), from), (b"hello".to_vec(), SocketAddrV4::new(FAR_ADDRESS, 7)));
                assert_eq!(u.receive_from(fd, at, PAGE), Err(Errno::Interrupted));
            });
            until_asleep(u, waits);
            puppet.send(datagram(7, 53, b"hello"));
            u.sleep_for(ms(u, 20)).unwrap();
            until_asleep(u, waits);
            u.signal(waits).unwrap();
            assert_eq!(u.wait(), Ok(waits));
            u.set_nonblocking(fd, true).unwrap();
            assert_eq!(u.receive_from(fd, at, PAGE), Err(Errno::WouldBlock));
            puppet.send(datagram(7, 53, &[5; 1000]));
            u.sleep_for(ms(u, 20)).unwrap();
            assert_eq!(u.receive_from(fd, at, 10).map(|(len, _)| len), Ok(10), "cut");
            puppet.take();
            let to = SocketAddrV4::new(FAR_ADDRESS, 7);
            for number in 0..6u8 {
                u.store(at, &[number; 1400]);
                assert_eq!(u.send_to(fd, at, 1400, to), Ok(1400));
            }
            assert_eq!(u.send_to(fd, at, 1480, to), Err(Errno::MessageSize));
            assert_eq!(u.send_to(fd, at, 3 * PAGE, to), Err(Errno::MessageSize), "more than a request has");
            assert_eq!(u.send_to(fd, at + 3 * PAGE, 2 * PAGE, to), Err(Errno::Fault));
            u.sleep_for(ms(u, 20)).unwrap();
            let heard = puppet.take();
            let data: Vec<_> = heard.iter().filter(|f| f.len() > 1400).map(|f| f[42..].to_vec()).collect();
            assert_eq!(
                data,
                (0..6).map(|number| vec![number; 1400]).collect::<Vec<_>>(),
                "{method:?} on {name}"
            );
            check(u);
            // A sleep of so long ends by the time.
            let mut polled = [Polled::new(fd, true, false)];
            assert_eq!(u.poll(&mut polled, Some(ms(u, 5))), Ok(0));
            puppet.send(datagram(7, 53, b"x"));
            assert_eq!(u.poll(&mut polled, None), Ok(1));
        });
        sound(&ended, &format!("{method:?} on {name}"));
    }
}

/// A file of the kernel's own is sent by it.
#[test]
fn a_file_is_sent() {
    on_named_machines!();
    for (name, method) in served() {
        let ended = try_with((name, method), Planted::NONE, echoing(1), |u| {
            let flags = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE;
            let file = u.open("index.html", flags).unwrap();
            let at = map(u, 16 << 10);
            write_all(u, file, at, 16 << 10, 5, 30_001);
            let fd = connected(u, ECHO);
            assert_eq!(u.send_file(fd, file, 100, 4000, SendMode::Copy), Ok(4000));
            assert_eq!(u.send_file(fd, file, 4100, 1 << 30, SendMode::Copy), Ok(30_001 - 4100), "to its end");
            assert_eq!(u.send_file(fd, file, 30_001, 1, SendMode::Copy), Ok(0));
            u.shutdown(fd, Shutdown::Send).unwrap();
            assert_eq!(u.send_file(fd, file, 0, 1, SendMode::Copy), Err(Errno::BrokenPipe));
            assert!(read_all(u, fd, at, 16 << 10, usize::MAX) == bytes(5, 100, 30_001 - 100));
            u.close(fd).unwrap();
            u.unlink("index.html").unwrap();
        });
        sound(&ended, &format!("{method:?} on {name}"));
    }
}

/// Programs may not speak to the servers themselves, nor be them; who they are is known.
#[test]
fn the_services_are_the_kernels() {
    on_named_machines!();
    for method in [Method::Random, Method::Previous, Method::Proposed] {
        let ended = try_with(("sh7751r", method), Planted::NONE, far_end(1), |u| {
            assert_eq!(u.kernel().net_servers(), (None, None), "nobody has asked");
            let fd = u.socket(SocketKind::Stream).unwrap();
            assert_eq!(u.write(fd, map(u, PAGE), 1), Err(Errno::NotConnected));
            let control = u.ica_alloc(1, Wait::Yes).unwrap();
            for service in [u32::MAX - 2, u32::MAX - 3] {
                assert_eq!(u.ispc_request(service, control, None, Wait::Yes), Err(Errno::Access));
                assert_eq!(u.ispc_serve(service), Err(Errno::Access));
            }
            let (Some(protocols), Some(driver)) = u.kernel().net_servers() else { panic!("both serve") };
            // A signal is nothing to them.
            u.signal(protocols).unwrap();
            u.signal(driver).unwrap();
            assert_eq!(u.socket_error(fd), Ok(None));
            check(u);
        });
        sound(&ended, &format!("{method:?}"));
    }
}

/// Talks to the echo until a call fails, or `over` says that it was between two calls.
fn talk_until_it_fails(u: &U, at: Va, over: &Cell<bool>) -> Errno {
    let tries = || -> Result<(), Errno> {
        loop {
            if over.get() {
                return Err(Errno::ConnectionReset);
            }
            let fd = u.socket(SocketKind::Stream)?;
            u.connect(fd, ECHO)?;
            for _ in 0..4 {
                let mut sent = u.write(fd, at, 2 * PAGE)?;
                while sent > 0 {
                    sent -= u.read(fd, at, PAGE.min(sent))?;
                }
            }
            u.close(fd)?;
        }
    };
    tries().unwrap_err()
}

/// The protocol server is killed while others use it, or wait for it, at many moments: each is told, all goes back, and
/// the next server knows nothing of what there was.
#[test]
fn a_protocol_server_that_is_killed_in_the_middle() {
    on_named_machines!();
    let seen = Rc::new(RefCell::new(BTreeMap::new()));
    for (at, which) in served().into_iter().enumerate() {
        for moment in 0..7u64 {
            let seen = seen.clone();
            let ended = try_with(which, Planted::NONE, echoing(moment), move |u| {
                let old = our_server(u, 4);
                let over = Rc::new(Cell::new(false));
                let poller = fork(u, "polls", move |u| {
                    let mut polled = [Polled::new(old, true, false)];
                    assert_eq!(u.poll(&mut polled, None), Ok(1));
                    assert!(polled[0].ready.hung_up);
                });
                for number in 0..3 {
                    let (seen, over) = (seen.clone(), over.clone());
                    fork(u, "user", move |u| {
                        let at = map(u, 2 * PAGE);
                        let error = match number {
                            0 => u.accept(old).unwrap_err(),
                            _ => talk_until_it_fails(u, at, &over),
                        };
                        *seen.borrow_mut().entry(format!("{error:?}")).or_insert(0) += 1;
                    });
                }
                u.sleep_for(Cycles(ms(u, 2).0 + moment * (377_777 + at as u64 * 10_000))).unwrap();
                until_asleep(u, poller);
                let (Some(protocols), driver) = u.kernel().net_servers() else { panic!("it serves") };
                u.kill(protocols).unwrap();
                over.set(true);
                (0..4).for_each(|_| _ = u.wait().unwrap());
                check(u);
                let fd = connected(u, ECHO);
                let (next, other) = u.kernel().net_servers();
                assert!(next.is_some_and(|next| next != protocols) && other == driver);
                let at = map(u, 2 * PAGE);
                for told in [u.read(old, at, 1), u.write(old, at, 1), u.accept(old).map(|_| 0)] {
                    assert_eq!(told, Err(Errno::ConnectionReset), "another had that");
                }
                assert_eq!(u.socket_names(old), Err(Errno::ConnectionReset));
                u.close(old).unwrap();
                our_server(u, 1);
                write_all(u, fd, at, PAGE, 3, 3 * PAGE);
                assert!(read_all(u, fd, at, PAGE, 3 * PAGE) == bytes(3, 0, 3 * PAGE));
                check(u);
            });
            sound(&ended, &format!("{which:?}, moment {moment}"));
        }
    }
    let seen = seen.take();
    assert!(seen.get("ConnectionReset").is_some_and(|times| *times > 100), "{seen:?}");
}

/// The driver's server is killed at many moments: another one takes its place, and what was lost is sent again.
#[test]
fn a_driver_that_is_killed_in_the_middle() {
    on_named_machines!();
    let lost = Rc::new(Cell::new(0));
    for which in served() {
        for moment in 0..7u64 {
            let ended = try_with(which, Planted::NONE, echoing(moment), move |u| {
                let first = u.socket(SocketKind::Stream).unwrap();
                fork(u, "kills", move |u| {
                    u.sleep_for(Cycles(ms(u, 1).0 + moment * 277_777)).unwrap();
                    for _ in 0..6 {
                        while u.kernel().net_servers().1.is_none() {
                            u.yield_now().unwrap();
                        }
                        let driver = u.kernel().net_servers().1.unwrap();
                        u.kill(driver).unwrap();
                        u.sleep_for(Cycles(ms(u, 1).0 * 5 / 4)).unwrap();
                        assert_ne!(u.kernel().net_servers().1, Some(driver));
                        check(u);
                    }
                });
                echo(u, 50_000, 5000);
                u.wait().unwrap();
                u.close(first).unwrap();
            });
            sound(&ended, &format!("{which:?}, moment {moment}"));
            lost.set(lost.get() + ended.kernel.unwrap().net_counts().no_room);
        }
    }
    assert!(lost.get() > 10, "{} frames were lost with their driver", lost.get());
}

/// A process that has sockets is killed while its request is with the server, or while it waits: the server and the
/// others go on.
#[test]
fn a_program_that_is_killed_in_the_middle() {
    on_named_machines!();
    for which in served() {
        for moment in 0..6u64 {
            let ended = try_with(which, Planted::NONE, echoing(moment), move |u| {
                let killed = fork(u, "killed", move |u| {
                    our_server(u, 4);
                    let error = talk_until_it_fails(u, map(u, 2 * PAGE), &Cell::new(false));
                    assert!([Errno::Interrupted, Errno::Killed].contains(&error), "{error:?}");
                });
                u.sleep_for(Cycles(ms(u, 1).0 + moment * 377_777)).unwrap();
                u.kill(killed).unwrap();
                assert_eq!(u.wait(), Ok(killed));
                check(u);
                our_server(u, 1);
                echo(u, 9000, 3000);
            });
            sound(&ended, &format!("{which:?}, moment {moment}"));
        }
    }
}

/// The card is taken out at any time: calls fail, and nothing is left.
#[test]
fn a_card_that_is_removed_ends_its_connections() {
    on_named_machines!();
    for which in served() {
        for moment in 0..5u64 {
            let ended = try_with(which, Planted::NONE, echoing(moment), move |u| {
                let first = u.socket(SocketKind::Datagram).unwrap();
                u.machine().remove_nic_at(u.machine().now() + Cycles(1 + ms(u, 1).0 * moment * moment / 2));
                let error = talk_until_it_fails(u, map(u, 2 * PAGE), &Cell::new(false));
                assert!([Errno::Removed, Errno::NetUnreachable].contains(&error), "{error:?}");
                let other = u.socket(SocketKind::Stream).unwrap();
                assert_eq!(u.connect(other, ECHO), Err(Errno::NetUnreachable));
                u.close(first).unwrap();
                let listening = our_server(u, 1);
                let here = connected(u, SocketAddrV4::new(LOCALHOST, OUR_PORT));
                assert!(u.accept(listening).is_ok(), "this host has no need of the card");
                u.close(here).unwrap();
            });
            sound(&ended, &format!("{which:?}, moment {moment}"));
        }
    }
}

/// Reserved entries may be few, and rings small: frames wait, or are lost and sent again.
#[test]
fn little_is_enough() {
    on_named_machines!();
    for (method, reserved) in [(Method::Previous, 8), (Method::Previous, 4), (Method::Proposed, 11)] {
        let mut config = with_servers("sh7751r", method, Planted::NONE);
        let ispc = config.ispc.as_mut().unwrap();
        ispc.reserved = reserved;
        ispc.server_entries = ispc.server_entries.min(reserved);
        let m = machine_with("sh7751r", Schedule::Timed, Wire::default(), echoing(1));
        run_on(m, "sh7751r", &format!("{method:?} with {reserved}"), config, |u| echo(u, 20_000, 5000));
    }
    // An area of as many pages as the card would have alone.
    let mut config = with_servers("sh7751r", Method::Random, Planted::NONE);
    config.ispc.as_mut().unwrap().len_bytes = 256 << 10;
    let m = machine_with("sh7751r", Schedule::Timed, Wire::default(), echoing(1));
    run_on(m, "sh7751r", "a small area", config, |u| echo(u, 20_000, 5000));
    for (slots, method) in [(2, Method::Random), (3, Method::Migrating), (5, Method::Random)] {
        let m = machine_by("xeon-mp", Schedule::Timed, |config| {
            let nic = config.nic.as_mut().expect("it has a card");
            (nic.transmit_slots.value, nic.receive_slots.value) = (slots, slots);
            nic.transmit_fragments.value = slots.min(nic.transmit_fragments.value);
        });
        m.attach(Box::new(echoing(1)));
        let config = with_servers("xeon-mp", method, Planted::NONE);
        run_on(m, "xeon-mp", &format!("{slots} slots"), config, |u| echo(u, 20_000, 5000));
    }
}

/// What finds each planted defect.
fn judge(u: &U) {
    let old = our_server(u, 4);
    let at = map(u, 2 * PAGE);
    u.unmap(at + PAGE, PAGE).unwrap();
    let fd = connected(u, ECHO);
    // The end of the buffer is not there: the next read begins where this ends.
    u.store(at, &bytes(4, 0, PAGE));
    assert_eq!(u.write(fd, at, 300), Ok(300));
    u.sleep_for(ms(u, 20)).unwrap();
    assert_eq!(u.read(fd, at + (PAGE - 100), 200), Ok(100));
    assert_eq!(u.read(fd, at, 50), Ok(50));
    assert_eq!(load(u, at, 50), bytes(4, 100, 50));
    assert!(read_all(u, fd, at, PAGE, 150) == bytes(4, 150, 150));
    // Many frames at once, none of them sent again, by a driver that holds what the card reads.
    fork(u, "writer", move |u| write_all(u, fd, map(u, 16 << 10), 16 << 10, 5, 120_000));
    let mut got = 0;
    while got < 120_000 {
        check(u);
        let part = read_all(u, fd, at, PAGE, PAGE.min(120_000 - got));
        assert!(part == bytes(5, got, part.len()), "byte {got}");
        got += part.len();
    }
    u.wait().unwrap();
    assert_eq!(u.kernel().net_counts().retransmitted, 0, "the wire loses nothing");
    // What is closed is gone.
    u.close(fd).unwrap();
    let listening = u.socket(SocketKind::Stream).unwrap();
    let name = SocketAddrV4::new(LOCALHOST, 77);
    u.bind(listening, name).unwrap();
    u.close(listening).unwrap();
    let again = u.socket(SocketKind::Stream).unwrap();
    assert_eq!(u.bind(again, name), Ok(()));
    u.close(again).unwrap();
    // Nobody answers: the time says so.
    let fd = u.socket(SocketKind::Stream).unwrap();
    assert_eq!(u.connect(fd, SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 99), 1)), Err(Errno::TimedOut));
    u.close(fd).unwrap();
    // Another driver.
    let driver = u.kernel().net_servers().1.unwrap();
    u.kill(driver).unwrap();
    u.sleep_for(ms(u, 10)).unwrap();
    echo(u, 2000, 500);
    // Another server.
    let waits = fork(u, "waits", move |u| assert_eq!(u.accept(old).map(|_| ()), Err(Errno::ConnectionReset)));
    u.sleep_for(ms(u, 5)).unwrap();
    until_asleep(u, waits);
    u.kill(u.kernel().net_servers().0.unwrap()).unwrap();
    u.wait().unwrap();
    let new = our_server(u, 4);
    assert_eq!(u.socket_names(old), Err(Errno::ConnectionReset));
    u.close(old).unwrap();
    u.close(new).unwrap();
}

#[test]
fn planted_defects_are_found() {
    on_named_machines!();
    for which in served() {
        let found = |defect, schedule| {
            let (name, method) = which;
            let mut config = with_servers(name, method, defect);
            config.net.as_mut().unwrap().retransmissions = 4;
            let m = machine_with(name, schedule, Wire::default(), echoing(1));
            let ended = try_run_on(m, name, config, judge);
            let quiescent = |ended: &Ended| ended.kernel.as_ref().map_or(Ok(()), |k| k.check_quiescent());
            (ended.result.is_err() || quiescent(&ended).is_err(), ended)
        };
        // Whether memory that is let go of too early is used again in time is a matter of chance.
        let schedules = [Schedule::Timed, Schedule::Seeded(1), Schedule::Seeded(2), Schedule::Seeded(3)];
        for schedule in schedules {
            let (_, ended) = found(Planted::NONE, schedule);
            sound(&ended, &format!("{which:?}, {schedule:?}"));
        }
        for &defect in NetServiceDefect::ALL {
            let is_found = schedules.iter().any(|schedule| found(defect.into(), *schedule).0);
            assert!(is_found, "{defect:?} by {which:?} is not found");
        }
    }
}

/// Many processes wait for one socket, and are served one after the other.
#[test]
fn many_clients_of_one_server() {
    on_named_machines!();
    for which in served() {
        let ended = try_with(which, Planted::NONE, echoing(1), |u| {
            let listening = our_server(u, 8);
            let here = SocketAddrV4::new(OUR_ADDRESS, OUR_PORT);
            for number in 0..8u64 {
                fork(u, "serves", move |u| {
                    let at = map(u, 3 * PAGE);
                    let (fd, _) = u.accept(listening).unwrap();
                    let heard = read_all(u, fd, at, PAGE, usize::MAX);
                    write_all(u, fd, at, 3 * PAGE, number, 9000);
                    assert!(heard == bytes(7, 0, 6000));
                    u.close(fd).unwrap();
                });
                fork(u, "asks", move |u| {
                    let (fd, at) = (connected(u, here), map(u, PAGE));
                    write_all(u, fd, at, PAGE, 7, 6000);
                    u.shutdown(fd, Shutdown::Send).unwrap();
                    assert_eq!(read_all(u, fd, at, 700, usize::MAX).len(), 9000);
                    u.close(fd).unwrap();
                });
            }
            (0..16).for_each(|_| _ = u.wait().unwrap());
            check(u);
        });
        sound(&ended, &format!("{which:?}"));
    }
}

/// Whose turn it is decides a seed, and servers die: whoever asks is told, and nothing is left.
#[test]
fn servers_that_die_under_any_schedule() {
    on_named_machines!();
    for (seed, method) in (0..16).flat_map(|seed| [(seed, Method::Random), (seed, Method::Migrating)]) {
        let m = machine_with("xeon-mp", Schedule::Seeded(seed), Wire::default(), echoing(seed));
        let config = with_servers("xeon-mp", method, Planted::NONE);
        run_on(m, "xeon-mp", &format!("{method:?}, seed {seed}"), config, move |u| {
            let here = SocketAddrV4::new(OUR_ADDRESS, OUR_PORT);
            let listening = our_server(u, 4);
            let over = Rc::new(Cell::new(false));
            fork(u, "serves", move |u| {
                let at = map(u, PAGE);
                while let Ok((fd, _)) = u.accept(listening) {
                    while u.read(fd, at, PAGE).is_ok_and(|len| len > 0 && u.write(fd, at, len).is_ok()) {}
                    _ = u.close(fd);
                }
            });
            for to in [here, ECHO] {
                let over = over.clone();
                fork(u, "asks", move |u| {
                    let at = map(u, PAGE);
                    let tries = || -> Result<(), Errno> {
                        while !over.get() {
                            let fd = u.socket(SocketKind::Stream)?;
                            u.connect(fd, to)?;
                            u.write(fd, at, 3000)?;
                            u.read(fd, at, PAGE)?;
                            u.close(fd)?;
                        }
                        Err(Errno::ConnectionReset)
                    };
                    let error = tries().unwrap_err();
                    assert!([Errno::ConnectionReset, Errno::ConnectionRefused].contains(&error), "{error}");
                });
            }
            for round in 0..4 {
                u.sleep_for(Cycles(200_000 + seed * 70_001)).unwrap();
                if let (_, Some(driver)) = u.kernel().net_servers() {
                    u.kill(driver).unwrap_or_else(|e| assert_eq!(e, Errno::NoProcess));
                }
                if let (Some(protocols), true) = (u.kernel().net_servers().0, round == 3) {
                    u.kill(protocols).unwrap();
                }
            }
            over.set(true);
            (0..3).for_each(|_| _ = u.wait().unwrap());
            assert_eq!(u.accept(listening).map(|_| ()), Err(Errno::ConnectionReset));
            let again = our_server(u, 1);
            connected(u, here);
            u.close(again).unwrap();
        });
    }
}

/// Frames are short while connections are at work: packets are lost then, or a call says so, and nothing else.
#[test]
fn memory_that_is_short_loses_packets_only() {
    on_named_machines!();
    let which = [("xeon-mp", Method::Random), ("sh7751r", Method::Proposed), ("xeon-mp", Method::Migrating)];
    for (which, left) in which.into_iter().flat_map(|which| [0, 5, 30].map(|left| (which, left))) {
        let ended = try_with(which, Planted::NONE, echoing(1), move |u| {
            let (at, to) = (map(u, PAGE), map(u, PAGE));
            u.store(at, &bytes(5, 0, PAGE));
            u.store(to, &[0]);
            let fd = connected(u, ECHO);
            let hoard = hoard(u, left);
            let (mut sent, mut got) = (0, Vec::new());
            for _ in 0..10 {
                match u.write(fd, at + sent % PAGE, PAGE - sent % PAGE) {
                    Ok(len) => sent += len,
                    Err(error) => assert_eq!(error, Errno::NoMemory),
                }
                u.sleep_for(ms(u, 2)).unwrap();
            }
            u.kernel().vm().free_kernel_pages(hoard);
            while got.len() < sent {
                let len = u.read(fd, to, PAGE.min(sent - got.len())).unwrap();
                got.extend(load(u, to, len));
            }
            assert!(got.chunks(PAGE).all(|part| part == bytes(5, 0, part.len())));
            assert!(left == 0 || sent > 0);
            check(u);
        });
        sound(&ended, &format!("{which:?}, {left} frames"));
    }
}

/// Where no reserved entries are left for the driver's server there is no card, until the next socket after some are;
/// this host has no need of it.
#[test]
fn a_driver_that_cannot_serve() {
    on_named_machines!();
    let mut config = with_servers("sh7751r", Method::Proposed, Planted::NONE);
    config.ispc.as_mut().unwrap().server_entries = 2;
    config.net.as_mut().unwrap().retransmissions = 2;
    let m = machine_with("sh7751r", Schedule::Timed, Wire::default(), echoing(1));
    run_on(m, "sh7751r", "two servers", config, |u| {
        let other = fork(u, "serves", |u| {
            u.ispc_serve(7).unwrap();
            assert_eq!(u.ispc_receive(Wait::Yes).map(|_| ()), Err(Errno::Interrupted));
        });
        until_asleep(u, other);
        let listening = our_server(u, 1);
        assert_eq!(u.kernel().net_servers().1, None);
        connected(u, SocketAddrV4::new(LOCALHOST, OUR_PORT));
        assert!(u.accept(listening).is_ok());
        u.signal(other).unwrap();
        u.wait().unwrap();
        echo(u, 2000, 500);
    });
}
