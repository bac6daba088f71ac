//! Objects whose pages a file system has: filled at faults, written back where that is asked for, kept in the swap area
//! meanwhile; with the file as an array of bytes beside them.

#![allow(
    clippy::arc_with_non_send_sync,
    reason = "the interface has Arcs; a modelled machine stays on one thread"
)]

use crate::common::*;
use pageferry_hal::*;
use pageferry_model::{Model, Schedule};
use pageferry_vm::*;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

const PAGE: usize = PAGE_SIZE;
const PAGES: usize = 6;

/// A file, and how often its pages were moved. Some requests fail.
struct Host {
    m: Model,
    bytes: RefCell<Vec<u8>>,
    gets: Cell<usize>,
    puts: Cell<usize>,
    fails: Cell<bool>,
}

struct FilePager(Rc<Host>);

impl VnodePager for FilePager {
    fn get(&self, _: &dyn Threads, page: u64, frame: Pfn) -> Result<(), VmError> {
        if self.0.fails.get() {
            return Err(VmError::Io);
        }
        self.0.gets.set(self.0.gets.get() + 1);
        let bytes = self.0.bytes.borrow();
        let from = (page as usize * PAGE).min(bytes.len());
        let mut whole = bytes[from..(from + PAGE).min(bytes.len())].to_vec();
        whole.resize(PAGE, 0);
        self.0.m.poke_frame(frame, 0, &whole);
        Ok(())
    }

    fn put(&self, _: &dyn Threads, page: u64, frame: Pfn) -> Result<(), VmError> {
        if self.0.fails.get() {
            return Err(VmError::Io);
        }
        self.0.puts.set(self.0.puts.get() + 1);
        let mut bytes = self.0.bytes.borrow_mut();
        let from = page as usize * PAGE;
        let len = PAGE.min(bytes.len().saturating_sub(from));
        bytes[from..from + len].copy_from_slice(&self.0.m.frame_bytes(frame)[..len]);
        Ok(())
    }
}

/// A file of [`PAGES`] pages, the last of them half full; its object; and a shared mapping of it.
struct Shared {
    host: Rc<Host>,
    object: Arc<Object<Model>>,
    space: AddressSpace,
    at: Va,
}

fn len() -> usize {
    PAGES * PAGE - PAGE / 2
}

fn mapped(rig: &Rig, copy_on_write: bool) -> Shared {
    let bytes = RefCell::new(pattern(7, len()));
    let host = Rc::new(Host {
        m: rig.m.clone(),
        bytes,
        gets: Cell::new(0),
        puts: Cell::new(0),
        fails: Cell::new(false),
    });
    let object = rig.vm.vnode_object(PAGES as u64, Arc::new(FilePager(host.clone()))).unwrap();
    let space = rig.vm.space().unwrap();
    let mapped = Mapped { object: object.clone(), first_page: 0, copy_on_write };
    let (prots, inherit) = ((Prot::RW, Prot::RW), if copy_on_write { Inherit::Copy } else { Inherit::Share });
    let at = space.map_at(rig.t(), MapAddr::Anywhere, PAGES * PAGE, prots, inherit, Some(mapped)).unwrap();
    Shared { host, object, space, at }
}

impl Shared {
    fn end(self, rig: &Rig) {
        rig.exit(self.space);
        assert!(rig.vm.end_vnode(&self.object), "nothing maps it, and all of it is written");
        assert_eq!(rig.vm.swap_census().free, 512, "no slot is left");
        rig.check();
    }
}

fn paged(body: impl Fn(&Rig) + Clone + 'static) {
    for machine in MACHINES {
        let body = body.clone();
        with_paging(machine, 24, Schedule::Timed, Some(PAGING), move |rig| body(rig));
    }
}

#[test]
fn pages_come_at_faults_and_go_back_where_that_is_asked_for() {
    paged(|rig| {
        let f = mapped(rig, false);
        assert_eq!(f.host.gets.get(), 0, "nothing before it is touched");
        assert_eq!(rig.load(&f.space, f.at + PAGE, PAGE).unwrap(), pattern(7, len())[PAGE..2 * PAGE]);
        assert_eq!(f.host.gets.get(), 1);
        // Behind the end it is clear.
        assert!(rig.load(&f.space, f.at + len(), PAGE / 2).unwrap().iter().all(|&byte| byte == 0));
        rig.store(&f.space, f.at + 2 * PAGE, b"two").unwrap();
        rig.store(&f.space, f.at + (len() - 2), b"last").unwrap();
        rig.check();
        assert!(!rig.vm.end_vnode(&f.object), "it is mapped");
        f.space.sync(rig.t(), f.at + 2 * PAGE, PAGE).unwrap();
        assert_eq!(f.host.puts.get(), 1, "only what was asked for");
        assert_eq!(&f.host.bytes.borrow()[2 * PAGE..2 * PAGE + 3], b"two");
        rig.vm.clean_file(rig.t(), &f.object).unwrap();
        assert_eq!(f.host.puts.get(), 2);
        rig.vm.clean_file(rig.t(), &f.object).unwrap();
        assert_eq!(f.host.puts.get(), 2, "it is clean");
        let bytes = f.host.bytes.borrow().clone();
        assert_eq!((&bytes[len() - 2..], bytes.len()), (&b"la"[..], len()), "not beyond its end");
        f.end(rig);
    });
}

