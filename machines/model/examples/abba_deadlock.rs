//! Two CPUs take two locks, one in this order and one in that.
//!
//! `cargo run -p pageferry-model --example abba_deadlock`

use pageferry_hal::{Account, ContextId, CpuId, Instructions, LockClass, Machine, SpinLock};
use pageferry_model::{MachineConfig, Model, Options, RunError, testing};
use std::rc::Rc;

/// A kernel of two CPUs: CPU 0 moves from `here` to `there`, and CPU 1 back. `sorts` is the mend.
fn kernel(m: &Model, classes: [LockClass; 2], sorts: bool) -> Option<ContextId> {
    let here = Rc::new(m.new_lock(classes[0], 100));
    let there = Rc::new(m.new_lock(classes[1], 100));
    let (other, a, b) = (m.clone(), here.clone(), there.clone());
    let back = m.context_new(
        "back",
        Box::new(move || {
            if sorts {
                let (mut to, mut from) = (a.lock(), b.lock());
                (*to, *from) = (*to + 1, *from - 1);
            } else {
                let mut from = b.lock();
                other.execute(Instructions(50));
                *a.lock() += 1;
                *from -= 1;
            }
            None
        }),
    );
    m.start_cpu(CpuId(1), back);

    let mut from = here.lock();
    m.execute(Instructions(50));
    *there.lock() += 1;
    *from -= 1;
    None
}

fn main() {
    let machine = MachineConfig::named("xeon-mp").expect("it is built in");

    // Without an order, the two have to meet. Some seed sees to it; all four places are told.
    let unordered = [LockClass::unordered("here"), LockClass::unordered("there")];
    let wrong = testing::find(&machine, Options::default(), 0..100, move |m| kernel(m, unordered, false));
    let wrong = wrong.expect("a seed under which they meet");
    println!("{wrong}\n");
    let again =
        testing::replay(&machine, Options::default(), wrong.seed, 0, move |m| kernel(m, unordered, false));
    assert_eq!(again.result, wrong.result, "the same seed, the same deadlock");

    // With an order, the first wrong acquisition is an error, whether they meet or not.
    const HERE: LockClass = LockClass::new("here", 1);
    const THERE: LockClass = LockClass::new("there", 2);
    let wrong = testing::replay(&machine, Options::default(), 0, 0, |m| kernel(m, [HERE, THERE], false));
    println!("{wrong}\n");
    assert!(matches!(wrong.result, Err(testing::Wrong::Run(RunError::LockOrder { .. }))));

    testing::seeds(&machine, Options::default(), 0..100, |m| kernel(m, [HERE, THERE], true));
    println!("in order: right under 100 seeds");
}
