//! Planted defects of receiving by page flip: each is found, and by what is said here, in a program that a sound kernel
//! passes. What finds it is a copy that is kept beside the receiver's memory, the model, or a law; an assertion of the
//! code under test would be no finding.

use crate::common::far::*;
use crate::common::*;
use crate::inet_flip::*;
use crate::inet_zero_copy::with_source_and_ring;
use pageferry_ephemeral::{AccessedRule, Scheme};
use pageferry_hal::*;
use pageferry_kernel::*;
use pageferry_model::net::Wire;
use pageferry_vm::VmDefect;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

const PAGE: usize = PAGE_SIZE;

/// What is planted.
#[derive(Clone, Copy, Debug)]
enum Plant {
    None,
    Net(NetDefect),
    Vm(VmDefect),
    Kernel(KernelDefect),
}

/// What a receiver does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Scene {
    /// It receives by flips, and compares.
    Plain,
    /// Frames with less than a page, and such whose headers are in front of their data.
    ShortFrames,
    Unsplit,
    /// The card's pages have ephemeral mappings.
    Mapped,
    /// Bits are flipped, and the CPU sums.
    Damage,
    /// Another socket has the packets, too.
    Tapped,
    /// What comes is sent on where it lies, too.
    Relayed,
    /// A child has the buffer, too: as a copy, or as the same memory.
    Forked,
    Shared,
    /// The buffer is locked.
    Locked,
    /// The kernel writes to the buffer by its frames, as a device does, when it was received into.
    Wired,
    /// The buffer may not be written.
    ReadOnly,
    /// The kernel chooses where the bytes go.
    ToArea,
}

fn config(scene: Scene, plant: Plant) -> KernelConfig {
    let mut config = internet();
    if scene == Scene::Mapped {
        config.ephemeral.scheme = Scheme::Cache { entries: 4096, rule: AccessedRule::Safe };
    }
    // So that what is replaced is soon written by the card.
    config.vm.transfer.returns = true;
    let net = config.net.as_mut().expect("it has one");
    net.retransmissions = 6;
    net.checksum_offload = scene != Scene::Damage;
    if scene == Scene::Mapped {
        net.receive_mapping = ReceiveMapping::Ephemeral;
    }
    match plant {
        Plant::Net(defect) => net.defect = defect.into(),
        Plant::Kernel(defect) => config.defect = defect.into(),
        Plant::None | Plant::Vm(_) => {}
    }
    config
}

/// Receives all that there is by flips, each time into memory that was prepared by `first`, and looked at by `last`.
fn receives(
    u: &U,
    seen: &Complaint,
    len: usize,
    first: &dyn Fn(&U, &Buffer),
    last: &dyn Fn(&U, &mut Buffer, usize) -> bool,
) {
    let fd = connected(u, SOURCE);
    let mut buffer = Buffer::new(u, seen);
    let stream = patterned(len);
    let mut heard = 0;
    while heard < len {
        first(u, &buffer);
        let got = How::Flip.receive(u, fd, buffer.at, CHUNK.min(len - heard)).unwrap_or(0);
        if got == 0 {
            buffer.note(format!("nothing more, at {heard}"));
        }
        let right = buffer.came(u, heard, &stream[heard..heard + got]);
        if got == 0 || !last(u, &mut buffer, heard) || !right {
            break;
        }
        heard += got;
    }
    u.close(fd).expect("open");
}

