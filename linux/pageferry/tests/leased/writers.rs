//! Writers that a lease must find, and those that come while it is held.

use super::*;
use pageferry_untested::untested;
use std::os::fd::{AsRawFd as _, OwnedFd};

/// Sends a message whose last slot has a writer that the sender hides; what the receiver says.
fn send_with<W>(slots: usize, hide: impl FnOnce(&mut Buffer, &str) -> W) -> (Sender, Receiver, Error) {
    let (tx, rx) = Channel::pair(config()).unwrap();
    // A message before is right, and stays so.
    let before = tx.loan(filled(&tx, LEN, 1)).unwrap();
    let kept = rx.recv().unwrap();
    let mut buffer = filled(&tx, slots * LEN, 2);
    let path = path_to(&raw const buffer[(slots - 1) * LEN]);
    let writer = hide(&mut buffer, &path);
    let lent = tx.loan(buffer).unwrap();
    let error = rx.recv().unwrap_err();
    assert_eq!(rx.recv().unwrap_err(), error, "the channel is closed for good");
    assert_eq!(rx.counters().slots_held, 1);
    assert!(all(&kept, 1));
    drop((writer, lent, before, kept));
    assert_eq!(rx.counters().slots_held, 0);
    (tx, rx, error)
}

fn send_hidden<W>(hide: impl FnOnce(&mut Buffer, &str) -> W) {
    let Some(_alone) = alone() else { return };
    let (_, _, error) = send_with(1, hide);
    assert!(refused(&error), "{error}");
}

const BOTH: i32 = libc::PROT_READ | libc::PROT_WRITE;

#[test]
fn a_second_descriptor_is_found() {
    send_hidden(|_, path| open_writable(path, false).unwrap());
}

#[test]
fn a_second_mapping_is_found() {
    send_hidden(|_, path| Map::new(&open_writable(path, false).unwrap(), BOTH));
}

#[test]
fn a_mapping_that_could_be_made_writable_is_found() {
    send_hidden(|_, path| Map::new(&open_writable(path, false).unwrap(), libc::PROT_NONE));
}

#[test]
fn a_duplicate_of_the_mapping_by_mremap_is_found() {
    send_hidden(|buffer, _| Map::again(buffer.as_mut_ptr()));
}

#[test]
fn a_mapping_in_a_child_is_found() {
    send_hidden(|_, path| {
        let mapping = Map::new(&open_writable(path, false).unwrap(), BOTH);
        let child = Idle::fork();
        drop(mapping);
        child
    });
}

#[test]
fn a_descriptor_in_a_child_is_found() {
    send_hidden(|_, path| {
        let writer = open_writable(path, false).unwrap();
        let child = Idle::fork();
        drop(writer);
        child
    });
}

#[test]
fn a_descriptor_in_the_queue_of_a_socket_is_found() {
    send_hidden(|_, path| {
        let writer = open_writable(path, false).unwrap();
        let (ours, theirs) = Channel::sockets().unwrap();
        send_descriptor(&ours, &writer);
        (ours, theirs)
    });
}

#[test]
fn a_writer_of_one_slot_of_several_is_found_and_the_others_are_let_go() {
    let Some(_alone) = alone() else { return };
    let mut first = String::new();
    let (_tx, _rx, error) = send_with(3, |buffer, path| {
        first = path_to(&raw const buffer[0]);
        open_writable(path, false).unwrap()
    });
    assert!(refused(&error), "{error}");
    open_writable(&first, false).expect("no lease is left");
}

#[test]
fn a_sender_that_does_not_freeze_is_found() {
    let Some(_alone) = alone() else { return };
    let (_, _, error) = send_with(1, |_, _| Healed::plant(verify::Defect::NoFreeze));
    assert!(refused(&error), "{error}");
}

