//! What runs on the other side.

use super::attempts::attempts;
use super::config;
use pageferry::{Level, Parent};

#[test]
fn runs_here() {
    let Some(parent) = Parent::get().unwrap() else { return };
    let from_parent = parent.receiver(config()).unwrap();
    let to_parent = parent.sender(config().level(Level::Sealed)).unwrap();
    let order = from_parent.recv().unwrap();
    let mut words = std::str::from_utf8(&order).unwrap().splitn(3, ' ');
    let address = words.next().unwrap().parse().unwrap();
    let leaked = words.next().unwrap().parse().unwrap();
    let mut told = String::new();
    for (name, outcome) in attempts(address, leaked, words.next().unwrap().as_ref()) {
        told.push_str(&format!("{name} {outcome}\n"));
    }
    told.push_str(&format!("huge pages {}\n", i32::from(to_parent.huge_pages())));
    let mut buffer = to_parent.buffer(told.len()).unwrap();
    buffer.copy_from_slice(told.as_bytes());
    drop(order);
    to_parent.loan(buffer).unwrap().wait().unwrap();
}