/// Has a child that has the buffer as it is now, and looks at it again when it was received into a few times: frames
/// that were freed are used again by then.
fn with_child(u: &U, seen: &Complaint, len: usize, shared: bool) {
    const TIMES: usize = 4;
    let fd = connected(u, SOURCE);
    let mut buffer = Buffer::new(u, seen);
    if shared {
        u.inherit(buffer.at, CHUNK, pageferry_vm::Inherit::Share).expect("mapped");
    }
    let word = map(u, PAGE);
    let stream = patterned(len);
    let mut heard = 0;
    while heard < len && seen.borrow().is_none() {
        let (down, up) = (u.pipe().expect("a pipe"), u.pipe().expect("a pipe"));
        let mut now = vec![0; CHUNK];
        u.load(buffer.at, &mut now);
        let expected = Rc::new(RefCell::new(now));
        let (noted, at, theirs) = (seen.clone(), buffer.at, expected.clone());
        fork(u, "child", move |u| {
            u.close(down.1).and_then(|()| u.close(up.0)).expect("open");
            let mut there = vec![0; CHUNK];
            // Its TLB has the pages from now on.
            u.load(at, &mut there);
            assert_eq!(u.write(up.1, word, 1), Ok(1));
            assert_eq!(u.read(down.0, word, 1), Ok(0), "until the other has received");
            u.load(at, &mut there);
            if there != *theirs.borrow() {
                noted.borrow_mut().get_or_insert("what a child has".into());
            }
        });
        u.close(up.1).expect("open");
        assert_eq!(u.read(up.0, word, 1), Ok(1), "the child runs");
        for _ in 0..TIMES {
            let want = CHUNK.min(len - heard);
            let got = if want == 0 { 0 } else { How::Flip.receive(u, fd, buffer.at, want).unwrap_or(0) };
            let part = &stream[heard..heard + got];
            buffer.came(u, heard, part);
            if shared {
                expected.borrow_mut()[..got].copy_from_slice(part);
            }
            heard += got;
        }
        [up.0, down.0, down.1].into_iter().for_each(|end| u.close(end).expect("open"));
        u.wait().expect("the child");
    }
    u.close(fd).expect("open");
}

/// Bytes that the kernel gathers into a page, and where it puts that: behind them are zeros.
fn to_area(u: &U, seen: &Complaint, len: usize) {
    let fd = connected(u, SOURCE);
    let stream = patterned(len);
    let mut heard = 0;
    while heard < len {
        let got = u.receive_transfer(fd, None, CHUNK.min(len - heard)).expect("connected");
        let (at, bytes) = (got.at, got.len_bytes);
        let mut there = vec![0; bytes.next_multiple_of(PAGE)];
        u.load(at, &mut there);
        if there[..bytes] != stream[heard..heard + bytes] || there[bytes..].iter().any(|b| *b != 0) {
            seen.borrow_mut().get_or_insert(format!("behind {bytes} bytes, at {heard}"));
            break;
        }
        u.anflush(at, there.len()).expect("it came there");
        heard += bytes;
    }
    u.close(fd).expect("open");
}

fn play(u: &U, scene: Scene, len: usize, seen: &Complaint) {
    let nothing = &|_: &U, _: &Buffer| ();
    let right = &|_: &U, _: &mut Buffer, _: usize| true;
    match scene {
        Scene::Forked | Scene::Shared => with_child(u, seen, len, scene == Scene::Shared),
        Scene::ToArea => to_area(u, seen, len),
        Scene::Locked => {
            let lock = |u: &U, b: &Buffer| u.lock_memory(b.at, CHUNK).expect("there is room");
            let unlock = |u: &U, b: &mut Buffer, _: usize| u.unlock_memory(b.at, CHUNK).is_ok();
            receives(u, seen, len, &lock, &unlock);
        }
        Scene::Wired => {
            let wired = Cell::new(None);
            let wire = |u: &U, b: &Buffer| {
                let pages = u.space().wire(u.thread(), b.at, CHUNK, Prot::RW);
                wired.set(Some(pages.expect("mapped")));
            };
            let write = |u: &U, b: &mut Buffer, heard: usize| {
                let pages = wired.take().expect("just wired");
                for frame in pages.frames() {
                    u.machine().poke_frame(*frame, 0, &[0xc3; PAGE]);
                }
                u.kernel().vm().unwire(pages);
                b.came(u, heard, &[0xc3; CHUNK])
            };
            receives(u, seen, len, &wire, &write);
        }
        Scene::ReadOnly => {
            let fd = connected(u, SOURCE);
            let buffer = Buffer::new(u, seen);
            u.protect(buffer.at, CHUNK, Prot::READ).expect("mapped");
            match How::Flip.receive(u, fd, buffer.at, CHUNK) {
                Err(Errno::Fault) => _ = buffer.is_as_copied(u, 0),
                other => buffer.note(format!("{other:?} into what is read only")),
            }
            u.close(fd).expect("open");
        }
        _ => receives(u, seen, len, nothing, right),
    }
}