#[test]
fn a_child_that_inherits_an_open_slot_is_found() {
    let Some(_alone) = alone() else { return };
    let (_, _, error) = send_with(1, |buffer, _| {
        // What keeps slots out of children is undone for this one.
        // SAFETY: changes nothing in this process.
        assert_eq!(unsafe { libc::madvise(buffer.as_mut_ptr().cast(), LEN, libc::MADV_DOFORK) }, 0);
        Idle::fork()
    });
    assert!(refused(&error), "{error}");
}

#[test]
fn a_writer_that_comes_while_the_memory_is_leased_is_kept_out_and_seen() {
    let Some(_alone) = alone() else { return };
    let (tx, rx) = Channel::pair(config()).unwrap();
    let lent = tx.loan(filled(&tx, LEN, 7)).unwrap();
    let path = path_to(lent.as_ptr());
    let other = tx.loan(filled(&tx, LEN, 8)).unwrap();
    let (loan, other_loan) = (rx.recv().unwrap(), rx.recv().unwrap());
    let error = open_writable(&path, false).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EWOULDBLOCK));
    assert!(all(&loan, 7));
    drop(loan);
    assert!(broken(&rx.recv().unwrap_err()), "seen when the memory is given back");
    assert_eq!((lent.is_home(), rx.counters().slots_held), (Ok(false), 2), "it is never given back");
    // What is not at fault is.
    drop(other_loan);
    assert_eq!((other.is_home(), rx.counters().slots_held), (Ok(true), 1));
}

/// Lends, has a thread open the memory for writing until the kernel lets it, and looks at the leases meanwhile.
/// What the receiver has then, after the writer has stored everywhere.
fn overwrite(prepare: impl FnOnce(&mut Loan)) -> (Sender, Receiver, Loan) {
    let (tx, rx) = Channel::pair(config()).unwrap();
    let lent = tx.loan(filled(&tx, LEN, 7)).unwrap();
    let path = path_to(lent.as_ptr());
    let mut loan = rx.recv().unwrap();
    prepare(&mut loan);
    std::thread::scope(|scope| {
        let writer = scope.spawn(move || open_writable(&path, true).unwrap());
        while !writer.is_finished() {
            // As the library's own thread does every few seconds.
            verify::look_at_leases();
            std::thread::yield_now();
        }
        let writer = Map::new(&writer.join().unwrap(), BOTH);
        // SAFETY: mapped writable.
        unsafe { core::slice::from_raw_parts_mut(writer.0, LEN) }.fill(66);
    });
    (tx, rx, loan)
}

#[test]
fn what_is_held_for_longer_than_the_kernel_waits_is_saved_first() {
    let Some(_alone) = alone() else { return };
    let (_tx, rx, mut loan) = overwrite(|_| ());
    assert!(all(&loan, 7), "the writer has all of the memory, and the receiver what it had");
    assert!(broken(&rx.recv().unwrap_err()));
    loan.as_mut().unwrap()[0] = 8;
    assert_eq!(loan[..2], [8, 7]);
    drop(loan);
    assert!(broken(&rx.recv().unwrap_err()));
}

#[test]
fn what_its_receiver_has_written_to_is_saved_as_it_is() {
    let Some(_alone) = alone() else { return };
    let (_tx, _rx, loan) = overwrite(|loan| loan.as_mut().unwrap()[..3].copy_from_slice(&[1, 2, 3]));
    assert_eq!(loan[..3], [1, 2, 3]);
    assert!(all(&loan[3..], 7));
}

#[test]
fn memory_that_cannot_be_saved_at_once_is_saved_at_the_next_look() {
    let Some(_alone) = alone() else { return };
    verify::fail("MADV_POPULATE_WRITE", libc::ENOMEM, 0);
    let (_tx, _rx, loan) = overwrite(|loan| {
        let path = path_to(loan.as_ptr());
        open_writable(&path, false).unwrap_err();
        verify::look_at_leases();
        verify::restore();
    });
    assert!(all(&loan, 7));
}