#[test]
fn what_memory_has_no_room_for_is_in_the_swap_area_until_it_is_written_back() {
    paged(|rig| {
        let f = mapped(rig, false);
        rig.store(&f.space, f.at, &pattern(9, PAGES * PAGE)).unwrap();
        rig.vm.reclaim(rig.t());
        rig.check();
        assert_eq!(rig.vm.swap_census().only, PAGES, "the page daemon does not ask the file system");
        assert_eq!(f.host.puts.get(), 0);
        let space = &f.space;
        assert_eq!(rig.load(space, f.at, PAGES * PAGE).unwrap(), pattern(9, PAGES * PAGE));
        rig.vm.reclaim(rig.t());
        // The object ends with nothing that is not in the file.
        rig.vm.clean_file(rig.t(), &f.object).unwrap();
        assert_eq!(f.host.puts.get(), PAGES);
        assert_eq!(*f.host.bytes.borrow(), pattern(9, PAGES * PAGE)[..len()]);
        assert_eq!(rig.vm.swap_census().free, 512);
        // What is clean goes without being written, and comes from the file again.
        let gets = f.host.gets.get();
        rig.vm.reclaim(rig.t());
        assert_eq!(rig.vm.swap_census().free, 512);
        assert_eq!(rig.load(space, f.at, PAGE).unwrap(), pattern(9, PAGE));
        assert_eq!(f.host.gets.get(), gets + 1);
        f.end(rig);
    });
}

#[test]
fn a_private_mapping_writes_nothing_back() {
    paged(|rig| {
        let f = mapped(rig, true);
        rig.store(&f.space, f.at + 5, b"private").unwrap();
        assert_eq!(rig.load(&f.space, f.at + 5, 7).unwrap(), b"private");
        rig.vm.clean_file(rig.t(), &f.object).unwrap();
        assert_eq!((f.host.puts.get(), &f.host.bytes.borrow()[..]), (0, &pattern(7, len())[..]));
        f.end(rig);
    });
}

#[test]
fn a_file_that_is_cut_and_grows_again() {
    paged(|rig| {
        let f = mapped(rig, false);
        rig.store(&f.space, f.at, &pattern(3, PAGES * PAGE)).unwrap();
        rig.vm.reclaim(rig.t());
        assert!(rig.vm.truncate_file(rig.t(), &f.object, 2).is_empty(), "no block is the object's");
        rig.check();
        assert_eq!(rig.load(&f.space, f.at + 2 * PAGE, 1), Err(VmError::Bus(f.at + 2 * PAGE)));
        f.host.bytes.borrow_mut().truncate(2 * PAGE);
        rig.vm.extend_vnode(&f.object, 4);
        f.host.bytes.borrow_mut().resize(4 * PAGE, 0);
        assert!(rig.load(&f.space, f.at + 2 * PAGE, 2 * PAGE).unwrap().iter().all(|&byte| byte == 0));
        assert_eq!(rig.load(&f.space, f.at, 2 * PAGE).unwrap(), pattern(3, 2 * PAGE));
        rig.vm.clean_file(rig.t(), &f.object).unwrap();
        assert_eq!(f.host.bytes.borrow()[..2 * PAGE], pattern(3, 2 * PAGE));
        f.end(rig);
    });
}

#[test]
fn a_file_system_that_fails_loses_nothing() {
    paged(|rig| {
        let f = mapped(rig, false);
        f.host.fails.set(true);
        assert!(rig.load(&f.space, f.at, 1).is_err());
        rig.check();
        f.host.fails.set(false);
        rig.store(&f.space, f.at, b"kept").unwrap();
        f.host.fails.set(true);
        assert_eq!(rig.vm.clean_file(rig.t(), &f.object), Err(VmError::Io));
        rig.vm.reclaim(rig.t());
        assert_eq!(rig.vm.clean_file(rig.t(), &f.object), Err(VmError::Io));
        rig.check();
        f.host.fails.set(false);
        rig.vm.clean_file(rig.t(), &f.object).unwrap();
        assert_eq!(&f.host.bytes.borrow()[..4], b"kept");
        f.end(rig);
    });
}