/// What finds something wrong in a scene.
fn found(scene: Scene, plant: Plant) -> Option<(Found, String)> {
    const LEN: usize = 12 * CHUNK + 1000;
    let seen = Complaint::default();
    let config = config(scene, plant);
    if scene == Scene::Tapped {
        return verdict(&tapped("xeon-mp", config, Clone::Late, &seen), &seen);
    }
    if scene == Scene::Relayed {
        return verdict(&relayed("xeon-mp", config, &seen), &seen);
    }
    let mtu = if scene == Scene::ShortFrames { 1500 } else { PAGE_MTU };
    let wire =
        Wire { seed: 3, corrupt_ppm: if scene == Scene::Damage { 60_000 } else { 0 }, ..Wire::default() };
    // A frame that was flipped or freed is soon received into again.
    let m = with_source_and_ring(wire, "xeon-mp", mtu, scene != Scene::Unsplit, LEN as u64, Some(24));
    let noted = seen.clone();
    let ended = try_run_on(m, "xeon-mp", config, move |u| {
        if let Plant::Vm(defect) = plant {
            u.kernel().vm().plant(Some(defect));
        }
        play(u, scene, LEN, &noted);
    });
    verdict(&ended, &seen)
}

/// What is planted, where it shows, and what finds it there.
const DEFECTS: [(Plant, Scene, Found); 19] = [
    (Plant::Net(NetDefect::FlipOfShared), Scene::Tapped, Found::Bytes),
    (Plant::Net(NetDefect::FlipOfShared), Scene::Relayed, Found::Bytes),
    (Plant::Net(NetDefect::FlipOfPart), Scene::ShortFrames, Found::Bytes),
    (Plant::Net(NetDefect::FlipWithHeaders), Scene::Unsplit, Found::Bytes),
    (Plant::Net(NetDefect::SumsIgnored), Scene::Damage, Found::Bytes),
    (Plant::Net(NetDefect::FlippedNotFlushed), Scene::Plain, Found::Stale),
    (Plant::Net(NetDefect::FlippedStaysWired), Scene::Mapped, Found::Law),
    (Plant::Net(NetDefect::ReceiveMappingKept), Scene::Mapped, Found::Law),
    (Plant::Net(NetDefect::FlipRefusedLost), Scene::Locked, Found::Bytes),
    (Plant::Net(NetDefect::FlipRefusedReversed), Scene::Locked, Found::Bytes),
    (Plant::Vm(VmDefect::TransferWithoutFlush), Scene::Plain, Found::Stale),
    (Plant::Vm(VmDefect::TransferLeaksReplaced), Scene::Plain, Found::Law),
    (Plant::Vm(VmDefect::TransferKeepsMappings), Scene::Shared, Found::Bytes),
    (Plant::Vm(VmDefect::TransferFreesShared), Scene::Forked, Found::Bytes),
    (Plant::Vm(VmDefect::SharedPageReturned), Scene::Forked, Found::Bytes),
    (Plant::Vm(VmDefect::TransferForgetsCopy), Scene::Forked, Found::Bytes),
    (Plant::Vm(VmDefect::TransferOverWired), Scene::Wired, Found::Bytes),
    (Plant::Vm(VmDefect::TransferIntoReadOnly), Scene::ReadOnly, Found::Bytes),
    (Plant::Kernel(KernelDefect::GatheredPageNotCleared), Scene::ToArea, Found::Bytes),
];

#[test]
fn every_defect_of_a_flip_is_found_by_what_is_there_for_it() {
    // A kernel that has all frames at addresses for ever has no mapping of them that could be stale.
    on_named_machines!();
    let mut wrong = Vec::new();
    for (plant, scene, by) in DEFECTS {
        let sound = found(scene, Plant::None);
        if sound.is_some() {
            wrong.push(format!("{scene:?}, a sound kernel: {sound:?}"));
        }
        let found = found(scene, plant);
        if found.as_ref().map(|(by, _)| *by) != Some(by) {
            wrong.push(format!("{plant:?} in {scene:?}: {found:?}, expected {by:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
