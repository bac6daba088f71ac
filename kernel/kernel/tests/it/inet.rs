//! The Internet protocols on loopback: every byte, in order, whatever the sizes; how connections begin and end, with
//! the errors that Unix has; datagrams; waiting for several descriptors.

use crate::common::*;
use pageferry_hal::*;
use pageferry_kernel::*;
use pageferry_model::Schedule;
use std::net::{Ipv4Addr, SocketAddrV4};

const PAGE: usize = PAGE_SIZE;
const PORT: u16 = 80;

fn server_at(address: Ipv4Addr) -> SocketAddrV4 {
    SocketAddrV4::new(address, PORT)
}

/// A socket that listens.
fn listener(u: &U, backlog: usize) -> Fd {
    let fd = u.socket(SocketKind::Stream).expect("a socket");
    u.bind(fd, server_at(Ipv4Addr::UNSPECIFIED)).expect("the port is free");
    u.listen(fd, backlog).expect("it listens");
    fd
}

fn connected(u: &U, to: SocketAddrV4) -> Fd {
    let fd = u.socket(SocketKind::Stream).expect("a socket");
    u.connect(fd, to).expect("something listens");
    fd
}

/// A server that reads `up` bytes and answers `down`, and a client that does the reverse; both close.
pub(crate) fn exchange(
    name: &str,
    schedule: Schedule,
    config: KernelConfig,
    to: Ipv4Addr,
    up: usize,
    down: usize,
    chunk: usize,
) {
    let ended = run(name, schedule, config, move |u| {
        let listening = listener(u, 4);
        fork(u, "client", move |u| {
            u.close(listening).expect("inherited");
            let fd = connected(u, server_at(to));
            let at = map(u, chunk);
            write_all(u, fd, at, chunk, 1, up);
            u.shutdown(fd, Shutdown::Send).expect("connected");
            assert!(read_all(u, fd, at, chunk, usize::MAX) == bytes(2, 0, down), "the answer");
            u.close(fd).expect("open");
        });
        let (fd, from) = u.accept(listening).expect("a connection");
        assert_eq!(from.ip(), u.socket_names(fd).expect("open").1.expect("connected").ip());
        let at = map(u, chunk);
        assert!(read_all(u, fd, at, chunk, usize::MAX) == bytes(1, 0, up), "the question");
        write_all(u, fd, at, chunk, 2, down);
        u.close(fd).expect("open");
        u.close(listening).expect("open");
        u.wait().expect("the client");
    });
    assert!(ended.counter(KernelCounter::PacketsReceived) >= 6, "it went by packets");
    let counts = ended.kernel.expect("booted").net_counts();
    assert_eq!((counts.malformed, counts.no_room), (0, 0), "{counts:?}");
}

#[test]
fn what_is_sent_arrives_in_order_whatever_the_sizes() {
    for (up, down, chunk) in [
        (1, 1, PAGE),
        (0, 5000, 777),
        (100_000, 3, 1),
        (1 << 20, 1 << 18, 64 << 10),
        (123_457, 654_321, 10_000),
    ] {
        if chunk == 1 {
            exchange("xeon-up", Schedule::Timed, internet(), LOCALHOST, 3000, down, chunk);
        } else {
            exchange("xeon-up", Schedule::Timed, internet(), LOCALHOST, up, down, chunk);
        }
    }
    exchange("xeon-mp", Schedule::Timed, internet(), OUR_ADDRESS, 300_000, 300_000, 9000);
}

#[test]
fn schedules_make_no_difference() {
    for seed in 0..12 {
        exchange("xeon-mp-htt", Schedule::Seeded(seed), internet(), LOCALHOST, 60_000, 20_000, 5000);
    }
}

#[test]
fn a_closed_port_refuses() {
    run("xeon-up", Schedule::Timed, internet(), |u| {
        let fd = u.socket(SocketKind::Stream).expect("a socket");
        assert_eq!(u.connect(fd, server_at(LOCALHOST)), Err(Errno::ConnectionRefused));
        let far = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 1);
        let other = u.socket(SocketKind::Stream).expect("a socket");
        assert_eq!(u.connect(other, far), Err(Errno::NetUnreachable));
        assert_eq!(u.shutdown(other, Shutdown::Send), Err(Errno::NotConnected));
        let at = map(u, PAGE);
        assert_eq!(u.read(other, at, 1), Err(Errno::NotConnected));
        assert_eq!(u.write(other, at, 1), Err(Errno::NotConnected));
        assert_eq!(u.accept(other), Err(Errno::Invalid));
    });
}

