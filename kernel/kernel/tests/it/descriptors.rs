//! Descriptors up to the last that a process can have: whatever gives one is refused behind it, and has taken nothing.

use crate::common::far::OUR_PORT;
use crate::common::*;
use pageferry_hal::*;
use pageferry_kernel::*;
use pageferry_model::Schedule;
use std::net::{Ipv4Addr, SocketAddrV4};

/// What a process can have.
const MAX_FILES: usize = 256;

type Opens = fn(&U) -> Result<Vec<Fd>, Errno>;

fn both((one, other): (Fd, Fd)) -> Vec<Fd> {
    vec![one, other]
}

/// Whatever gives descriptors, and how many.
const WAYS: [(&str, usize, Opens); 6] = [
    ("open", 1, |u| u.open("/dev/md0", OpenFlags::READ).map(|fd| vec![fd])),
    ("duplicate", 1, |u| u.duplicate(Fd(0)).map(|fd| vec![fd])),
    ("null socket", 1, |u| u.null_socket().map(|fd| vec![fd])),
    ("socket", 1, |u| u.socket(SocketKind::Stream).map(|fd| vec![fd])),
    ("socket pair", 2, |u| u.socket_pair().map(both)),
    ("pipe", 2, |u| u.pipe().map(both)),
];

#[test]
fn a_process_has_so_many_descriptors_and_no_more() {
    run("xeon-mp", Schedule::Timed, internet(), |u| {
        u.attach_memory_disk(1 << 20).unwrap();
        let first = u.null_socket().unwrap();
        assert_eq!(first, Fd(0));
        for (name, count, open) in WAYS {
            for left in 0..=2 {
                let full: Vec<Fd> = (1..MAX_FILES - left).map(|_| u.duplicate(first).unwrap()).collect();
                let opened = open(u);
                assert_eq!(opened.is_ok(), count <= left, "{name} where {left} are left: {opened:?}");
                match opened {
                    // The lowest that are free.
                    Ok(fds) => {
                        let last = MAX_FILES - left;
                        let expected: Vec<Fd> = (last..last + count).map(|fd| Fd(fd as u32)).collect();
                        assert_eq!(fds, expected, "{name}");
                        fds.iter().for_each(|fd| u.close(*fd).unwrap());
                    }
                    Err(e) => assert_eq!(e, Errno::TooManyFiles, "{name}"),
                }
                let more: Vec<Fd> = (0..left).map(|_| u.duplicate(first).unwrap()).collect();
                assert_eq!(u.duplicate(first), Err(Errno::TooManyFiles), "{name} has taken none");
                full.iter().chain(&more).for_each(|fd| u.close(*fd).unwrap());
                u.kernel().check().unwrap();
            }
        }
        u.close(first).unwrap();
        u.detach_memory_disk().unwrap();
    });
}

/// Who accepts a connection and has no descriptor left does not lose it.
#[test]
fn a_connection_waits_for_a_descriptor() {
    run("xeon-mp", Schedule::Timed, internet(), |u| {
        let here = SocketAddrV4::new(Ipv4Addr::LOCALHOST, OUR_PORT);
        let listening = u.socket(SocketKind::Stream).unwrap();
        u.bind(listening, here).unwrap();
        u.listen(listening, 4).unwrap();
        fork(u, "caller", move |u| {
            let fd = u.socket(SocketKind::Stream).unwrap();
            u.connect(fd, here).unwrap();
            let at = map(u, PAGE_SIZE);
            u.store(at, b"hello");
            assert_eq!(u.write(fd, at, 5), Ok(5));
            u.close(fd).unwrap();
        });
        u.sleep_for(ms_on("xeon-mp", 20)).unwrap();
        let full: Vec<Fd> = (1..MAX_FILES).map(|_| u.duplicate(listening).unwrap()).collect();
        assert_eq!(u.accept(listening).map(|(fd, _)| fd), Err(Errno::TooManyFiles));
        u.close(full[7]).unwrap();
        let (fd, _) = u.accept(listening).unwrap();
        assert_eq!(fd, full[7]);
        let at = map(u, PAGE_SIZE);
        assert_eq!(u.read(fd, at, PAGE_SIZE), Ok(5));
        u.wait().unwrap();
        full.iter().for_each(|fd| u.close(*fd).unwrap());
        u.close(listening).unwrap();
    });
}
