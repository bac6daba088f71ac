//! Attaching by page tables, for which there may be no frame: of the pieces that go with a request all are attached, or
//! none, and the request can be taken again.

use crate::common::*;
use crate::file_server::mounted;
use crate::ispc::{PAGE, SERVICE, ant, ant_with_files};
use pageferry_hal::*;
use pageferry_kernel::*;
use pageferry_model::Schedule;
use std::cell::Cell;
use std::rc::Rc;

/// More pages than a page table maps.
const FAR: usize = 1100;

/// A kernel whose area is larger than what a page table maps, on a machine without reserved entries.
fn wide(method: Method, has_files: bool) -> KernelConfig {
    let mut config = if has_files { ant_with_files(method, Planted::NONE) } else { ant(method) };
    config.ispc.as_mut().expect("it has an area").len_bytes = 5 << 20;
    KernelConfig { ispc: config.ispc, ..sf_buf(64) }
}

/// Takes the area up but for its first page and what is far from that.
fn spread(u: &U) -> Va {
    let first = u.ica_alloc(1, Wait::Yes).unwrap();
    let between = u.ica_alloc(FAR, Wait::Yes).unwrap();
    u.ica_free(first).unwrap();
    between
}

#[test]
fn a_request_whose_pieces_cannot_be_attached_is_still_there() {
    on_named_machines!();
    for name in ["pentium-pro", "xeon-up"] {
        let failed = Rc::new(Cell::new(0));
        let count = failed.clone();
        run(name, Schedule::Timed, wide(Method::Random, false), move |u| {
            let between = spread(u);
            let (control, data) = (u.ica_alloc(1, Wait::Yes).unwrap(), u.ica_alloc(2, Wait::Yes).unwrap());
            assert!(data.0 - control.0 > (FAR * PAGE) as u64, "in different tables");
            let server = move |u: &U| {
                u.ispc_serve(SERVICE).unwrap();
                for n in 0.. {
                    let request = loop {
                        u.kernel().vm().fail_after(Some(n));
                        let received = u.ispc_receive(Wait::No);
                        let struck = !u.kernel().vm().failure_pending();
                        u.kernel().vm().fail_after(None);
                        u.kernel().check().unwrap();
                        match received {
                            Err(Errno::WouldBlock) => u.yield_now().unwrap(),
                            other => break other.map_err(|why| (why, struck)),
                        }
                    };
                    match request {
                        Ok(request) => {
                            let (at, len) = request.data.unwrap();
                            u.store(at, &bytes(1, 0, len));
                            return u.ispc_return(request.id).unwrap();
                        }
                        Err((why, struck)) => {
                            assert_eq!((why, struck), (Errno::NoMemory, true));
                            count.set(count.get() + 1);
                        }
                    }
                }
            };
            u.fork("server", Box::new(server)).unwrap();
            while u.ispc_request(SERVICE, control, Some(data), Wait::Yes) == Err(Errno::ConnectionRefused) {
                u.yield_now().unwrap();
            }
            let mut found = vec![0; 2 * PAGE];
            u.load(data, &mut found);
            assert!(found == bytes(1, 0, 2 * PAGE));
            [control, data, between].into_iter().for_each(|piece| u.ica_free(piece).unwrap());
            u.wait().unwrap();
        });
        assert!(failed.get() >= 2, "{name}: {} allocations", failed.get());
    }
}

#[test]
fn a_call_whose_pieces_cannot_be_attached_has_none() {
    on_named_machines!();
    for name in ["pentium-pro", "xeon-up"] {
        for method in [Method::Random, Method::Migrating] {
            let failed = Rc::new(Cell::new(0));
            let count = failed.clone();
            run(name, Schedule::Timed, wide(method, true), move |u| {
                mounted(u, 1 << 20);
                let between = spread(u);
                let client = move |u: &U| {
                    let at = map(u, 2 * PAGE);
                    let fd = u.open("/mnt/file", OpenFlags::CREATE | OpenFlags::WRITE).unwrap();
                    for n in 0.. {
                        u.kernel().vm().fail_after(Some(n));
                        let written = u.write(fd, at, 2 * PAGE);
                        let struck = !u.kernel().vm().failure_pending();
                        u.kernel().vm().fail_after(None);
                        u.kernel().check().unwrap();
                        match written {
                            Err(Errno::NoMemory) if struck => count.set(count.get() + 1),
                            // What fails behind the call is its server's business.
                            _ => break,
                        }
                    }
                    assert_eq!(u.write(fd, at, 2 * PAGE), Ok(2 * PAGE));
                };
                u.fork("client", Box::new(client)).unwrap();
                u.wait().unwrap();
                u.ica_free(between).unwrap();
                u.unmount().unwrap();
                u.detach_memory_disk().unwrap();
            });
            assert!(failed.get() > 0, "{name}, {method:?}");
        }
    }
}
