//! A sender that may be hostile, in a confined child.

use super::child::{BEHAVIOUR, ROUNDS};
use super::*;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(120);

fn command(behaviour: &str) -> Command {
    let program = std::env::current_exe().unwrap();
    Command::new(program).args(["--exact", "child::runs_here", "--nocapture"]).env(BEHAVIOUR, behaviour)
}

/// Landlock 6 keeps a child from stopping its parent; without, no child is believed.
fn can_confine() -> bool {
    // SAFETY: a question without arguments.
    unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, 0usize, 0usize, 1) >= 6 }
}

fn from_confined(behaviour: &str) -> Option<(Child<trust::Guarded>, Receiver<trust::Guarded>)> {
    if !can_confine() {
        return None;
    }
    let child = command(behaviour).confined().spawn().unwrap();
    let rx = child.receiver(Config::new().require_level(Level::Leased)).unwrap();
    assert_eq!(rx.level(), Level::Leased);
    Some((child, rx))
}

#[test]
fn a_confined_child_lends_by_leases_to_a_parent_that_does_not_trust_it() {
    let Some(_alone) = alone() else { return };
    let Some((mut child, rx)) = from_confined("honest") else { return };
    for round in 0..ROUNDS {
        let loan = rx.recv_timeout(PATIENCE).unwrap();
        assert_eq!(loan.level(), Level::Leased);
        assert!(all(&loan, round));
    }
    assert_eq!(rx.recv_timeout(PATIENCE).unwrap_err(), Error::Peer(PeerFault::Dead));
    assert!(child.process().wait().unwrap().success());
}

#[test]
fn a_child_that_is_not_confined_is_not_believed() {
    let Some(_alone) = alone() else { return };
    let mut child = command("honest").spawn().unwrap();
    let rx = child.receiver(Config::new()).unwrap();
    assert_eq!(rx.level(), Level::Copy);
    for round in 0..ROUNDS {
        let message = rx.recv_timeout(PATIENCE).unwrap();
        assert!(message.level() == Level::Copy && all(&message, round));
    }
    assert!(child.process().wait().unwrap().success());
}

#[test]
fn a_child_with_a_gap_in_its_confinement_is_not_believed() {
    let Some(_alone) = alone() else { return };
    if !can_confine() {
        return;
    }
    verify::fail("seccomp", libc::ENOSYS, 0);
    let child = command("nothing").confined().as_far_as_possible().spawn();
    verify::restore();
    let mut child = child.unwrap();
    assert_eq!(child.gaps(), Some(&[Gap::Filters][..]));
    assert_eq!(child.receiver(Config::new()).unwrap().level(), Level::Copy);
    assert!(child.process().wait().unwrap().success());
}

#[test]
fn a_confined_child_that_keeps_a_mapping_is_refused() {
    let Some(_alone) = alone() else { return };
    let Some((mut child, rx)) = from_confined("keeps a mapping") else { return };
    let error = rx.recv_timeout(PATIENCE).unwrap_err();
    assert!(refused(&error), "{error}");
    drop(rx);
    assert!(child.process().wait().unwrap().success());
}

#[test]
fn a_confined_child_that_opens_what_it_has_lent_is_at_fault() {
    let Some(_alone) = alone() else { return };
    let Some((mut child, rx)) = from_confined("opens what is lent") else { return };
    let loan = match rx.recv_timeout(PATIENCE) {
        Ok(loan) => loan,
        // It had the memory open for all of the time that a receiver waits for a writer to go.
        Err(error) => {
            assert!(refused(&error), "{error}");
            let _ = child.process().kill();
            let _ = child.process().wait();
            return;
        }
    };
    assert_eq!(&*rx.recv_timeout(PATIENCE).unwrap(), b"done");
    assert!(all(&loan, 7));
    drop(loan);
    let error = rx.recv_timeout(PATIENCE).unwrap_err();
    assert!(broken(&error), "{error}");
    drop(rx);
    assert!(child.process().wait().unwrap().success());
}
