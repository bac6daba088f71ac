//! The choice between copying and lending, on channels.

use pageferry::*;

fn pair() -> (Sender, Receiver) {
    Channel::pair(Config::new().slots(4).slot_bytes(4 << 20)).unwrap()
}

/// Sends one message by `auto`; the receiver writes to it or not.
fn send(tx: &Sender, rx: &Receiver, len: usize, writes: bool) -> Verb {
    let lent = tx.auto(tx.buffer(len).unwrap(), Arrived::Touched).unwrap();
    let verb = lent.verb();
    let mut loan = rx.recv().unwrap();
    assert_eq!((loan.verb(), loan.len()), (verb, len));
    if writes {
        loan.as_mut().unwrap().fill(1);
    }
    drop(loan);
    drop(lent);
    verb
}

#[test]
fn a_small_message_is_copied_and_a_large_one_that_is_sent_again_is_lent() {
    let (tx, rx) = pair();
    assert_eq!(send(&tx, &rx, 20_000, false), Verb::Copy);
    if !tx.huge_pages() {
        return;
    }
    let mut buffer = tx.buffer(4 << 20).unwrap();
    for _ in 0..3 {
        let lent = tx.auto(buffer, Arrived::Untouched).unwrap();
        drop(rx.recv().unwrap());
        assert_eq!(lent.verb(), Verb::Loan);
        buffer = lent.wait().unwrap();
    }
}

#[test]
fn a_receiver_that_writes_is_sent_copies_until_it_stops() {
    let (tx, rx) = pair();
    if !tx.huge_pages() {
        return;
    }
    // What is filled anew by a near core is lent at 4 MB by the built-in costs; a file of this host may say
    // otherwise.
    let verbs: Vec<_> = (0..10).map(|_| send(&tx, &rx, 4 << 20, true)).collect();
    if verbs[0] != Verb::Loan {
        return;
    }
    assert_eq!(verbs[9], Verb::Copy, "{verbs:?}");
    let later: Vec<_> = (0..1000).map(|_| send(&tx, &rx, 4 << 20, false)).collect();
    assert_eq!(later.last(), Some(&Verb::Loan));
}

#[test]
fn what_is_given_up_arrives_by_any_verb() {
    let (tx, rx) = pair();
    for len in [1, 20_000, 1 << 20, 4 << 20, 16 << 20] {
        let mut buffer = tx.buffer(len).unwrap();
        buffer.fill(len as u8);
        let verb = tx.auto_give(buffer, Arrived::Touched).unwrap();
        let loan = rx.recv().unwrap();
        assert_eq!(loan.verb(), verb);
        assert!(loan.iter().all(|&byte| byte == len as u8));
    }
    assert_eq!(tx.counters().slots_taken, 0);
}

/// Costs are measured by a command of their own, and read when a channel is made. So a first message opens no file, and
/// begins no thread or process: the kernel would end this program with SIGSYS.
#[test]
fn no_message_measures_or_reads_what_was_measured() {
    use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};
    let calls = [libc::SYS_openat, libc::SYS_openat2, libc::SYS_clone, libc::SYS_clone3, libc::SYS_execve];
    let rules = calls.iter().map(|&call| (call, Vec::new())).collect();
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::KillProcess, arch).unwrap();
    let program: BpfProgram = filter.try_into().unwrap();
    let (tx, rx) = pair();
    let sends = move || {
        if apply_filter(&program).is_ok() {
            for len in [20_000, 1 << 20, 4 << 20] {
                send(&tx, &rx, len, false);
            }
        }
        // Where there are no such filters, nothing is tested.
    };
    std::thread::spawn(sends).join().unwrap();
}