#[test]
fn names_are_given_once() {
    run("xeon-up", Schedule::Timed, internet(), |u| {
        let listening = listener(u, 1);
        let other = u.socket(SocketKind::Stream).expect("a socket");
        assert_eq!(u.bind(other, server_at(LOCALHOST)), Err(Errno::AddressInUse));
        let far = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 0);
        assert_eq!(u.bind(other, far), Err(Errno::AddressNotAvailable));
        u.bind(other, SocketAddrV4::new(LOCALHOST, 0)).expect("some port");
        let (name, peer) = u.socket_names(other).expect("open");
        assert!(name.port() >= 49152 && peer.is_none(), "{name}");
        assert_eq!(u.bind(other, SocketAddrV4::new(LOCALHOST, 0)), Err(Errno::Invalid));
        u.close(listening).expect("open");
        let datagrams = u.socket(SocketKind::Datagram).expect("a socket");
        u.bind(datagrams, server_at(LOCALHOST)).expect("another protocol's port");
        assert_eq!(u.listen(datagrams, 1), Err(Errno::NotSupported));
    });
}

#[test]
fn a_reset_is_told_once_and_then_the_pipe_is_broken() {
    run("xeon-up", Schedule::Timed, internet(), |u| {
        let listening = listener(u, 1);
        let client = fork(u, "client", move |u| {
            let fd = connected(u, server_at(LOCALHOST));
            let at = map(u, PAGE);
            assert_eq!(u.read(fd, at, 1), Err(Errno::ConnectionReset));
            assert_eq!(u.write(fd, at, 1), Err(Errno::BrokenPipe));
        });
        let (fd, _) = u.accept(listening).expect("a connection");
        until_asleep(u, client);
        u.set_socket_option(fd, SocketOption::ResetOnClose(true)).expect("a stream");
        u.close(fd).expect("open");
        u.wait().expect("the client");
    });
}

#[test]
fn closing_a_listener_ends_what_it_has_not_handed_out() {
    run("xeon-up", Schedule::Timed, internet(), |u| {
        let listening = listener(u, 4);
        fork(u, "client", move |u| {
            u.close(listening).expect("inherited");
            let fd = connected(u, server_at(LOCALHOST));
            let at = map(u, PAGE);
            assert_eq!(u.read(fd, at, 1), Err(Errno::ConnectionReset));
        });
        while u.poll(&mut [Polled::new(listening, true, false)], None) != Ok(1) {}
        u.close(listening).expect("open");
        u.wait().expect("the client");
    });
}

#[test]
fn a_sender_waits_for_a_reader_and_its_window() {
    run("xeon-mp", Schedule::Timed, internet(), |u| {
        let listening = listener(u, 1);
        let writer = fork(u, "writer", move |u| {
            let fd = connected(u, server_at(LOCALHOST));
            let at = map(u, 64 << 10);
            write_all(u, fd, at, 64 << 10, 9, 1 << 20);
        });
        let (fd, _) = u.accept(listening).expect("a connection");
        // Both buffers fill up, and the writer sleeps until there is a window again.
        until_asleep(u, writer);
        u.sleep_for(Cycles(2_400_000 * 3000)).expect("alive");
        let at = map(u, PAGE);
        assert!(read_all(u, fd, at, PAGE, usize::MAX) == bytes(9, 0, 1 << 20));
        u.wait().expect("the writer");
    });
}

#[test]
fn nonblocking_sockets_say_what_would_wait() {
    run("xeon-up", Schedule::Timed, internet(), |u| {
        let listening = listener(u, 1);
        u.set_nonblocking(listening, true).expect("open");
        assert_eq!(u.accept(listening), Err(Errno::WouldBlock));
        let fd = u.socket(SocketKind::Stream).expect("a socket");
        u.set_nonblocking(fd, true).expect("open");
        assert_eq!(u.connect(fd, server_at(LOCALHOST)), Err(Errno::InProgress));
        let mut both = [Polled::new(fd, false, true), Polled::new(listening, true, false)];
        while !(both[0].ready.writable && both[1].ready.readable) {
            assert!(u.poll(&mut both, None).expect("open") > 0);
        }
        assert_eq!(u.connect(fd, server_at(LOCALHOST)), Err(Errno::IsConnected));
        let (peer, _) = u.accept(listening).expect("it is there");
        let at = map(u, PAGE);
        assert_eq!(u.read(fd, at, 1), Err(Errno::WouldBlock));
        let mut readable = [Polled::new(fd, true, false)];
        assert_eq!(u.poll(&mut readable, Some(Cycles(0))), Ok(0));
        assert_eq!(u.poll(&mut readable, Some(Cycles(24_000_000))), Ok(0), "time passes");
        u.write(peer, at, 1).expect("connected");
        assert_eq!(u.poll(&mut readable, None), Ok(1));
        assert_eq!(u.read(fd, at, 10), Ok(1));
        let mut sent = 0;
        let chunk = map(u, 64 << 10);
        let full = loop {
            match u.write(fd, chunk, 64 << 10) {
                Ok(n) => sent += n,
                Err(e) => break e,
            }
        };
        assert!(full == Errno::WouldBlock && sent >= 32768, "{full}, {sent}");
    });
}

