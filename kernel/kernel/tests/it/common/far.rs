//! Hosts at the far end of the card's wire, and conversations with them.

use super::*;
use pageferry_model::net::smol::{
    Client, Ended as TalkEnded, Service, SmolConfig, SmolFarEnd, Talks, pattern,
};
use pageferry_model::net::{FarEnd, Wire};
use std::net::{Ipv4Addr, SocketAddrV4};

/// Where the far end is.
pub const FAR_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// A millisecond.
pub const MS: Cycles = Cycles(2_400_000);
/// The port that our server is at; and those of theirs.
pub const OUR_PORT: u16 = 9;
pub const ECHO: SocketAddrV4 = SocketAddrV4::new(FAR_ADDRESS, 7);
pub const SOURCE: SocketAddrV4 = SocketAddrV4::new(FAR_ADDRESS, 19);
pub const DISCARD: SocketAddrV4 = SocketAddrV4::new(FAR_ADDRESS, 10);

/// A host that does nothing yet.
pub fn far_end(seed: u64) -> SmolFarEnd {
    // Where a seed decides whose turn it is, time goes by as fast as it likes.
    SmolFarEnd::new(SmolConfig { ip: FAR_ADDRESS, seed, ..SmolConfig::default() })
}

/// What a host says at our port, and what it expects to hear.
pub fn caller(at_ns: u64, send: usize, expect: Vec<u8>, closes_first: bool) -> Client {
    let send = patterned(send);
    let to = SocketAddrV4::new(OUR_ADDRESS, OUR_PORT);
    Client { to, from_port: 40_000, at_ns, send, expect, closes_first }
}

/// What a host's source sends, and its callers.
pub fn patterned(len: usize) -> Vec<u8> {
    (0..len as u64).map(pattern).collect()
}

/// A machine whose card is connected to `far`.
pub fn machine_with(name: &str, schedule: Schedule, wire: Wire, far: impl FarEnd + 'static) -> Model {
    let m = machine(name, schedule);
    m.attach_over(wire, Box::new(far));
    m
}

/// Listens at our port.
pub fn our_server(u: &U, backlog: usize) -> Fd {
    let fd = u.socket(SocketKind::Stream).expect("a socket");
    u.bind(fd, SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, OUR_PORT)).expect("the port is free");
    u.listen(fd, backlog).expect("it listens");
    fd
}

/// A connection to `to`.
pub fn connected(u: &U, to: SocketAddrV4) -> Fd {
    let fd = u.socket(SocketKind::Stream).expect("a socket");
    u.connect(fd, to).expect("something listens");
    fd
}

/// Says `len` bytes to their echo while another process hears what comes back.
pub fn echo(u: &U, len: usize, chunk: usize) {
    let fd = connected(u, ECHO);
    fork(u, "writer", move |u| {
        let at = map(u, chunk);
        write_all(u, fd, at, chunk, 5, len);
        u.shutdown(fd, Shutdown::Send).expect("connected");
    });
    let at = map(u, chunk);
    assert!(read_all(u, fd, at, chunk, usize::MAX) == bytes(5, 0, len), "the echo");
    u.close(fd).expect("open");
    u.wait().expect("the writer");
}

/// Waits until `done`, for a minute at most.
pub fn wait_until(u: &U, done: impl Fn() -> bool) {
    for _ in 0..60_000 {
        if done() {
            return;
        }
        u.sleep_for(MS).expect("alive");
    }
    panic!("it does not come, after a minute");
}

/// How two hosts talk.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Bytes to their echo, and back.
    pub echoed: usize,
    /// What their caller says at our port, and what we answer.
    pub heard: usize,
    pub answered: usize,
    /// Bytes of each call.
    pub chunk: usize,
    /// Their caller closes its side before it has our answer.
    pub closes_first: bool,
}

/// Everything at once: our echo, their call. Every byte is compared on both sides; over a wire that does nothing both
/// sides know in the end that they are done.
pub fn converse(name: &str, schedule: Schedule, config: KernelConfig, wire: Wire, plan: Plan) -> Ended {
    converse_on(name, schedule, config, wire, plan, |_| ())
}

/// As [`converse`]; `prepare` does something with the machine first.
pub fn converse_on(
    name: &str,
    schedule: Schedule,
    config: KernelConfig,
    wire: Wire,
    plan: Plan,
    prepare: impl FnOnce(&Model),
) -> Ended {
    let what = format!("{name}, {schedule}, {wire:?}, {plan:?}");
    let ended = try_converse_on(name, schedule, config, wire, plan, prepare);
    sound(&ended.0, &what);
    ended.1.unwrap_or_else(|e| panic!("{what}: {e}"));
    ended.0
}

/// As [`converse_on`], whatever comes of it; and what was wrong with what the far end heard.
pub fn try_converse_on(
    name: &str,
    schedule: Schedule,
    config: KernelConfig,
    wire: Wire,
    plan: Plan,
    prepare: impl FnOnce(&Model),
) -> (Ended, Result<(), String>) {
    let mut far = far_end(wire.seed);
    let echoes = far.listen(ECHO.port(), Service::Echo);
    let answer = bytes(6, 0, plan.answered);
    let calls = far.connect(caller(20_000_000, plan.heard, answer, plan.closes_first));
    let m = machine_with(name, schedule, wire, far);
    prepare(&m);
    let (theirs, good) =
        ([echoes.clone(), calls.clone()], wire == Wire { seed: wire.seed, ..Wire::default() });
    let ended = try_run_on(m, name, config, move |u| {
        let listening = our_server(u, 4);
        fork(u, "client", move |u| {
            u.close(listening).expect("inherited");
            echo(u, plan.echoed, plan.chunk);
        });
        let (fd, from) = u.accept(listening).expect("their call");
        assert_eq!(*from.ip(), FAR_ADDRESS);
        let at = map(u, plan.chunk);
        let max_bytes = if plan.closes_first { usize::MAX } else { plan.heard };
        assert!(read_all(u, fd, at, plan.chunk, max_bytes) == patterned(plan.heard), "their call");
        write_all(u, fd, at, plan.chunk, 6, plan.answered);
        if !plan.closes_first {
            // They close when they have all of it.
            assert!(read_all(u, fd, at, plan.chunk, usize::MAX).is_empty(), "all was heard");
        }
        u.close(fd).expect("open");
        u.close(listening).expect("open");
        u.wait().expect("the client");
        let over = |talks: &Talks| talks.all().iter().all(|talk| talk.ended.is_some());
        if good {
            wait_until(u, || theirs.iter().all(over));
        }
    });
    let heard = [(echoes, plan.echoed), (calls, plan.answered)];
    let right = heard.iter().try_for_each(|(talks, len)| {
        let all = talks.all();
        let is_right = all.len() == 1
            && all[0].differs_at.is_none()
            && all[0].received == *len as u64
            && (!good || all[0].ended.is_some_and(|(how, _)| how == TalkEnded::Closed));
        if is_right { Ok(()) } else { Err(format!("{all:?} instead of {len} bytes")) }
    });
    (ended, right)
}
