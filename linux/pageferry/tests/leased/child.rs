//! What runs in a child: a sender, honest or not.

use super::*;

/// Tells the child what to do.
pub const BEHAVIOUR: &str = "PAGEFERRY_TEST_BEHAVIOUR";

/// Messages of an honest child.
pub const ROUNDS: u8 = 100;

#[test]
fn runs_here() {
    let Some(parent) = Parent::get().unwrap() else { return };
    let tx = parent.sender(config().level(Level::Leased)).unwrap();
    match std::env::var(BEHAVIOUR).as_deref() {
        Ok("honest") => {
            for round in 0..ROUNDS {
                let lent = tx.loan(filled(&tx, 3_000_000, round)).unwrap();
                drop(lent.wait().unwrap());
            }
        }
        Ok("nothing") => (),
        Ok("keeps a mapping") => {
            let mut buffer = filled(&tx, LEN, 7);
            let writer = Map::again(buffer.as_mut_ptr());
            let lent = tx.loan(buffer).unwrap();
            writer.store(66);
            // It comes home when the parent has closed the channel.
            drop(lent.wait());
        }
        Ok("opens what is lent") => {
            let lent = tx.loan(filled(&tx, LEN, 7)).unwrap();
            let path = path_to(lent.as_ptr());
            // Until the parent has its lease the open succeeds, and is undone.
            while open_writable(&path, false).is_ok() {
                std::thread::yield_now();
            }
            tx.copy(b"done").unwrap();
            drop(lent.wait());
        }
        other => panic!("{other:?}"),
    }
}