#[test]
fn datagrams_come_whole_or_cut_with_their_senders_name() {
    run("xeon-up", Schedule::Timed, internet(), |u| {
        let server = u.socket(SocketKind::Datagram).expect("a socket");
        u.bind(server, server_at(LOCALHOST)).expect("free");
        let client = u.socket(SocketKind::Datagram).expect("a socket");
        let (at, to) = (map(u, 16 << 10), map(u, 16 << 10));
        u.store(at, &bytes(3, 0, 9000));
        assert_eq!(u.write(client, at, 10), Err(Errno::DestinationRequired));
        assert_eq!(u.send_to(client, at, 9000, server_at(LOCALHOST)), Ok(9000));
        assert_eq!(u.send_to(client, at, 0, server_at(LOCALHOST)), Ok(0));
        assert_eq!(u.send_to(client, at, 100, server_at(LOCALHOST)), Ok(100));
        let end = to + ((16 << 10) - 50);
        assert_eq!(u.send_to(client, end, 100, server_at(LOCALHOST)), Err(Errno::Fault), "beyond the buffer");
        let (len, from) = u.receive_from(server, to, 16 << 10).expect("the first");
        let mut got = vec![0; len];
        u.load(to, &mut got);
        assert!(got == bytes(3, 0, 9000));
        assert_eq!(u.receive_from(server, to, 16 << 10), Ok((0, from)));
        assert_eq!(u.receive_from(server, to, 10), Ok((10, from)), "cut");
        u.connect(client, server_at(LOCALHOST)).expect("datagrams are connected at once");
        assert_eq!(u.write(client, at, 5), Ok(5));
        assert_eq!(u.receive_from(server, to, 10).expect("it came").0, 5);
        u.set_nonblocking(server, true).expect("open");
        assert_eq!(u.receive_from(server, to, 10), Err(Errno::WouldBlock));
        let big = map(u, 64 << 10);
        assert_eq!(u.write(client, big, 16_400), Err(Errno::MessageSize), "more than loopback carries");
    });
}

#[test]
fn processes_that_are_killed_leave_nothing() {
    for seed in 0..8 {
        run("xeon-mp", Schedule::Seeded(seed), internet(), |u| {
            let listening = listener(u, 4);
            fork(u, "client", move |u| {
                let fd = connected(u, server_at(LOCALHOST));
                let at = map(u, PAGE);
                let _ = u.write(fd, at, PAGE);
                // Ends with data on its way both ways, and nothing closed.
            });
            let (fd, _) = u.accept(listening).expect("a connection");
            let at = map(u, PAGE);
            let _ = u.write(fd, at, PAGE);
        });
    }
}

#[test]
fn a_kernel_without_the_protocols_says_so() {
    run("xeon-up", Schedule::Timed, sockets(), |u| {
        assert_eq!(u.socket(SocketKind::Stream), Err(Errno::NotSupported));
    });
}

#[test]
fn a_file_is_sent_by_the_kernel() {
    run("xeon-mp", Schedule::Timed, internet(), |u| {
        const LEN: usize = 300_001;
        let flags = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE;
        let file = u.open("index.html", flags).expect("made");
        let at = map(u, 64 << 10);
        write_all(u, file, at, 64 << 10, 5, LEN);
        let listening = listener(u, 1);
        fork(u, "client", move |u| {
            u.close(listening).expect("inherited");
            let fd = connected(u, server_at(LOCALHOST));
            let at = map(u, 10_000);
            assert!(read_all(u, fd, at, 10_000, usize::MAX) == bytes(5, 100, LEN - 100));
        });
        let (fd, _) = u.accept(listening).expect("a connection");
        assert_eq!(u.send_file(fd, file, 100, 4000, SendMode::Copy), Ok(4000));
        assert_eq!(u.send_file(fd, file, 4100, 1 << 30, SendMode::Copy), Ok(LEN - 4100), "to its end");
        assert_eq!(u.send_file(fd, file, LEN as u64, 1, SendMode::Copy), Ok(0));
        assert_eq!(u.send_file(file, fd, 0, 1, SendMode::Copy), Err(Errno::NotSupported));
        u.shutdown(fd, Shutdown::Send).expect("connected");
        assert_eq!(u.send_file(fd, file, 0, 1, SendMode::Copy), Err(Errno::BrokenPipe));
        u.wait().expect("the client");
        // Local sockets take files, too.
        let (one, other) = u.socket_pair().expect("sockets");
        assert_eq!(u.send_file(one, file, 7, 5000, SendMode::Copy), Ok(5000));
        assert!(read_all(u, other, at, 5000, 5000) == bytes(5, 7, 5000));
        // A file that is shorter than was asked ends where it ends.
        u.truncate(file, 10).expect("open");
        assert_eq!(u.send_file(one, file, 4, 5000, SendMode::Copy), Ok(6));
        assert!(read_all(u, other, at, 6, 6) == bytes(5, 4, 6));
        u.unlink("index.html").expect("it is there");
    });
}