#[test]
fn a_receiver_that_keeps_a_lease_on_what_it_gave_back_is_at_fault() {
    let Some(_alone) = alone() else { return };
    let (tx, rx) = Channel::pair(config().slots(1)).unwrap();
    let lent = tx.loan(filled(&tx, LEN, 7)).unwrap();
    let reader = std::fs::File::open(path_to(lent.as_ptr())).unwrap();
    drop(rx.recv().unwrap());
    const F_SETSIG: i32 = 10;
    const F_SETLEASE: i32 = 1024;
    // SAFETY: a descriptor of ours and plain numbers.
    let answer = unsafe {
        libc::fcntl(reader.as_raw_fd(), F_SETSIG, libc::SIGURG);
        libc::fcntl(reader.as_raw_fd(), F_SETLEASE, libc::F_RDLCK)
    };
    assert_eq!(answer, 0);
    let kept = Error::Peer(PeerFault::Broken(Broken::LeaseKept));
    let error = lent.wait().unwrap_err();
    assert_eq!(error, kept);
    drop(reader);
    assert_eq!(tx.buffer(1).unwrap_err(), kept, "the channel is closed for good");
}

#[test]
fn a_lease_that_fails_for_a_reason_of_this_host_loses_no_message() {
    let Some(_alone) = alone() else { return };
    let (tx, rx) = Channel::pair(config()).unwrap();
    let lent = tx.loan(filled(&tx, 2 * LEN, 7)).unwrap();
    verify::fail("F_SETLEASE", libc::ENOLCK, 1);
    let error = rx.recv();
    verify::restore();
    let Err(Error::Host(HostFault::Failed { failed })) = error else { panic!("{error:?}") };
    assert_eq!((failed.call, failed.errno.raw_os_error()), ("F_SETLEASE", libc::ENOLCK));
    assert_eq!(rx.counters().slots_held, 0);
    assert!(all(&rx.recv().unwrap(), 7));
    drop(lent.wait().unwrap());
}

fn send_descriptor(socket: &OwnedFd, fd: &OwnedFd) {
    let mut byte = 0u8;
    let mut vector = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let mut control = [0u64; 4];
    // SAFETY: all zero is a message without a name.
    let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
    message.msg_iov = &raw mut vector;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    // SAFETY: the header and the number lie in `control`, which is long enough and aligned; the kernel only reads.
    let sent = unsafe {
        message.msg_controllen = libc::CMSG_SPACE(4) as _;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(4) as _;
        libc::CMSG_DATA(header).cast::<i32>().write_unaligned(fd.as_raw_fd());
        libc::sendmsg(socket.as_raw_fd(), &raw const message, 0)
    };
    assert_eq!(sent, 1);
}

/// A defect that is planted for the time of this value.
pub struct Healed;

impl Healed {
    pub fn plant(defect: verify::Defect) -> Healed {
        verify::plant(defect);
        Healed
    }
}

impl Drop for Healed {
    fn drop(&mut self) {
        verify::heal();
    }
}

/// The hole that a lease has, and why a peer that may be hostile is confined: pages that are pinned have a writer of
/// which the kernel says nothing.
#[test]
fn what_io_uring_has_pinned_is_written_under_the_lease() {
    let Some(_alone) = alone() else { return };
    if !uring::is_here() {
        return untested("writers by io_uring", "it is not to be had");
    }
    let (tx, rx) = Channel::pair(config()).unwrap();
    let mut buffer = filled(&tx, LEN, 7);
    let pinned = uring::Pinned::new(buffer.as_mut_ptr(), 4096).unwrap();
    let lent = tx.loan(buffer).unwrap();
    let loan = rx.recv().unwrap();
    assert!(all(&loan, 7), "the lease was granted");
    pinned.store(0, &[66]);
    // SAFETY: the byte is read anew, whatever the compiler knows of it.
    assert_eq!(unsafe { std::hint::black_box(loan.as_ptr()).read_volatile() }, 66);
    drop((loan, lent));
}
