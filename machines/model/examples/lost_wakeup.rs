//! A consumer finds its queue empty and goes to sleep; the producer comes between.
//!
//! `cargo run -p pageferry-model --example lost_wakeup`

use pageferry_hal::{ContextId, CpuId, CpuSet, Interrupt, LockClass, Machine, SpinLock};
use pageferry_model::{MachineConfig, Model, Options, RunError, testing};
use std::cell::Cell;
use std::rc::Rc;

const QUEUE: LockClass = LockClass::new("queue", 1);

/// What the lock of the queue protects.
#[derive(Default)]
struct Queue {
    items: Vec<u32>,
    consumer_sleeps: bool,
}

/// A kernel of two CPUs: CPU 1 consumes what CPU 0 produces. `one_hold` is the mend: the queue is looked at, and the
/// consumer noted as asleep, under one hold of the lock.
fn kernel(m: &Model, one_hold: bool) -> Option<ContextId> {
    m.set_interrupt_handler(Box::new(|_| {}));
    let queue = Rc::new(m.new_lock(QUEUE, Queue::default()));
    let woken = Rc::new(Cell::new(false));

    let (other, theirs, wakeup) = (m.clone(), queue.clone(), woken.clone());
    let consumer = m.context_new(
        "consumer",
        Box::new(move || {
            loop {
                let mut held = theirs.lock();
                if held.items.pop().is_some() {
                    return None;
                }
                if !one_hold {
                    drop(held);
                    held = theirs.lock();
                }
                held.consumer_sleeps = true;
                drop(held);
                other.idle_until(&mut || wakeup.take());
            }
        }),
    );
    m.start_cpu(CpuId(1), consumer);

    let mut held = queue.lock();
    held.items.push(1);
    if std::mem::take(&mut held.consumer_sleeps) {
        woken.set(true);
        m.send_ipi(CpuSet::only(CpuId(1)), Interrupt::Reschedule);
    }
    None
}

fn main() {
    let machine = MachineConfig::named("xeon-mp").expect("it is built in");

    let wrong = testing::find(&machine, Options::default(), 0..100, |m| kernel(m, false));
    let wrong = wrong.expect("a seed under which the producer comes between");
    println!("{wrong}\n");
    assert!(matches!(wrong.result, Err(testing::Wrong::Run(RunError::Deadlock { .. }))));

    testing::seeds(&machine, Options::default(), 0..100, |m| kernel(m, true));
    println!("under one hold: right under 100 seeds");
}
