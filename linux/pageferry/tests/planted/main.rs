//! Each planted defect is caught: a check holds without it, and fails with it.
//!
//! Defects are planted in a whole process, so each check runs twice in a process of its own: this program again.
//! Checks are in `memory` (who sees which bytes), `forged` (peers that lie), `ring` (counters and wake-ups), `waits`
//! (threads that wait), `blocks` (memory without a channel), `children` (what `fork` does) and `leased` (writers that a
//! lease keeps out).

mod blocks;
mod children;
mod forged;
mod leased;
#[path = "../leased/memory.rs"]
mod lent;
mod memory;
#[path = "../peer/mod.rs"]
mod peer;
mod ring;
mod waits;

use pageferry::verify::Defect;
use pageferry::{Channel, Config, Level, Receiver, Sender};
use pageferry_untested::untested;
use std::io::Read as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What a check has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The library does what it promises.
    Holds = 40,
    /// It does not.
    Fails = 41,
    /// This host lacks what the check needs.
    NotHere = 42,
}

/// The promise holds when this does.
pub fn holds(promise: bool) -> Found {
    if promise { Found::Holds } else { Found::Fails }
}

const CHECK: &str = "PAGEFERRY_TEST_CHECK";
const PLANT: &str = "PAGEFERRY_TEST_PLANT";

macro_rules! checks {
    ($($name:ident: $defect:ident, $check:path;)+) => {
        const CHECKS: &[(&str, Defect, fn() -> Found)] =
            &[$((stringify!($name), Defect::$defect, $check),)+];
        $(
            #[test]
            fn $name() {
                holds_without_and_fails_with(stringify!($name), Defect::$defect);
            }
        )+
    };
}

checks! {
    a_stray_store_after_a_loan: NoFreeze, memory::stray_store;
    a_stray_store_just_after_the_publish: FreezeAfterPublish, memory::stray_store_at_arrival;
    what_a_receiver_wrote_shadows_nothing: NoDontNeed, memory::shadow;
    slots_come_home_clean: AckBeforeDontNeed, memory::clean_when_home;
    slots_that_are_home_are_written_anew: NoThaw, memory::written_anew;
    a_pool_that_is_lent_has_no_writable_mapping: PoolLeftWritable, memory::no_writable_mapping;
    what_was_donated_is_out_of_sight: NoHide, memory::donated_is_hidden;
    what_was_given_back_is_not_written: NoGiveUp, memory::given_back_is_closed;
    a_memfd_beyond_the_limit_of_files: NoFileLimit, memory::file_limit;
    a_number_that_is_not_the_next: NoSequenceCheck, forged::sequence;
    a_descriptor_that_changes_while_it_is_read: DoubleRead, forged::changing;
    bytes_beyond_the_slots: NoBoundsCheck, forged::bounds;
    no_bytes: NoBoundsCheck, forged::empty;
    bytes_beyond_the_cell: NoBoundsCheck, forged::inline_bounds;
    slots_that_are_out: NoOverlapCheck, forged::overlap;
    a_level_that_was_not_agreed_on: NoVerbCheck, forged::level;
    a_verb_that_was_not_agreed_on: NoVerbCheck, forged::verb;
    pieces_beyond_their_slots: NoExtentCheck, forged::extents;
    sealed_memory_of_another_message: NoObjectCheck, forged::object;
    sealed_memory_that_is_not_sealed: NoSealCheck, forged::unsealed_object;
    a_pool_that_is_not_sealed: NoSealCheck, forged::unsealed_pool;
    a_ring_that_is_not_sealed: NoSealCheck, forged::unsealed_ring;
    a_pool_that_was_to_be_sealed_and_is_not: NoLateSealCheck, forged::late_seal;
    a_pool_of_another_size: NoSizeCheck, forged::pool_size;
    a_ring_of_another_size: NoSizeCheck, forged::ring_size;
    a_level_that_was_not_accepted: NoSettledCheck, forged::settled;
    a_pool_beyond_the_budget: NoBudgetCheck, forged::pool_budget;
    copies_beyond_the_budget: NoBudgetCheck, forged::copy_budget;
    descriptors_that_were_dropped: NoControlCheck, forged::control;
    descriptors_of_a_note_that_were_dropped: NoControlCheck, forged::control_of_note;
    a_counter_of_messages_that_jumps: NoCounterCheck, ring::published;
    a_counter_of_acknowledgements_that_jumps: NoCounterCheck, ring::acknowledged;
    a_second_acknowledgement: NoAckCheck, ring::second_ack;
    a_receiver_that_sleeps_is_woken: NoWake, ring::wakes_receiver;
    a_sender_that_sleeps_is_woken: NoWake, ring::wakes_sender;
    a_message_that_comes_before_the_sleep: NoSecondLook, ring::second_look_of_receiver;
    an_acknowledgement_that_comes_before_the_sleep: NoSecondLook, ring::second_look_of_sender;
    a_thread_is_woken_whatever_another_looks_at: StolenNote, ring::woken_beside_another;
    slots_of_its_own_wake_a_sender: NoNudge, ring::slots_of_its_own;
    the_second_of_two_threads_that_wait: NoNews, waits::news;
    the_second_of_two_threads_that_wait_is_told_in_time: PollsOn, waits::news;
    the_end_of_a_channel_that_another_thread_finds: NoEndTold, waits::ended;
    slots_that_are_given_back_are_free: AckBeforeGive, waits::given_back;
    what_a_dead_sender_had_published: NoDrain, ring::drained;
    a_child_of_a_sender_reads_its_memory: NoAtfork, children::reads;
    a_child_without_handlers_writes_nothing_that_is_lent: NoDontFork, children::stores;
    what_is_opened_again_stays_out_of_children: NoDontFork, children::opened_again;
    leased_slots_stay_out_of_children: NoDontFork, children::leased;
    a_child_keeps_what_its_parent_had_received: NoForkFence, children::fence;
    a_child_of_a_receiver_keeps_no_sender_waiting: ChildKeepsSocket, children::orphan;
    a_child_uses_no_channel_of_its_parent: NoForkedCheck, children::refused;
    a_block_that_somebody_reads: NoReaderCheck, blocks::reader;
    a_child_has_no_block_of_its_parent: ChildKeepsFile, blocks::child;
    a_block_that_can_shrink: NoSealCheck, blocks::unsealed;
    a_block_beyond_what_is_allowed: NoBudgetCheck, blocks::budget;
    leased_memory_with_a_writer: NoLease, leased::hidden_writer;
    leased_memory_that_its_sender_opens: NoLeaseCheck, leased::broken_lease;
    leased_memory_that_is_held_for_long: NoSave, leased::saved;
}

#[test]
fn every_defect_has_a_check() {
    for defect in Defect::ALL {
        assert!(CHECKS.iter().any(|(_, of, _)| of == defect), "no check is there for {defect:?}");
    }
    assert!(Defect::ALL.len() >= 20);
}

/// Runs what the environment names; a test only in name.
#[test]
fn in_a_process_of_its_own() {
    let Ok(name) = std::env::var(CHECK) else { return };
    if let Ok(plant) = std::env::var(PLANT) {
        let named = |defect: &&Defect| format!("{defect:?}") == plant;
        pageferry::verify::plant(*Defect::ALL.iter().find(named).expect("the defect exists"));
    }
    let (_, _, check) = CHECKS.iter().find(|(of, _, _)| *of == name).expect("the check exists");
    std::process::exit(check() as i32);
}

/// Whether this process has its defect: then waits are short, for they end only by the defect.
pub fn patience() -> Duration {
    if std::env::var_os(PLANT).is_some() { Duration::from_secs(2) } else { peer::PATIENCE }
}

fn holds_without_and_fails_with(name: &str, defect: Defect) {
    let without = run(name, None);
    if without == Found::NotHere {
        return untested(name, "this host lacks what the check needs");
    }
    assert_eq!(without, Found::Holds, "{name}, without the defect");
    assert_eq!(run(name, Some(defect)), Found::Fails, "{name}, with {defect:?}");
}

fn run(name: &str, defect: Option<Defect>) -> Found {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "in_a_process_of_its_own", "--nocapture", "--test-threads=1"]);
    command.env(CHECK, name).env_remove(PLANT);
    if let Some(defect) = defect {
        command.env(PLANT, format!("{defect:?}"));
    }
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let until = Instant::now() + 3 * peer::PATIENCE;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if Instant::now() > until {
            child.kill().unwrap();
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let mut text = String::new();
    let _ = child.stderr.take().unwrap().read_to_string(&mut text);
    let all = [Found::Holds, Found::Fails, Found::NotHere];
    let found = all.into_iter().find(|&found| status.code() == Some(found as i32));
    found.unwrap_or_else(|| {
        panic!("{name} with {defect:?}: code {:?}, signal {:?}: {text}", status.code(), status.signal())
    })
}

/// Both ends, with one slot.
pub fn pair() -> (Sender, Receiver) {
    Channel::pair(Config::new().slots(1).slot_bytes(1)).unwrap()
}

/// Both ends, with one slot that is leased, where this host can.
pub fn leased_pair() -> Option<(Sender, Receiver)> {
    Channel::pair(Config::new().slots(1).slot_bytes(1).require_level(Level::Leased)).ok()
}

/// Both ends, with one slot that is lent by the MMU, where this host can.
pub fn mmu_pair() -> Option<(Sender, Receiver)> {
    Some(pair()).filter(|(tx, _)| tx.level() == Level::Mmu)
}

/// Has the kernel store a byte at an address; whether it could.
pub fn can_store(at: *mut u8, byte: u8) -> bool {
    let (read, write) = rustix::pipe::pipe().unwrap();
    rustix::io::write(&write, &[byte]).unwrap();
    // SAFETY: the kernel looks whether the address is mapped writable. What is there is the library's, and a stray
    // store is what is tested.
    unsafe { libc::read(read.as_raw_fd(), at.cast(), 1) == 1 }
}

/// Has the kernel load a byte from an address; whether it could.
pub fn can_load(at: *const u8) -> bool {
    let (_read, write) = rustix::pipe::pipe().unwrap();
    // SAFETY: the kernel looks whether the address is mapped readable.
    unsafe { libc::write(write.as_raw_fd(), at.cast(), 1) == 1 }
}
